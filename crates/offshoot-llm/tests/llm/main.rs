//! Real models against a scripted server, in every wire format.

#![allow(clippy::unwrap_used, reason = "a test")]

mod faults;
mod formats;
mod secrets;
mod stops;
mod support;
