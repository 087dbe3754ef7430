//! Measures the cold resume of a 100 MB log of tasks and runs that are all over, against reading the file.
//! `cargo bench -p offshoot --bench resume` prints it; nothing is gated here.

#![allow(clippy::print_stdout, reason = "a bench prints what it measured")]

#[path = "../tests/support/long_life.rs"]
mod support;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use support::{lived, peak_kib, runtime};

const SIZE: u64 = 100_000_000;
const ROUNDS: usize = 7;

/// Resumes once, in a process of its own, and says how long it took and the memory before and at most.
async fn resume(folder: &Path, id: &str) {
    let runtime = runtime(folder);
    let id = id.parse().expect("an id");
    let before = peak_kib();
    let begun = Instant::now();
    let root = runtime.resume_root(&id).expect("the session");
    let took = begun.elapsed();
    println!("{} {} {before}", took.as_micros(), peak_kib());
    runtime.close(&root).await;
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, folder, id] = arguments.as_slice()
        && word == "resume-once"
    {
        return runtime.block_on(resume(Path::new(folder), id));
    }
    let this = std::env::current_exe().expect("this program");
    let folder = tempfile::tempdir().expect("a folder");
    let (id, count) = runtime.block_on(lived(folder.path(), SIZE));
    let path = folder.path().join("store").join(format!("{id}.jsonl"));
    let (mut ours, mut peaks, mut base, mut raw) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        let mut child = Command::new(&this);
        child.arg("resume-once").arg(folder.path()).arg(id.as_str());
        let output = child.output().expect("a process");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut figures = text
            .split_whitespace()
            .filter_map(|n| n.parse::<u64>().ok());
        ours.extend(figures.next());
        peaks.extend(figures.next());
        base.extend(figures.next());
        let begun = Instant::now();
        let mut file = File::open(&path).expect("the log");
        let mut chunk = vec![0; 64 * 1024];
        while file.read(&mut chunk).expect("a read") > 0 {}
        raw.push(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    println!(
        "resume of a 100 MB log of {count} tasks and runs: {} ms, read(2) of the file: {} ms; \
         most memory {} KiB, before it {} KiB",
        median(ours) / 1000,
        median(raw) / 1000,
        median(peaks),
        median(base)
    );
}
