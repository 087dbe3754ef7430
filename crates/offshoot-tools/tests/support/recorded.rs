//! Everything that crates above recorded in a session, whoever else keeps it.

use offshoot_agent::{AgentId, EventCheck, EventFold, EventRule, Extension, Fold};

#[derive(Clone, Debug, Default)]
pub struct Recorded(pub Vec<Extension>);

impl EventFold for Recorded {
    const CLAIMS: &'static [&'static str] = &[];

    fn apply(&mut self, event: &Extension) {
        self.0.push(event.clone());
    }
}

/// Gives it to the sessions of a host.
pub struct Recording;

impl EventRule for Recording {
    fn check(&self, _: &AgentId) -> EventCheck {
        Box::new(|_| Ok(()))
    }

    fn fold(&self) -> Option<Fold> {
        Some(Fold::of::<Recorded>())
    }
}
