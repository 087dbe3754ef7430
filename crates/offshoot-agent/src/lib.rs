//! Agents: sessions, the inbox, steer scheduling, turns and steps, tools and prompt sections.
