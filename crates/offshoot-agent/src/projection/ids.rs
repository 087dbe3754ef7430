//! The ids of all messages of a session, for as long as it lives.

use std::collections::HashSet;

use foldhash::fast::RandomState;

use crate::MessageId;

/// Asked and grown with each message. An id that was made here is kept as the number that it is, in a sixth
/// of the memory of its text.
#[derive(Clone, Debug, Default)]
pub(super) struct MessageIds {
    made: HashSet<u128, RandomState>,
    /// Those that somebody else made. Mostly there are none.
    #[allow(
        clippy::box_collection,
        reason = "a word of every agent, where a set is several"
    )]
    others: Option<Box<HashSet<MessageId, RandomState>>>,
}

impl MessageIds {
    pub(super) fn insert(&mut self, id: &MessageId) {
        match offshoot_core::fresh_id_number(id.as_str()) {
            Some(number) => drop(self.made.insert(number)),
            None => drop(self.others.get_or_insert_default().insert(id.clone())),
        }
    }

    pub(super) fn contains(&self, id: &MessageId) -> bool {
        match offshoot_core::fresh_id_number(id.as_str()) {
            Some(number) => self.made.contains(&number),
            None => self.others.as_ref().is_some_and(|ids| ids.contains(id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_either_kind_are_told_apart() {
        let mut ids = MessageIds::default();
        let fresh: MessageId = MessageId::fresh();
        let shouted: MessageId = fresh.as_str().to_uppercase().parse().expect("an id");
        let own: MessageId = "m1".parse().expect("an id");
        for id in [&fresh, &own] {
            assert!(!ids.contains(id));
            ids.insert(id);
            assert!(ids.contains(id));
        }
        assert!(!ids.contains(&shouted), "another text is another id");
        ids.insert(&shouted);
        assert!(ids.contains(&shouted) && ids.contains(&fresh));
        assert!(!ids.contains(&MessageId::fresh()));
    }
}
