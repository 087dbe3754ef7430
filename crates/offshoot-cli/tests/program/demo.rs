//! The demo, on a folder with everything that a folder may have in it.

use crate::support::Place;

#[test]
fn the_answer_has_what_the_three_children_found() {
    let place = Place::new();
    for name in [
        "plain",
        "two words",
        "line\nbreak",
        "-rf",
        "quote\"'$x",
        "\u{1b}[31m",
    ] {
        std::fs::write(place.path(name), name).expect("a file");
    }
    std::fs::create_dir(place.path("below")).expect("a folder");
    std::fs::write(place.path("below/large"), vec![7; 40_000]).expect("a file");
    let output = place.offshoot(&["demo"]).output().expect("the program");
    let answer = String::from_utf8(output.stdout).expect("text");
    let progress = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(0), "{progress}");
    assert!(answer.contains("files: 7, folders: 1, below"), "{answer}");
    assert!(answer.contains("KiB in all"), "{answer}");
    assert!(answer.contains("./below/large"), "{answer}");
    let newest = answer
        .split("which are newest:")
        .nth(1)
        .expect("the newest");
    assert!(
        newest
            .lines()
            .filter(|line| !line.trim().is_empty())
            .count()
            >= 3,
        "{answer}"
    );
    assert!(
        !answer.contains('\u{1b}') && !progress.contains('\u{1b}'),
        "{answer}{progress}"
    );
    // One of the children outlives its turn with a background task.
    assert!(progress.contains("which are newest: waiting"), "{progress}");
    assert_eq!(
        progress.matches("settled, completed").count(),
        3,
        "{progress}"
    );
}

#[test]
fn an_empty_folder_has_an_answer_too() {
    let place = Place::new();
    std::fs::create_dir(place.path("empty")).expect("a folder");
    let output = place
        .offshoot(&["demo", "--quiet", "--cwd", "empty"])
        .output()
        .expect("the program");
    let answer = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stderr, b"");
    assert!(answer.contains("files: 0, folders: 0, below"), "{answer}");
    assert!(answer.contains("(no files right here)"), "{answer}");
}

/// A folder of programs for `PATH`: those of the system, with these scripts instead or in place of
/// them nothing.
fn programs(place: &Place, instead: &[(&str, Option<&str>)]) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = place.path("programs");
    std::fs::create_dir(&folder).expect("a folder");
    for name in [
        "find", "timeout", "du", "tr", "head", "wc", "date", "cut", "sort", "ls", "grep", "sed",
        "sleep",
    ] {
        let at = folder.join(name);
        match instead.iter().find(|(other, _)| *other == name) {
            Some((_, Some(text))) => {
                std::fs::write(&at, format!("#!/bin/sh\n{text}\n")).expect("a program");
                let mode = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(&at, mode).expect("its mode");
            }
            Some((_, None)) => {}
            None => {
                let found = ["/usr/bin", "/bin"].map(|dir| std::path::Path::new(dir).join(name));
                let found = found.iter().find(|path| path.exists()).expect("a program");
                std::os::unix::fs::symlink(found, &at).expect("a link");
            }
        }
    }
    folder.display().to_string()
}

fn answer(place: &Place, path: &str) -> String {
    std::fs::create_dir(place.path("here")).expect("a folder");
    std::fs::write(place.path("here/file"), "text").expect("a file");
    let output = place
        .offshoot(&["demo", "--quiet", "--cwd", "here"])
        .env("PATH", path)
        .output()
        .expect("the program");
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_missing_program_is_named_and_nothing_is_said_of_time() {
    for missing in ["timeout", "du", "find", "ls"] {
        let place = Place::new();
        let path = programs(&place, &[(missing, None)]);
        let answer = answer(&place, &path);
        assert!(
            answer.contains(&format!("`{missing}` is not there")),
            "{answer}"
        );
        assert!(!answer.contains("4 seconds"), "{answer}");
    }
}

#[test]
fn folders_that_cannot_be_read_are_mentioned() {
    let place = Place::new();
    let denied = |program: &str| {
        format!("/usr/bin/env PATH=/usr/bin:/bin {program} \"$@\"\necho './x: denied' >&2\nexit 1")
    };
    let (find, du) = (denied("find"), denied("du"));
    let path = programs(&place, &[("find", Some(&find)), ("du", Some(&du))]);
    let answer = answer(&place, &path);
    let told = "(some folders could not be read)";
    assert!(
        answer.contains(&format!("files: 1, folders: 0 {told}, below")),
        "{answer}"
    );
    assert!(answer.contains(&format!("KiB in all {told}")), "{answer}");
}

#[test]
fn what_takes_too_long_is_said_to() {
    let place = Place::new();
    let slow = "exit 124";
    let path = programs(&place, &[("timeout", Some(slow))]);
    let answer = answer(&place, &path);
    assert!(
        answer.contains("or more: the count was cut short"),
        "{answer}"
    );
    assert!(
        answer.contains("more than could be measured in 4 seconds"),
        "{answer}"
    );
    assert!(!answer.contains("could not be read"), "{answer}");
}
