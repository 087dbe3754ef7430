//! The inbox and the phases of an agent as a plain sequential program, written from the rules alone.

use std::collections::VecDeque;

use offshoot_agent::{CancelCause, Pending, Placement, Target};

pub const MAX_STEPS: u64 = 4;
pub const MAX_STEERED: u64 = 1;
pub const MAX_CHAIN: u64 = 2;

/// A message as the model knows it.
#[derive(Clone, Debug)]
pub struct Note {
    pub name: String,
    pub target: Target,
    pub wake: bool,
    pub user: bool,
    pub generation: u64,
    pub passive: bool,
}

/// A cancel that the running turn has met.
#[derive(Clone, Debug)]
pub struct Cut {
    discard: bool,
    latched: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub enum Phase {
    #[default]
    Idle,
    /// A turn is open and its first step has not begun.
    Opened {
        claimed: Vec<Note>,
        cut: Option<Cut>,
    },
    Stepping {
        step: u64,
        /// Steps that only steers kept the turn open for, while a followup waited.
        steered: u64,
        cut: Option<Cut>,
    },
}

/// How a step ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Continue,
    Completed,
    MaxTokens,
    Refusal,
    Error,
    Panic,
}

/// What the drive does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    Step { at: (u64, u64), read: Vec<String> },
    Idle,
    Nothing,
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub next_step: VecDeque<Note>,
    pub next_turn: VecDeque<Note>,
    pub phase: Phase,
    pub turn: u64,
    /// Of the turn that runs.
    pub generation: u64,
    pub stopped: bool,
    pub read: Vec<String>,
    pub discarded: Vec<String>,
}

impl Model {
    pub fn waiting(&self) -> Vec<String> {
        let lists = self.next_step.iter().chain(&self.next_turn);
        lists.map(|note| note.name.clone()).collect()
    }

    pub fn is_running(&self) -> bool {
        !matches!(self.phase, Phase::Idle)
    }

    fn cut(&mut self) -> Option<&mut Cut> {
        match &mut self.phase {
            Phase::Idle => None,
            Phase::Opened { cut, .. } | Phase::Stepping { cut, .. } => cut.as_mut(),
        }
    }

    pub fn drop_latch(&mut self) {
        if let Some(cut) = self.cut() {
            cut.latched.clear();
        }
    }

    fn list(&mut self, target: Target) -> &mut VecDeque<Note> {
        match target {
            Target::NextStep => &mut self.next_step,
            Target::NextTurn => &mut self.next_turn,
        }
    }

    pub fn accept(&mut self, note: Note) -> Placement {
        self.stopped &= !note.user;
        let (name, target, wake) = (note.name.clone(), note.target, note.wake);
        let passive = note.passive;
        self.list(target).push_back(note);
        if passive {
            return Placement::Parked;
        }
        if !self.is_running() {
            if !wake {
                return Placement::Parked;
            }
            self.open();
            // The turn may have begun with one that had waited longer.
            return match self.waiting().contains(&name) {
                true => Placement::Queued,
                false => Placement::TurnStarted,
            };
        }
        match (self.cut(), target) {
            (Some(cut), _) if wake => {
                cut.latched.push(name);
                Placement::NextTurn
            }
            (Some(_), _) => Placement::Parked,
            (None, Target::NextStep) => Placement::NextStep,
            (None, Target::NextTurn) => Placement::NextTurn,
        }
    }

    /// Asked to go on with what waits; whether a turn began.
    pub fn resume(&mut self) -> bool {
        let waiting = self.waiting();
        if waiting.is_empty() {
            return false;
        }
        if self.is_running() {
            // After a cancel all of them are as ones that wake.
            if let Some(cut) = self.cut() {
                cut.latched.extend(waiting);
            }
            return false;
        }
        self.open();
        true
    }

    fn open(&mut self) {
        let mut claimed: Vec<_> = self.next_step.drain(..).collect();
        claimed.extend(self.next_turn.pop_front());
        self.stopped &= !claimed.iter().any(|note| note.user);
        self.turn += 1;
        // It has the generation of what opened it; of what was left over when nothing that wakes did.
        let waking = claimed.iter().filter(|note| note.wake);
        let least = waking.map(|note| note.generation).min();
        let of_all = claimed.iter().map(|note| note.generation).min();
        self.generation = least.or(of_all).unwrap_or(0);
        self.phase = Phase::Opened { claimed, cut: None };
    }

    pub fn cancel(&mut self, cause: CancelCause, pending: Pending) -> bool {
        self.stopped |= cause == CancelCause::User;
        let discard = pending == Pending::Discard;
        if let Phase::Opened { cut, .. } | Phase::Stepping { cut, .. } = &mut self.phase {
            let cut = cut.get_or_insert_with(|| Cut {
                discard: false,
                latched: Vec::new(),
            });
            cut.discard |= discard;
            if discard {
                cut.latched.clear();
            }
        }
        if discard {
            self.discarded.extend(self.waiting());
            self.next_step.clear();
            self.next_turn.clear();
        }
        self.is_running()
    }

