//! State that crates above keep of their own events, so that nobody has to keep the events.

use std::any::{Any, type_name};
use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use offshoot_core::text;

use super::Projection;
use crate::{EventRule, Extension};

/// What a crate above makes of the events of one session, event by event.
///
/// A session lives long: what is kept of its past should be as large as what is still true of it, not as
/// its log. A fold keeps that, and the [`Projection`] forgets the events that it [claims](Self::CLAIMS).
/// An [`EventRule`](crate::EventRule) gives it to the sessions of a host; [`Projection::fold`] reads it, with
/// or without a host.
///
/// # Implementing
///
/// The same events in the same order must lead to the same state: a live agent and its resumption are to
/// agree. A panic is caught and logged, and leaves the fold as it is then.
///
/// ```
/// use std::sync::Arc;
///
/// use offshoot_agent::{AgentId, Event, EventCheck, EventFold, EventRule, Extension, Fold, Projection};
/// use offshoot_agent::StoredEvent;
///
/// /// How many builds there were, and whether one runs.
/// #[derive(Clone, Debug, Default)]
/// struct Builds {
///     count: u64,
///     running: bool,
/// }
///
/// impl EventFold for Builds {
///     const CLAIMS: &'static [&'static str] = &["build/started", "build/ended"];
///
///     fn apply(&mut self, event: &Extension) {
///         match event.kind.as_str() {
///             "build/started" => (self.count, self.running) = (self.count + 1, true),
///             "build/ended" => self.running = false,
///             _ => {}
///         }
///     }
/// }
///
/// /// For `AgentHost::event_rules`.
/// struct BuildRule;
///
/// impl EventRule for BuildRule {
///     fn check(&self, _: &AgentId) -> EventCheck {
///         Box::new(|_| Ok(()))
///     }
///
///     fn fold(&self) -> Option<Fold> {
///         Some(Fold::of::<Builds>())
///     }
/// }
///
/// let started = StoredEvent {
///     seq: 0,
///     time: offshoot_core::Timestamp::from_millis(0),
///     event: Event::Extension(Arc::new(Extension::new("build/started"))),
/// };
/// let projection = Projection::of([&started]);
/// let builds = projection.fold::<Builds>();
/// assert!(builds.running && builds.count == 1);
/// ```
pub trait EventFold: Any + Clone + Debug + Default + Send + Sync {
    /// The types of events that nobody needs once this has seen them.
    const CLAIMS: &'static [&'static str];

    /// Takes one event of a crate above, of whatever type; never one that is ignorable.
    fn apply(&mut self, event: &Extension);

    /// A step begins. Only of the last one is it sure to be told.
    fn step_begins(&mut self) {}

    /// The step ends, whoever ends it: what closes the step of a dead process is told like any end.
    fn step_ends(&mut self) {}

    /// A residency begins. Only of the last one is it sure to be told.
    fn residency_begins(&mut self) {}
}

/// An [`EventFold`] that has seen nothing yet.
#[derive(Debug)]
pub struct Fold(Box<dyn Erased>);

impl Fold {
    /// A fold of this kind.
    #[must_use]
    pub fn of<F: EventFold>() -> Self {
        Self(Box::new(F::default()))
    }
}

/// What parts the events.
#[derive(Clone, Copy, Debug)]
pub(super) enum Boundary {
    Residency,
    StepBegin,
    StepEnd,
}

/// An [`EventFold`] of whatever kind.
trait Erased: Debug + Send + Sync {
    fn claims(&self, kind: &str) -> bool;
    fn apply(&mut self, event: &Extension);
    fn cross(&mut self, boundary: Boundary);
    fn copy(&self) -> Box<dyn Erased>;
    fn as_any(&self) -> &dyn Any;
}

impl<F: EventFold> Erased for F {
    fn claims(&self, kind: &str) -> bool {
        F::CLAIMS.contains(&kind)
    }

    fn apply(&mut self, event: &Extension) {
        contained::<F>(|| EventFold::apply(self, event));
    }

    fn cross(&mut self, boundary: Boundary) {
        contained::<F>(|| match boundary {
            Boundary::Residency => self.residency_begins(),
            Boundary::StepBegin => self.step_begins(),
            Boundary::StepEnd => self.step_ends(),
        });
    }

