//! One residency of a continuable child, as the side knows it where the child lives.
//!
//! ```text
//!            turn ends            no holds, nothing parked
//!  running ───────────▶ quiet ─────────────────────────────▶ settling ──▶ settled
//!     ▲                   │ holds > 0: waiting                   ▲
//!     └───────────────────┘ (reported once a quiet period)       │
//!       a message wakes it                                  closed by somebody
//! ```
//!
//! Running, waiting and settled are read off the agent, never stored; stored is only what was already
//! reported, and what an interrupt of a child that only waited means for its outcome.

use std::time::Duration;

use tokio::time::Instant;

use crate::Outcome;

/// What happens where the child lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The child was looked at, and has not settled.
    Looked {
        /// Whether no turn runs.
        quiet: bool,
        /// Its last turn.
        turn: u64,
        /// When.
        now: Instant,
    },
    /// The time came that the answer to a look named.
    Passed,
    /// The interrupt of this number arrived.
    Interrupt {
        /// From 1; each is greater than the one before.
        number: u64,
    },
    /// An interrupt found no turn to cut, and stopped what the child waited for after this turn.
    StoppedWaiting {
        /// The child's last turn.
        turn: u64,
    },
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing but to look again when something changes.
    Done,
    /// Look again when something changes; else say so at this time.
    WakeAt(Instant),
    /// Report that the child waits.
    Report,
    /// Cut the turn that runs, or else stop what the child waits for.
    Cut,
    /// It was done before.
    Duplicate,
}

/// A time without turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quiet {
    /// The turn after which it began.
    turn: u64,
    due: Instant,
    told: bool,
}

/// One residency.
#[derive(Clone, Debug)]
pub struct Tenancy {
    waiting_after: Duration,
    quiet: Option<Quiet>,
    interrupts: u64,
    stopped_waiting: Option<u64>,
}

impl Tenancy {
    /// A child that is reported as waiting when it was quiet for so long.
    #[must_use]
    pub fn new(waiting_after: Duration) -> Self {
        Self {
            waiting_after,
            quiet: None,
            interrupts: 0,
            stopped_waiting: None,
        }
    }

    /// Answers a command.
    pub fn apply(&mut self, command: Command) -> Reply {
        match command {
            Command::Looked { quiet: false, .. } => {
                self.quiet = None;
                Reply::Done
            }
            Command::Looked { turn, now, .. } => {
                let same = self.quiet.filter(|quiet| quiet.turn == turn);
                let quiet = same.unwrap_or(Quiet {
                    turn,
                    due: now + self.waiting_after,
                    told: false,
                });
                self.quiet = Some(quiet);
                match quiet.told {
                    true => Reply::Done,
                    false => Reply::WakeAt(quiet.due),
                }
            }
            Command::Passed => match &mut self.quiet {
                Some(quiet) if !quiet.told => {
                    quiet.told = true;
                    Reply::Report
                }
                _ => Reply::Duplicate,
            },
            Command::Interrupt { number } if number <= self.interrupts => Reply::Duplicate,
            Command::Interrupt { number } => {
                self.interrupts = number;
                Reply::Cut
            }
            Command::StoppedWaiting { turn } => {
                self.stopped_waiting = Some(turn);
                Reply::Done
            }
        }
    }

    /// How it ended: `told` by its last turn, of this number. What was stopped before it had ended did
    /// not complete.
    #[must_use]
    pub fn outcome(&self, told: Outcome, turn: u64, cut_short: bool) -> Outcome {
        let stopped = cut_short || self.stopped_waiting == Some(turn);
        match told {
            Outcome::Completed if stopped => Outcome::Aborted,
            told => told,
        }
    }
}

#[cfg(test)]
#[test]
fn a_wait_is_reported_once_a_quiet_period_and_an_interrupt_counts_once() {
    let after = Duration::from_secs(30);
    let (now, mut tenancy) = (Instant::now(), Tenancy::new(after));
    let looked = |quiet, turn, secs| Command::Looked {
        quiet,
        turn,
        now: now + Duration::from_secs(secs),
    };
    let at = |secs| Reply::WakeAt(now + Duration::from_secs(secs) + after);
    let trace = [
        (looked(false, 1, 0), Reply::Done),
        (Command::Passed, Reply::Duplicate),
        (looked(true, 1, 1), at(1)),
        (looked(true, 1, 20), at(1)),
        (Command::Passed, Reply::Report),
        (Command::Passed, Reply::Duplicate),
        (looked(true, 1, 40), Reply::Done),
        (looked(true, 2, 50), at(50)),
        (looked(false, 3, 60), Reply::Done),
        (looked(true, 3, 70), at(70)),
        (Command::Interrupt { number: 2 }, Reply::Cut),
        (Command::Interrupt { number: 2 }, Reply::Duplicate),
        (Command::Interrupt { number: 1 }, Reply::Duplicate),
        (Command::StoppedWaiting { turn: 3 }, Reply::Done),
    ];
    for (command, reply) in trace {
        assert_eq!(tenancy.apply(command), reply, "{command:?}");
    }
    let outcome = |told, turn, cut| tenancy.outcome(told, turn, cut);
    assert_eq!(outcome(Outcome::Completed, 3, false), Outcome::Aborted);
    assert_eq!(outcome(Outcome::Completed, 4, false), Outcome::Completed);
    assert_eq!(outcome(Outcome::Completed, 4, true), Outcome::Aborted);
    assert_eq!(outcome(Outcome::Error, 3, true), Outcome::Error);
}
