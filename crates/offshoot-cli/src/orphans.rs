//! What the commands of a run leave without a parent comes to this program, and ends with it.

use offshoot::shell::Subreaper;
use tokio::runtime::Runtime;

/// Claims the orphans of all commands that will run on `runtime`. Drop it after that.
///
/// Without it, where the system has no such thing, commands end as well as they can.
pub(crate) fn adopt(runtime: &Runtime) -> Option<Subreaper> {
    let _entered = runtime.enter();
    let claimed = Subreaper::claim();
    claimed
        .inspect_err(|error| tracing::debug!(%error, "orphans of commands are not adopted"))
        .ok()
}
