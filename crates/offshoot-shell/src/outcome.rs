//! What the end of a command means for a task.

use offshoot_core::process::{ProgramEnd, ProgramOutcome};
use offshoot_task::TaskOutcome;

/// The outcome of a task that ran a command: an exit, of whatever code, is `completed`, a death by a
/// signal is `failed`. Either is `killed` when the command had been asked to stop.
pub fn task_outcome(outcome: ProgramOutcome) -> TaskOutcome {
    judge(outcome.end, outcome.stopped, outcome.to_string())
}

fn judge(end: ProgramEnd, stopped: bool, detail: String) -> TaskOutcome {
    match end {
        _ if stopped => TaskOutcome::killed().with_detail(detail),
        ProgramEnd::Exited(_) => TaskOutcome::completed().with_detail(detail),
        _ => TaskOutcome::failed(detail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offshoot_task::TaskStatus::{Completed, Failed, Killed};

    #[test]
    fn the_status_of_a_task_follows_from_the_end_and_from_whether_a_stop_was_requested() {
        let rows = [
            (ProgramEnd::Exited(0), false, Completed, "exit code: 0"),
            (ProgramEnd::Exited(3), false, Completed, "exit code: 3"),
            (ProgramEnd::Exited(0), true, Killed, "exit code: 0"),
            (ProgramEnd::Signaled(11), false, Failed, "signal: SIGSEGV"),
            (ProgramEnd::Signaled(15), true, Killed, "signal: SIGTERM"),
            (ProgramEnd::Signaled(40), false, Failed, "signal: 40"),
            (ProgramEnd::Unknown, false, Failed, "exit status unknown"),
        ];
        for (end, stopped, status, detail) in rows {
            let outcome = judge(end, stopped, end.to_string());
            assert_eq!(outcome.status(), status, "{end:?}");
            assert_eq!(outcome.detail(), Some(detail));
        }
    }
}
