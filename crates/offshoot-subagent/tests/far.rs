//! The contract of continuable children once more, over a [host far away](support::Far): each test of
//! these files, and the same answers.

#![allow(clippy::duplicate_mod, reason = "each file brings its own support")]

#[path = "branches.rs"]
mod branches;
#[path = "deliver.rs"]
mod deliver;
#[path = "listing.rs"]
mod listing;
#[path = "oversee.rs"]
mod oversee;
#[path = "recover.rs"]
mod recover;
#[path = "settle.rs"]
mod settle;
#[path = "start.rs"]
mod start;
