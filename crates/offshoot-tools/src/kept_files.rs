//! The files with the whole outputs of foreground commands: their results name them, so they stay for a
//! while after the command.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use offshoot_core::{Scope, ScopeId};
use offshoot_task::Overflow;

/// How many files of one owner are kept: the last ones.
const KEPT: usize = 20;

/// Keeps the last files of each owner until the owner closes.
#[derive(Default)]
pub(crate) struct KeptFiles(Arc<Mutex<Files>>);

type Files = HashMap<ScopeId, VecDeque<Overflow>>;

fn lock(files: &Mutex<Files>) -> MutexGuard<'_, Files> {
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

impl KeptFiles {
    /// Keeps a file for `owner`; an older one may go. One of an owner that closes is not kept.
    pub(crate) fn keep(&self, owner: &Scope, file: Overflow) {
        let id = owner.id();
        let known = lock(&self.0).contains_key(&id);
        if !known {
            let files = Arc::downgrade(&self.0);
            let forget = move || async move {
                // A file is removed by its drop, which is not for under a lock.
                let gone = files.upgrade().and_then(|files| lock(&files).remove(&id));
                drop(gone);
                Ok(())
            };
            if owner.on_close("files of commands", forget).is_err() {
                return;
            }
        }
        let gone = {
            let mut files = lock(&self.0);
            let files = files.entry(id).or_default();
            files.push_back(file);
            (files.len() > KEPT).then(|| files.pop_front())
        };
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offshoot_task::OutputBuffer;

    fn file(name: usize, mark: &Arc<()>) -> Overflow {
        let buffer = OutputBuffer::new(1);
        let path = std::path::PathBuf::from(name.to_string());
        assert!(buffer.overflow_to(&path, Arc::clone(mark)));
        buffer.keep_overflow().unwrap()
    }

    #[tokio::test]
    async fn the_last_files_of_an_owner_are_kept_until_it_closes() {
        let (kept, mark) = (KeptFiles::default(), Arc::new(()));
        let (one, other) = (Scope::root("one"), Scope::root("other"));
        kept.keep(&other, file(0, &mark));
        for name in 0..100 {
            kept.keep(&one, file(name, &mark));
        }
        assert_eq!(Arc::strong_count(&mark), 1 + 1 + KEPT);
        one.close().await;
        assert_eq!(Arc::strong_count(&mark), 1 + 1);
        kept.keep(&one, file(0, &mark));
        assert_eq!(Arc::strong_count(&mark), 1 + 1, "it has closed");
        drop(kept);
        assert_eq!(Arc::strong_count(&mark), 1);
        other.close().await;
    }
}
