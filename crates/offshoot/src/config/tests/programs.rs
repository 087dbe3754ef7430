//! Programs that are subagents: what they can be started with, and whether they can be here.

use serde_json::json;

use super::*;

#[test]
fn a_provider_that_is_used_and_not_in_this_build_is_named() {
    let layers = ConfigLayers::new().toml("f.toml", CHILDREN).expect("TOML");
    for (provider, there) in [
        ("peer", cfg!(feature = "acp")),
        ("cli", cfg!(feature = "process")),
        ("fork", true),
    ] {
        let layers = layers
            .clone()
            .set(&format!("subagent.0.provider={provider}"));
        let shown = shown(layers.expect("an override").build_available());
        let expected = if there {
            "accepted".to_owned()
        } else {
            format!(
                "CONFIG_UNAVAILABLE_PROVIDER --set: subagent[0].provider: provider \"{provider}\" is not available in this build"
            )
        };
        assert_eq!(shown, expected);
    }
}

#[test]
fn an_overlong_argument_is_refused_where_it_stands() {
    let entry = |argument: &str| {
        let entry = json!([{ "name": "a", "command": "a", "args": ["b", argument] }]);
        ConfigLayers::new()
            .json("f.json", json!({ "process": entry }))
            .build()
    };
    assert!(entry(&"x".repeat(131_071)).is_ok());
    let error = entry(&"x".repeat(131_072)).expect_err("too long");
    assert_eq!(
        (error.code(), error.key()),
        ("CONFIG_VALUE", "process[0].args[1]")
    );
    assert!(
        error.to_string().contains("at most 131071 bytes"),
        "{error}"
    );
}

/// Layers with a process entry that runs in `cwd`, for a run in `folder`.
#[cfg(feature = "process")]
fn in_folder(cwd: &str, folder: Option<&std::path::Path>) -> ConfigLayers {
    let process = json!([{ "name": "p", "command": "cat", "cwd": cwd }]);
    let subagent = json!([{ "provider": "p", "background_mode": "one-shot" }]);
    let layers = ConfigLayers::new().json(
        "f.json",
        json!({ "process": process, "subagent": subagent }),
    );
    match folder {
        Some(folder) => layers.run_in(folder),
        None => layers,
    }
}

#[cfg(feature = "process")]
#[test]
fn a_folder_that_is_not_there_is_refused_for_a_run() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file"), "").expect("a file");
    std::fs::create_dir(folder.path().join("sub")).expect("a folder");
    let here = Some(folder.path());
    assert!(in_folder("sub", here).build_available().is_ok());
    for (cwd, why) in [
        ("gone", "No such file or directory"),
        ("file", "is no folder"),
    ] {
        let error = in_folder(cwd, here).build_available().expect_err(cwd);
        assert_eq!(
            (error.code(), error.key()),
            ("CONFIG_FOLDER", "process[0].cwd")
        );
        let line = error.to_string();
        assert!(
            line.contains(why) && line.contains("expected a folder"),
            "{line}"
        );
        // Nothing is run: the folder is not looked for.
        assert!(in_folder(cwd, here).build().is_ok());
    }
    // Where a relative one is, is not known; an absolute one is known everywhere.
    assert!(in_folder("gone", None).build_available().is_ok());
    assert!(
        in_folder("/no/such/folder", None)
            .build_available()
            .is_err()
    );
    // Nobody uses the entry.
    let unused = in_folder("gone", here).json("g.json", json!({ "subagent": [{}] }));
    assert!(unused.build_available().is_ok());
}
