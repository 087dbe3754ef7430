//! `CONFORMANCE.md` is true as far as a program can tell: ids are unique, every row says something,
//! and every test that a row names is there.

use std::collections::BTreeSet;
use std::path::Path;

const TABLE: &str = include_str!("../CONFORMANCE.md");

/// The rows of requirements: (id, last column).
fn rows() -> Vec<(&'static str, &'static str)> {
    let lines = TABLE.lines().filter(|line| line.starts_with("| "));
    let rows = lines.filter_map(|line| {
        let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
        let id = cells.next()?;
        let is_id = id.len() > 1
            && id.starts_with(['T', 'A', 'S', 'B'])
            && id[1..].bytes().all(|byte| byte.is_ascii_digit());
        is_id.then(|| (id, cells.last().unwrap_or_default()))
    });
    rows.collect()
}

fn collect(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(&path, names);
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let source = std::fs::read_to_string(&path).expect("a source file");
            let functions = source.split("fn ").skip(1);
            names.extend(functions.map(first_word));
            // The scenarios are named in a table, NAME = "file".
            names.extend(
                source
                    .lines()
                    .filter_map(|line| Some(first_word(line.split_once(" = \"")?.0))),
            );
        }
    }
}

fn first_word(text: &str) -> String {
    let text = text.trim_start();
    text.chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect()
}

#[test]
fn every_requirement_has_one_row_that_says_something() {
    let rows = rows();
    assert!(rows.len() > 800, "{} rows", rows.len());
    let mut seen = BTreeSet::new();
    for (id, shown) in rows {
        assert!(seen.insert(id), "{id} has two rows");
        assert!(!shown.is_empty(), "{id} says nothing");
    }
}

#[test]
fn every_test_that_is_named_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    let mut names = BTreeSet::new();
    for folder in ["crates", "tests", "xtask"] {
        collect(&root.join(folder), &mut names);
    }
    let mut named = 0;
    for (id, shown) in rows() {
        for test in shown
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|word| word.contains("::"))
        {
            let name = test.rsplit("::").next().unwrap_or_default();
            assert!(
                names.contains(name),
                "{id} names {test}, which is not there"
            );
            named += 1;
        }
    }
    assert!(named > 400, "{named} tests are named");
}

/// The column of the table of counts that a row belongs to.
fn column(shown: &str) -> usize {
    let others = ["decision", "not here", "later", "open"];
    let other = others.iter().position(|word| shown.starts_with(word));
    other.map_or(1, |at| at + 2)
}

#[test]
fn the_counts_are_those_of_the_rows() {
    let mut all = [0; 6];
    for (part, letter) in [
        ("Tasks and their tools (T)", 'T'),
        ("Agents, inbox, turns and sessions (A)", 'A'),
        ("Subagents (S)", 'S'),
        ("Faults that users of other systems reported (B)", 'B'),
        ("all", ' '),
    ] {
        let mut counts = [0; 6];
        for (_, shown) in rows().iter().filter(|(id, _)| id.starts_with(letter)) {
            counts[0] += 1;
            counts[column(shown)] += 1;
        }
        if letter == ' ' {
            counts = all;
        }
        for (sum, count) in all.iter_mut().zip(counts) {
            *sum += count;
        }
        let row = counts.map(|count| count.to_string()).join(" | ");
        let row = format!("| {part} | {row} |");
        assert!(TABLE.contains(&row), "expected {row}");
    }
}
