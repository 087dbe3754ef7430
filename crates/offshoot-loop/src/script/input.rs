//! What a host or a human does while a script runs.

use super::{ANY, ROOT};

/// One thing that happens from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// When it happens.
    pub at: At,
    /// Whom it concerns; [`Target::Root`] where the mode concerns nobody and the script names none.
    pub to: Target,
    /// What is done.
    pub mode: InputMode,
}

/// The moment of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// When this gate opens.
    Gate(String),
    /// The first time that this agent becomes idle after a turn.
    Idle(Target),
    /// When this child settles.
    Settled(Target),
}

/// An agent, as a script names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The root agent.
    Root,
    /// The children that were started with this description.
    Child(String),
    /// Any child.
    AnyChild,
}

impl Target {
    pub(super) fn parse(text: &str) -> Self {
        match text {
            ROOT => Self::Root,
            ANY => Self::AnyChild,
            label => Self::Child(label.to_owned()),
        }
    }

    /// Whether a child with this label is meant.
    #[must_use]
    pub fn matches_child(&self, label: &str) -> bool {
        match self {
            Self::Root => false,
            Self::Child(wanted) => wanted == label,
            Self::AnyChild => true,
        }
    }
}

/// What an input does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputMode {
    /// A message for the next turn, which wakes.
    Followup {
        /// The message, with placeholders.
        text: String,
    },
    /// A message for the next step, which wakes.
    Steer {
        /// The message, with placeholders.
        text: String,
    },
    /// A message for the next step, which does not wake.
    Inject {
        /// The message, with placeholders.
        text: String,
    },
    /// Cancels the turn; what waits in the inbox is discarded.
    Cancel,
    /// Cancels the turn; what waits in the inbox stays.
    CancelKeepInbox,
    /// Interrupts the child.
    Interrupt,
    /// Disposes the agent.
    Dispose,
    /// Kills a task.
    KillTask {
        /// The task's id, with placeholders.
        task: String,
    },
    /// Opens a gate.
    Open {
        /// The gate.
        gate: String,
    },
    /// The process ends itself at once.
    Crash,
}

impl InputMode {
    /// The mode's name in a script.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Followup { .. } => "followup",
            Self::Steer { .. } => "steer",
            Self::Inject { .. } => "inject",
            Self::Cancel => "cancel",
            Self::CancelKeepInbox => "cancel_keep_inbox",
            Self::Interrupt => "interrupt",
            Self::Dispose => "dispose",
            Self::KillTask { .. } => "kill_task",
            Self::Open { .. } => "open",
            Self::Crash => "crash",
        }
    }
}
