//! The built program, from outside.

mod acp;
mod demo;
mod environment;
mod files;
mod inputs;
mod programs;
mod run;
mod serving;
mod spill_folder;
mod stops;
mod store_faults;
mod store_order;
mod stored;
mod support;
mod usage;
