//! One word for one thing: what models are shown says `task` and never another name for it.

use std::path::Path;

/// Names that other systems, and the verbs inside this one, have for what models know by another word.
const FOREIGN: [&str; 6] = [
    "job",
    "jobs",
    "followup",
    "follow-up",
    "enqueue",
    "activation",
];

fn files(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

#[test]
fn s318_models_are_shown_one_word_for_one_thing() {
    let mut found = Vec::new();
    files(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas"),
        &mut found,
    );
    assert!(found.len() > 30, "{} files", found.len());
    let mut tasks = 0;
    for path in found {
        let text = std::fs::read_to_string(&path)
            .expect("a text")
            .to_lowercase();
        let is_in_word = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        for word in text.split(|c| !is_in_word(c)) {
            assert!(!FOREIGN.contains(&word), "{}: {word}", path.display());
            tasks += usize::from(word == "task");
        }
    }
    assert!(tasks > 20, "{tasks}");
}
