//! The decisions of delegation as plain state machines: no runtime, no clock, no lock.
//!
//! Each has one function, `apply(command)`, that returns a reply and what is to be done about it; whoever
//! holds the machine does it, in order. A repeated command is answered as a duplicate and has no effect,
//! so that a host which retries may run the same machines.
//!
//! - [`activation`]: one residency of a child, as its parent's side knows it.
//! - [`tenancy`]: the same residency, as the side knows it where the child lives.
//! - [`capacity`]: how many children of one tree are live.

pub mod activation;
pub mod capacity;
pub mod tenancy;
