//! The offshoot program.
fn main() {}
