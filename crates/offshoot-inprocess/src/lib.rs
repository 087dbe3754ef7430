//! The in-process subagent providers: spawn and fork.