    fn copy(&self) -> Box<dyn Erased> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Who folds holds the lock of a session: it goes on, whatever a fold does.
fn contained<F>(call: impl FnOnce()) {
    if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(call)) {
        let message = text::panic_message(&*panic);
        tracing::error!(
            message,
            fold = type_name::<F>(),
            "a fold of events panicked"
        );
    }
}

/// The rules of a host, shared by its sessions.
#[derive(Clone)]
pub(super) struct Rules(Arc<[Arc<dyn EventRule>]>);

impl Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rules", self.0.len())
    }
}

/// What there is of the events of crates above in one session. Made with the first of them: most agents never
/// have any.
#[derive(Debug, Default)]
pub(super) struct Above {
    /// What no fold claims, with the `seq` of each.
    pub(super) kept: Vec<(u64, Arc<Extension>)>,
    folds: Box<[Box<dyn Erased>]>,
}

impl Clone for Above {
    fn clone(&self) -> Self {
        Self {
            kept: self.kept.clone(),
            folds: self.folds.iter().map(|fold| fold.copy()).collect(),
        }
    }
}

impl Above {
    fn with(folds: impl Iterator<Item = Fold>) -> Self {
        Self {
            kept: Vec::new(),
            folds: folds.map(|fold| fold.0).collect(),
        }
    }

    /// Folds it, and keeps what no fold claims.
    fn apply(&mut self, seq: u64, event: &Arc<Extension>) {
        let mut claimed = false;
        for fold in &mut self.folds {
            fold.apply(event);
            claimed |= fold.claims(&event.kind);
        }
        if !claimed {
            self.kept.push((seq, Arc::clone(event)));
        }
    }

    fn cross(&mut self, boundary: Boundary) {
        self.folds.iter_mut().for_each(|fold| fold.cross(boundary));
    }

    fn get<F: EventFold>(&self) -> Option<&F> {
        let mut found = self.folds.iter().map(|fold| (**fold).as_any());
        found.find_map(|fold| fold.downcast_ref())
    }
}

impl Projection {
    /// Nothing yet, under the rules of a host.
    pub(crate) fn under(rules: Arc<[Arc<dyn EventRule>]>) -> Self {
        Self {
            rules: Some(Rules(rules)).filter(|rules| !rules.0.is_empty()),
            ..Self::default()
        }
    }

    pub(super) fn apply_above(&mut self, seq: u64, event: &Arc<Extension>) {
        if self.above.is_none() {
            let rules = self.rules.iter().flat_map(|rules| rules.0.iter());
            let mut above = Above::with(rules.filter_map(|rule| rule.fold()));
            let boundaries = self.boundaries().into_iter();
            boundaries.for_each(|(_, boundary)| above.cross(boundary));
            self.above = Some(Box::new(above));
        }
        if let Some(above) = &mut self.above {
            above.apply(seq, event);
        }
    }

    pub(super) fn cross(&mut self, boundary: Boundary) {
        if let Some(above) = &mut self.above {
            above.cross(boundary);
        }
    }

    pub(super) fn kept(&self) -> &[(u64, Arc<Extension>)] {
        self.above.as_ref().map_or(&[], |above| &above.kept)
    }

    /// What a crate above makes of its events. Borrowed where the host of the session has a rule with this
    /// fold; else made here from the events that are [kept](Self::extensions), which takes as long as there
    /// are many.
    #[must_use]
    pub fn fold<F: EventFold>(&self) -> Cow<'_, F> {
        match self.above.as_ref().and_then(|above| above.get()) {
            Some(fold) => Cow::Borrowed(fold),
            None => Cow::Owned(self.replay()),
        }
    }

    /// The last of each kind, in their order; of those that there were not, as if they were before all.
    fn boundaries(&self) -> [(u64, Boundary); 3] {
        let mut boundaries = [
            (self.activation_at, Boundary::Residency),
            (self.step_at, Boundary::StepBegin),
            (self.step_end_at, Boundary::StepEnd),
        ];
        boundaries.sort_by_key(|(at, _)| *at);
        boundaries
    }

    fn replay<F: EventFold>(&self) -> F {
        let mut above = Above::with([Fold::of::<F>()].into_iter());
        let mut boundaries = self.boundaries().into_iter().peekable();
        for (at, event) in self.kept() {
            while let Some((_, boundary)) = boundaries.next_if(|(reached, _)| reached <= at) {
                above.cross(boundary);
            }
            above.apply(*at, event);
        }
        boundaries.for_each(|(_, boundary)| above.cross(boundary));
        above.get().cloned().unwrap_or_default()
    }
}