    pub fn withdraw(&mut self, name: &str) -> bool {
        let before = self.waiting().len();
        self.next_step.retain(|note| note.name != name);
        self.next_turn.retain(|note| note.name != name);
        let found = self.waiting().len() < before;
        if found {
            self.discarded.push(name.to_owned());
        }
        found
    }

    fn find(&self, name: &str) -> Option<(Target, usize)> {
        let at = |list: &VecDeque<Note>| list.iter().position(|note| note.name == name);
        let step = at(&self.next_step).map(|at| (Target::NextStep, at));
        step.or_else(|| at(&self.next_turn).map(|at| (Target::NextTurn, at)))
    }

    /// What takes the place of `old` and is nobody's chain; false when that does not wait.
    pub fn replace(&mut self, old: &str, new: &str, by_user: bool) -> bool {
        let Some((target, at)) = self.find(old) else {
            return false;
        };
        self.stopped &= !by_user;
        let note = &mut self.list(target)[at];
        (note.name, note.user, note.generation) = (new.to_owned(), by_user, 0);
        self.discarded.push(old.to_owned());
        let latched = self.cut().map(|cut| &mut cut.latched);
        for name in latched.into_iter().flatten().filter(|name| *name == old) {
            new.clone_into(name);
        }
        true
    }

    /// Puts `name` in front of `before`, or last; false when either does not wait there.
    pub fn reorder(&mut self, name: &str, target: Target, before: Option<&str>) -> bool {
        let Some((from, at)) = self.find(name) else {
            return false;
        };
        if before == Some(name) {
            return from == target;
        }
        if before.is_some_and(|before| self.find(before).is_none_or(|(list, _)| list != target)) {
            return false;
        }
        let mut note = self.list(from).remove(at).expect("it waits");
        note.target = target;
        note.passive &= target == Target::NextStep;
        let at = before
            .and_then(|before| self.find(before))
            .map(|(_, at)| at);
        let list = self.list(target);
        list.insert(at.unwrap_or(list.len()), note);
        true
    }

    /// Lets the drive go on to where it waits for somebody.
    pub fn settle(&mut self) -> Next {
        loop {
            match std::mem::take(&mut self.phase) {
                Phase::Opened {
                    claimed,
                    cut: Some(cut),
                } => {
                    self.abort(cut, claimed);
                    if !self.is_running() {
                        return Next::Idle;
                    }
                }
                Phase::Opened { claimed, cut: None } => {
                    let names: Vec<_> = claimed.into_iter().map(|note| note.name).collect();
                    self.read.extend(names.iter().cloned());
                    self.phase = Phase::Stepping {
                        step: 1,
                        steered: 0,
                        cut: None,
                    };
                    return Next::Step {
                        at: (self.turn, 1),
                        read: names,
                    };
                }
                other => {
                    self.phase = other;
                    return Next::Nothing;
                }
            }
        }
    }

    fn abort(&mut self, cut: Cut, claimed: Vec<Note>) {
        if cut.discard {
            self.discarded
                .extend(claimed.into_iter().map(|note| note.name));
        } else {
            for note in claimed.into_iter().rev() {
                self.list(note.target).push_front(note);
            }
        }
        self.phase = Phase::Idle;
        let waiting = self.waiting();
        if cut.latched.iter().any(|name| waiting.contains(name)) {
            self.open();
        }
    }

    /// The step that runs ends.
    pub fn finish(&mut self, outcome: Outcome) -> Next {
        let Phase::Stepping {
            step,
            mut steered,
            cut,
        } = std::mem::take(&mut self.phase)
        else {
            return Next::Nothing;
        };
        if let Some(cut) = cut {
            self.abort(cut, Vec::new());
        } else {
            let more = match outcome {
                Outcome::Continue => true,
                // Done: what has arrived is read, within two budgets; beyond them by the next turn.
                Outcome::Completed | Outcome::MaxTokens => {
                    let asked = self.next_step.iter().any(|note| !note.passive);
                    steered += u64::from(asked && !self.next_turn.is_empty());
                    asked && steered <= MAX_STEERED && step < MAX_STEPS
                }
                Outcome::Refusal | Outcome::Error | Outcome::Panic => return Next::Idle,
            };
            let limited = more && step >= MAX_STEPS;
            if more && !limited {
                let claimed: Vec<_> = self.next_step.drain(..).collect();
                self.stopped &= !claimed.iter().any(|note| note.user);
                for note in claimed.iter().filter(|note| note.wake) {
                    self.generation = self.generation.min(note.generation);
                }
                let names: Vec<_> = claimed.into_iter().map(|note| note.name).collect();
                self.read.extend(names.iter().cloned());
                let step = step + 1;
                self.phase = Phase::Stepping {
                    step,
                    steered,
                    cut: None,
                };
                return Next::Step {
                    at: (self.turn, step),
                    read: names,
                };
            }
            // Who asked for a turn has it, also after the limit of another one. After work that was done
            // the rest is read as well; but a chain that is too long opens no turn.
            let mut lists = self.next_step.iter().chain(&self.next_turn);
            if lists.any(|n| n.wake || !limited && !n.passive && n.generation <= MAX_CHAIN) {
                self.open();
            }
        }
        match self.settle() {
            Next::Nothing => Next::Idle,
            next => next,
        }
    }
}
