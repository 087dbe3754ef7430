//! A fresh folder that is a peer's home, working folder and place of temporary files; whatever a peer
//! starts carries it in its environment, and can be found by it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::peer::Command;

/// A peer's whole world. Removed, with whatever still runs in it, when it is dropped.
#[derive(Debug)]
pub struct Home {
    folder: tempfile::TempDir,
    path: Vec<PathBuf>,
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

impl Home {
    /// A fresh one.
    ///
    /// # Panics
    ///
    /// When no folder can be made.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("offshoot-peer-")
            .tempdir()
            .expect("a temporary folder");
        for name in ["work", "tmp"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        Self {
            folder,
            path: Vec::new(),
        }
    }

    /// Looks for programs in this folder first.
    #[must_use]
    pub fn with_programs(mut self, folder: impl Into<PathBuf>) -> Self {
        self.path.push(folder.into());
        self
    }

    /// The home folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The working folder of its peers.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.folder().join("work")
    }

    /// The environment of its peers: this and no more.
    #[must_use]
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let folders = self.path.iter().cloned();
        let path = std::env::join_paths(folders.chain(std::env::split_paths(&inherited)))
            .unwrap_or(inherited);
        let home = self.folder().as_os_str().to_owned();
        [
            ("HOME", home),
            ("PATH", path),
            ("TMPDIR", self.folder().join("tmp").into()),
            ("LANG", "C.UTF-8".into()),
            ("TERM", "dumb".into()),
        ]
        .map(|(name, value)| (name.into(), value))
        .into()
    }

    /// A command in this home, in a clean environment, in a process group of its own.
    #[must_use]
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        Command::new(program.as_ref(), &self.work(), self.environment())
    }

    /// The processes that have this home: ids with their command lines. Empty where there is no
    /// `/proc`.
    #[must_use]
    pub fn processes(&self) -> Vec<(u32, String)> {
        let mut mark = b"HOME=".to_vec();
        mark.extend_from_slice(self.folder().as_os_str().as_encoded_bytes());
        let Ok(entries) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        let ids = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|id: &u32| *id != std::process::id());
        ids.filter_map(|id| {
            let environment = fs::read(format!("/proc/{id}/environ")).ok()?;
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == mark)
                .then(|| (id, command_line(id)))
        })
        .collect()
    }

    /// Waits a while for the last process of this home to end.
    ///
    /// # Panics
    ///
    /// When one does not.
    pub fn assert_no_process_left(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "processes are left: {left:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for (id, _) in self.processes() {
            let id = i32::try_from(id)
                .ok()
                .and_then(rustix::process::Pid::from_raw);
            if let Some(id) = id {
                let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
            }
        }
    }
}

fn command_line(id: u32) -> String {
    let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    line.trim().to_owned()
}
