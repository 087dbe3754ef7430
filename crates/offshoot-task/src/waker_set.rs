//! The wakers of those who wait for one event. The first lives in place: most events have one.

use std::task::{Context, Waker};

use crate::slab::{Key, Slab};

/// Where a waker is kept. Valid until it is removed or the set is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakerKey {
    First,
    Rest(Key),
}

#[derive(Debug, Default)]
pub(crate) struct WakerSet {
    first: Option<Waker>,
    rest: Option<Box<Slab<Waker>>>,
}

impl WakerSet {
    pub(crate) fn insert(&mut self, cx: &Context<'_>) -> WakerKey {
        let waker = cx.waker().clone();
        if self.first.is_none() {
            self.first = Some(waker);
            return WakerKey::First;
        }
        WakerKey::Rest(self.rest.get_or_insert_default().insert(waker))
    }

    /// Replaces a kept waker when `cx` has another one; returns the old one, to be dropped unlocked.
    pub(crate) fn refresh(&mut self, key: WakerKey, cx: &Context<'_>) -> Option<Waker> {
        let kept = match key {
            WakerKey::First => self.first.as_mut()?,
            WakerKey::Rest(key) => self.rest.as_mut()?.get_mut(key)?,
        };
        if kept.will_wake(cx.waker()) {
            return None;
        }
        Some(std::mem::replace(kept, cx.waker().clone()))
    }

    /// Forgets a waker and returns it, to be dropped unlocked.
    pub(crate) fn remove(&mut self, key: WakerKey) -> Option<Waker> {
        match key {
            WakerKey::First => self.first.take(),
            WakerKey::Rest(key) => self.rest.as_mut()?.remove(key),
        }
    }

    /// Empties the set. All its keys go stale.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    pub(crate) fn wake_all(self) {
        if let Some(waker) = self.first {
            waker.wake();
        }
        if let Some(rest) = self.rest {
            rest.into_values().for_each(Waker::wake);
        }
    }
}
