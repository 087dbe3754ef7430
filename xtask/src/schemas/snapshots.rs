//! Generated files against a folder: written, or compared.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use similar::TextDiff;

/// Everything that the folder holds when it is up to date, by path inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Snapshots {
    files: BTreeMap<PathBuf, String>,
}

impl Snapshots {
    /// The files of the tools of each variant and of the prompt sections.
    pub(super) fn new<'a>(
        tools: impl IntoIterator<Item = (&'a str, Vec<(String, Value)>)>,
        sections: Vec<(String, String)>,
    ) -> anyhow::Result<Self> {
        let mut files = BTreeMap::new();
        let mut add = |path: PathBuf, text: String| {
            let shown = path.display().to_string();
            ensure!(files.insert(path, text).is_none(), "two snapshots {shown}");
            Ok(())
        };
        for (variant, tools) in tools {
            for (name, schema) in tools {
                let text = serde_json::to_string_pretty(&schema)? + "\n";
                add(Path::new(variant).join(format!("{name}.json")), text)?;
            }
        }
        for (name, text) in sections {
            let text = format!("{}\n", text.trim_end());
            add(Path::new("prompt").join(format!("{name}.md")), text)?;
        }
        Ok(Self { files })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Makes `folder` hold these files and no others.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        for difference in self.differences(folder)? {
            let path = folder.join(&difference.path);
            let done = match self.files.get(&difference.path) {
                Some(text) => path
                    .parent()
                    .map_or(Ok(()), fs::create_dir_all)
                    .and_then(|()| fs::write(&path, text)),
                None => fs::remove_file(&path),
            };
            done.with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    /// The files of `folder` that differ, are missing or are there without reason, in order.
    pub(super) fn differences(&self, folder: &Path) -> anyhow::Result<Vec<Difference>> {
        let mut committed = BTreeMap::new();
        read(folder, Path::new(""), &mut committed)
            .with_context(|| format!("reading {}", folder.display()))?;
        let mut paths: Vec<&PathBuf> = self.files.keys().chain(committed.keys()).collect();
        paths.sort();
        paths.dedup();
        let differences = paths.into_iter().filter_map(|path| {
            let (old, new) = (committed.get(path), self.files.get(path));
            (old != new).then(|| Difference {
                path: path.clone(),
                old: old.cloned(),
                new: new.cloned(),
            })
        });
        Ok(differences.collect())
    }
}

/// Reads the snapshots below `folder`; one that does not exist has none. Other files are left alone.
fn read(
    folder: &Path,
    inside: &Path,
    files: &mut BTreeMap<PathBuf, String>,
) -> std::io::Result<()> {
    let entries = match fs::read_dir(folder.join(inside)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let path = inside.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            read(folder, &path, files)?;
        } else if path.extension().is_some_and(|e| e == "json" || e == "md") {
            files.insert(path.clone(), fs::read_to_string(folder.join(path))?);
        }
    }
    Ok(())
}

/// One snapshot that is not what it should be. It displays as a unified diff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    path: PathBuf,
    old: Option<String>,
    new: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |text: &Option<String>, name: &str| match text {
            Some(_) => format!("{}/{} ({name})", super::FOLDER, self.path.display()),
            None => "/dev/null".to_owned(),
        };
        let old = self.old.as_deref().unwrap_or_default();
        let new = self.new.as_deref().unwrap_or_default();
        let diff = TextDiff::from_lines(old, new);
        let header = (side(&self.old, "committed"), side(&self.new, "code"));
        write!(f, "{}", diff.unified_diff().header(&header.0, &header.1))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshots(description: &str) -> Snapshots {
        let schema = json!({"name": "bash", "description": description, "a": 1});
        let tools = [("mcp", vec![("bash".to_owned(), schema)])];
        let sections = vec![("bash".to_owned(), "Run commands.\n\n".to_owned())];
        Snapshots::new(tools, sections).expect("snapshots")
    }

    fn shown(snapshots: &Snapshots, folder: &Path) -> String {
        let differences = snapshots.differences(folder).expect("differences");
        differences.iter().map(Difference::to_string).collect()
    }

    #[test]
    fn what_was_written_does_not_differ() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("new");
        snapshots("Runs.").write(&folder).expect("written");
        assert_eq!(shown(&snapshots("Runs."), &folder), "");
        let schema = fs::read_to_string(folder.join("mcp/bash.json")).expect("a schema");
        let expected = "{\n  \"name\": \"bash\",\n  \"description\": \"Runs.\",\n  \"a\": 1\n}\n";
        assert_eq!(schema, expected);
        let section = fs::read_to_string(folder.join("prompt/bash.md")).expect("a section");
        assert_eq!(section, "Run commands.\n");
    }

    #[test]
    fn a_changed_description_is_shown_as_a_diff() {
        let folder = tempfile::tempdir().expect("a folder");
        snapshots("Runs.").write(folder.path()).expect("written");
        let expected = "\
--- tests/schemas/mcp/bash.json (committed)
+++ tests/schemas/mcp/bash.json (code)
@@ -1,5 +1,5 @@
 {
   \"name\": \"bash\",
-  \"description\": \"Runs.\",
+  \"description\": \"Runs it.\",
   \"a\": 1
 }
";
        assert_eq!(shown(&snapshots("Runs it."), folder.path()), expected);
        snapshots("Runs it.").write(folder.path()).expect("written");
        assert_eq!(shown(&snapshots("Runs it."), folder.path()), "");
    }

    #[test]
    fn missing_and_stale_files_are_shown_and_mended() {
        let folder = tempfile::tempdir().expect("a folder");
        snapshots("Runs.").write(folder.path()).expect("written");
        fs::remove_file(folder.path().join("prompt/bash.md")).expect("removed");
        fs::write(folder.path().join("mcp/old.json"), "{}\n").expect("added");
        fs::write(folder.path().join("notes.txt"), "kept").expect("added");
        let expected = "\
--- tests/schemas/mcp/old.json (committed)
+++ /dev/null
@@ -1 +0,0 @@
-{}
--- /dev/null
+++ tests/schemas/prompt/bash.md (code)
@@ -0,0 +1 @@
+Run commands.
";
        assert_eq!(shown(&snapshots("Runs."), folder.path()), expected);
        snapshots("Runs.").write(folder.path()).expect("written");
        assert_eq!(shown(&snapshots("Runs."), folder.path()), "");
        assert!(folder.path().join("notes.txt").exists());
    }

    #[test]
    fn two_snapshots_of_one_name_are_an_error() {
        let sections = vec![
            ("a".to_owned(), String::new()),
            ("a".to_owned(), String::new()),
        ];
        let error = Snapshots::new([], sections).expect_err("two");
        assert_eq!(error.to_string(), "two snapshots prompt/a.md");
    }
}
