//! Model-facing tools for delegation and background work, their prompt sections and notices.
