//! What the cross-crate tests share: the built program, scripted runs of it, and their event streams
//! in a form that is the same every time.

mod normal;
mod program;

pub use normal::normalised;
pub use program::{Scripted, command, program, scenario};
