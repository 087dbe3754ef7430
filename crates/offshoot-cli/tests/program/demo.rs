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
    assert!(answer.contains("files: 7, folders: 2, below"), "{answer}");
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
    assert!(answer.contains("files: 0, folders: 1, below"), "{answer}");
    assert!(answer.contains("(no files right here)"), "{answer}");
}
