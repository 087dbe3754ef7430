//! The folder of large outputs: one that cannot be used is named once, and never touched.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use crate::support::{Place, Stream};

/// Where the program keeps large outputs when temporary files are in `temp`.
fn folder(temp: &Path) -> PathBuf {
    let user = std::fs::metadata(temp).expect("a folder").uid();
    temp.join(format!("offshoot-{user}"))
}

/// Folders that are refused, each made at a path, and what is said of it.
type Refused = (fn(&Path), &'static str);

const REFUSED: [Refused; 4] = [
    (
        |path| {
            std::fs::create_dir(path).expect("a folder");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(path, mode).expect("a mode");
        },
        "others may enter it (mode 0755, expected 0700)",
    ),
    (
        |path| {
            let target = path.with_extension("target");
            std::fs::create_dir(&target).expect("a folder");
            symlink(target, path).expect("a link");
        },
        "it is a symbolic link",
    ),
    (
        |path| std::fs::write(path, "").expect("a file"),
        "it is not a folder",
    ),
    (
        |path| symlink(path.with_extension("nowhere"), path).expect("a link"),
        "it is a symbolic link",
    ),
];

/// A command with more output than a result has room for.
fn large(text: &str) -> Value {
    json!({"prompt": "hi", "agents": {"root": [
        {"calls": [{"name": "bash", "args": {"command": "seq 1 20000"}}]},
        {"text": text}]}})
}

fn is_told(output: &Output, path: &Path, why: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let path = path.display();
    let begin = format!("offshoot: large outputs are not kept in files: {path}: {why}");
    let lines: Vec<_> = stderr
        .lines()
        .filter(|line| line.starts_with(&begin))
        .collect();
    assert_eq!(lines.len(), 1, "{why}: {stderr}");
    assert!(lines[0].contains("what a result leaves out is lost"));
    assert!(lines[0].contains("TMPDIR"));
}

#[test]
fn a_folder_that_is_refused_is_named_once_and_stays() {
    for (make, why) in REFUSED {
        let place = Place::new();
        let temp = place.path("temp");
        std::fs::create_dir(&temp).expect("a folder");
        let refused = folder(&temp);
        make(&refused);
        let script = place.script(large("${last_result}"));
        let before = std::fs::symlink_metadata(&refused).expect("it is there");
        for args in [
            &["run", "--json", "--script", &script][..],
            &["mcp"],
            &["acp", "--script", &script],
        ] {
            let mut command = place.offshoot(args);
            let output = command.env("TMPDIR", &temp).output().expect("the program");
            assert!(output.status.success(), "{args:?} {output:?}");
            is_told(&output, &refused, why);
            let after = std::fs::symlink_metadata(&refused).expect("it stays");
            assert_eq!((after.ino(), after.mode()), (before.ino(), before.mode()));
            if args[0] == "run" {
                let stream = Stream::of(&output);
                let text = stream.result["text"].as_str().expect("a text");
                assert!(text.contains("20000\n"), "{text}");
                assert!(!text.contains("offshoot-spill"), "{text}");
            }
        }
    }
}

#[test]
fn a_folder_for_temporary_files_that_is_not_there_or_is_shut_is_named_too() {
    let place = Place::new();
    let file = PathBuf::from(place.file("file", ""));
    for (temp, why) in [
        (file.clone(), "it cannot be made"),
        (file.join("below"), "it cannot be made"),
    ] {
        let user = std::fs::metadata(&file).expect("a file").uid();
        let mut command = place.offshoot(&["mcp"]);
        let output = command.env("TMPDIR", &temp).output().expect("the program");
        assert!(output.status.success(), "{output:?}");
        is_told(&output, &temp.join(format!("offshoot-{user}")), why);
    }
}

#[test]
fn a_folder_of_the_users_own_is_used_without_a_word_and_goes_when_it_is_empty() {
    let place = Place::new();
    let temp = place.path("temp");
    std::fs::create_dir(&temp).expect("a folder");
    let script = place.script(large("${last_result}"));
    for temp in [temp.clone(), place.path("missing")] {
        let mut command = place.offshoot(&["run", "--json", "--script", &script]);
        let output = command.env("TMPDIR", &temp).output().expect("the program");
        let stream = Stream::of(&output);
        assert_eq!((stream.code, &*stream.stderr), (Some(0), ""));
        let text = stream.result["text"].as_str().expect("a text");
        assert!(text.contains("offshoot-spill"), "{text}");
        assert_eq!(std::fs::read_dir(&temp).expect("a folder").count(), 0);
    }
}
