//! Delegation for agent programs: the facade over the Offshoot crates.

pub mod config;
