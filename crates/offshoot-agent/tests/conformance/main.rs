//! The stores of this crate pass the kit, a third one does, and one that breaks a promise does not.

mod table;

use std::path::PathBuf;
use std::sync::Arc;

use offshoot_agent::store::conformance::{self, Medium, Passed};
use offshoot_agent::{AgentId, JsonlStore, MemoryStore, SessionStore, SyncPolicy};
use table::{Fault, Table};

struct InMemory(MemoryStore);

impl Medium for InMemory {
    fn store(&self) -> Arc<dyn SessionStore> {
        Arc::new(self.0.clone())
    }
}

struct Files {
    folder: tempfile::TempDir,
    sync: SyncPolicy,
}

impl Files {
    fn medium(sync: SyncPolicy) -> Box<dyn Medium> {
        let folder = tempfile::tempdir().expect("a folder");
        Box::new(Self { folder, sync })
    }

    fn path(&self, id: &AgentId) -> PathBuf {
        self.folder.path().join(format!("{id}.jsonl"))
    }

    fn edit(&self, id: &AgentId, edit: impl FnOnce(String) -> String) -> bool {
        let text = std::fs::read_to_string(self.path(id)).expect("a log");
        std::fs::write(self.path(id), edit(text)).expect("a log");
        true
    }
}

impl Medium for Files {
    fn store(&self) -> Arc<dyn SessionStore> {
        let store = JsonlStore::open_folder(self.folder.path()).expect("a store");
        Arc::new(store.sync(self.sync))
    }

    fn size(&self, id: &AgentId) -> Option<usize> {
        let data = std::fs::metadata(self.path(id)).expect("a log");
        usize::try_from(data.len()).ok()
    }

    fn tear(&self, id: &AgentId, size: usize) -> bool {
        let file = std::fs::File::options().write(true).open(self.path(id));
        file.and_then(|file| file.set_len(size as u64)).is_ok()
    }

    fn damage(&self, id: &AgentId, seq: u64) -> bool {
        self.edit(id, |text| {
            text.replacen(&format!("{{\"seq\":{seq},"), "{\"sq\":,", 1)
        })
    }

    fn make_newer(&self, id: &AgentId) -> bool {
        self.edit(id, |text| {
            text.replacen("\"version\":1", "\"version\":2", 1)
        })
    }

    fn plant(&self, id: &AgentId, event: &str) -> bool {
        self.edit(id, |text| text + event + "\n")
    }
}

#[test]
fn the_store_in_memory_passes() {
    let passed =
        conformance::run(|| Box::new(InMemory(MemoryStore::default()))).expect("it passes");
    let skipped = [
        "torn tail",
        "damage",
        "newer version",
        "unknown events",
        "refused appends",
        "refused takes",
    ];
    assert_eq!(passed.skipped, skipped);
}

#[test]
fn the_store_in_files_passes_with_every_policy() {
    for sync in [
        SyncPolicy::Never,
        SyncPolicy::Close,
        SyncPolicy::Turn,
        SyncPolicy::Accepted,
        SyncPolicy::Append,
    ] {
        let passed = conformance::run(|| Files::medium(sync)).expect("it passes");
        // No file system fails on request; a full disk is tested with the built program.
        assert_eq!(
            passed.skipped,
            ["refused appends", "refused takes"],
            "{sync:?}"
        );
    }
}

#[test]
fn a_third_store_passes_every_check() {
    let Passed { skipped, passed } =
        conformance::run(|| Box::new(Table::new(None))).expect("it passes");
    assert_eq!(skipped, [""; 0]);
    assert_eq!(passed.len(), 24);
}

/// Each broken promise is found, by the check that is named like it.
#[test]
fn a_store_that_breaks_a_promise_fails() {
    let broken = [
        (Fault::LosesTheLastEvent, "read back"),
        (Fault::ReadsInReverse, "read back"),
        (Fault::MakesWhatIsAskedFor, "unknown session"),
        (Fault::ReplacesSessions, "one session an id"),
        (Fault::IgnoresTheExpectedSequence, "expected sequence"),
        (Fault::ConflictsForEver, "expected sequence"),
        (Fault::RepeatsOnReopening, "reopen"),
        (Fault::HasManyWriters, "one writer"),
        (Fault::KeepsTheLock, "reopen"),
        (Fault::RacesForTheLock, "racing writers"),
        (Fault::MixesSessions, "writers of many sessions"),
        (Fault::AbandonKeepsTheLock, "abandon"),
        (Fault::ListsInAnyOrder, "listing"),
        (Fault::FirstOfAll, "first event"),
        (Fault::KeepsTheUnborn, "unborn fork"),
        (Fault::ReadsTheUnborn, "unborn fork"),
        (Fault::CutsLargeEvents, "large events"),
        (Fault::BreaksLines, "any text"),
        (Fault::DropsIgnorable, "ignorable events"),
        (Fault::CountsWhatItShows, "ignorable events"),
        (Fault::FlushPanics, "flush"),
        (Fault::RefusesTornTails, "torn tail"),
        (Fault::PassesOverDamage, "damage"),
        (Fault::ReadsAnyVersion, "newer version"),
        (Fault::TakesUnknownEvents, "unknown events"),
        (Fault::AppendsAPart, "refused appends"),
        (Fault::ShowsInReverse, "takes"),
        (Fault::ShowsOnlyTheLast, "takes"),
        (Fault::ShowsWhatConflicts, "takes"),
        (Fault::ForgetsWhatItTook, "takes"),
        (Fault::TakesAnywhere, "takes"),
        (Fault::ShowsUnderTheLock, "takes without a lock"),
        (Fault::ShowsWhatFails, "refused takes"),
        (Fault::TakesAPart, "refused takes"),
    ];
    for (fault, check) in broken {
        let failed = conformance::run(|| Box::new(Table::new(Some(fault))));
        let failed = failed.expect_err(&format!("{fault:?} is not found"));
        assert_eq!(failed.check, check, "{fault:?}: {failed}");
    }
}
