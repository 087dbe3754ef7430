//! `offshoot demo`: delegation on the current folder, without a key and without a network.

use std::process::ExitCode;

use crate::args::DemoArgs;
use crate::fault::Fault;

/// `offshoot demo`.
pub(crate) fn demo(_args: DemoArgs) -> Result<ExitCode, Fault> {
    Err(Fault::usage("`offshoot demo` is not in this build yet"))
}
