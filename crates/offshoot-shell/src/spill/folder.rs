//! The folder of one process for its spill files, in a folder that all processes of its user may share.
//!
//! A process that is killed leaves its folder behind; the next one removes it. That it is dead is known
//! from a lock on the folder, which the system takes away with the process, however that ended: a
//! number of a process says nothing once it was given to another one.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    Access, AtFlags, CWD, FlockOperation, Mode, OFlags, accessat, flock, fstat, open,
};
use rustix::io::Errno;

use super::refused::{FolderError, judge};

// Invariants
// 1. A folder is used only by the process that holds its lock, from before its first file to the end.
// 2. Whoever removes a folder holds its lock, and has seen after taking it that the path still leads to
//    what is locked. So a folder that is just being made is lost to its maker at most before its first
//    file, and the maker sees it in the same way.
// 3. Nothing is removed but what has a name as we give it.

const FOLDER: &str = "offshoot-spill-";
const FILE: &str = ".out";

/// How often a name is tried, when others take the folder or the name.
const TRIES: u64 = 100;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A folder of this process alone. It goes, when it is empty, with the value.
#[derive(Debug)]
pub(super) struct ProcessFolder {
    path: PathBuf,
    _lock: OwnedFd,
}

impl ProcessFolder {
    /// Makes one in `shared`, and removes those there that dead processes have left.
    pub(super) fn make(shared: &Path) -> io::Result<Self> {
        for _ in 0..TRIES {
            make_private(shared)?;
            remove_stale(shared)?;
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = shared.join(format!("{FOLDER}{}-{n}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {}
                // The name is taken, or the last process has just taken `shared` away.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound
                    ) =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            }
            if let Some(lock) = lock(&path)? {
                return Ok(Self { path, _lock: lock });
            }
        }
        Err(io::Error::other("others take every folder that is made"))
    }

    /// A new file that its owner alone can read.
    pub(super) fn create(&self) -> io::Result<(PathBuf, File)> {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(format!("{n}{FILE}"));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(&path)?;
        Ok((path, file))
    }
}

impl Drop for ProcessFolder {
    fn drop(&mut self) {
        // A file that is still there belongs to somebody who reads it: the next process removes it.
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Makes sure of a folder that is ours alone.
fn make_private(shared: &Path) -> io::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(shared);
    made?;
    judge(&std::fs::symlink_metadata(shared)?, user())
        .map_err(|refused| io::Error::new(io::ErrorKind::PermissionDenied, refused))
}

/// Whether [`ProcessFolder::make`] can be expected to work. Makes nothing.
pub(super) fn check(shared: &Path) -> Result<(), FolderError> {
    match std::fs::symlink_metadata(shared) {
        Ok(found) => {
            judge(&found, user())?;
            can_have_more(shared).map_err(FolderError::Shut)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = shared.ancestors().skip(1);
            let mut above = above.map(|path| match path.as_os_str().is_empty() {
                true => Path::new("."),
                false => path,
            });
            let there = above.find(|path| path.symlink_metadata().is_ok());
            can_have_more(there.unwrap_or(Path::new("/"))).map_err(FolderError::NotMade)
        }
        Err(error) => Err(FolderError::NotMade(error)),
    }
}

fn can_have_more(folder: &Path) -> io::Result<()> {
    if !folder.metadata()?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let access = Access::WRITE_OK | Access::EXEC_OK;
    Ok(accessat(CWD, folder, access, AtFlags::EACCESS)?)
}

/// Removes `shared` when it is one that is used, and nothing is in it.
pub(super) fn remove_empty(shared: &Path) {
    let found = std::fs::symlink_metadata(shared);
    if found.is_ok_and(|found| is_private(&found)) {
        // What is in it belongs to another process, or to somebody who still reads it.
        let _ = std::fs::remove_dir(shared);
    }
}

/// Removes what dead processes have left in `shared`; how many folders that were. What cannot be removed
/// stays.
pub(super) fn remove_stale(shared: &Path) -> io::Result<usize> {
    let found = match std::fs::symlink_metadata(shared) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        found => found?,
    };
    if !is_private(&found) {
        // Nothing of ours is in it.
        return Ok(0);
    }
    let mut removed = 0;
    let entries = match std::fs::read_dir(shared) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let ours = entry.file_name().to_str().is_some_and(is_folder_name);
        if !ours {
            continue;
        }
        match remove_if_stale(&entry.path()) {
            Ok(true) => removed += 1,
            Ok(false) => {}
            Err(error) => {
                let path = entry.path();
                tracing::warn!(%error, path = %path.display(), "an old spill folder stays");
            }
        }
    }
    Ok(removed)
}

fn remove_if_stale(path: &Path) -> io::Result<bool> {
    let Some(_lock) = lock(path)? else {
        return Ok(false);
    };
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let ours = entry.file_name().to_str().is_some_and(is_file_name);
        if ours && entry.file_type()?.is_file() {
            std::fs::remove_file(entry.path())?;
        }
    }
    std::fs::remove_dir(path)?;
    Ok(true)
}

/// Takes the lock of the folder at `path`. `None` when it is another's, is not ours at all, or is not
/// there any more.
fn lock(path: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match open(path, flags, Mode::empty()) {
        Ok(folder) => folder,
        // Gone, or no folder; or one of another user, who may shut us out.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let locked = fstat(&folder)?;
    let there = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        there => there?,
    };
    // The types of these fields differ between systems.
    let same = there.ino() == locked.st_ino as u64 && there.dev() == locked.st_dev as u64;
    Ok((same && is_private(&there)).then_some(folder))
}

/// Whether it is a folder of this user that nobody else can enter.
fn is_private(found: &Metadata) -> bool {
    judge(found, user()).is_ok()
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn is_folder_name(name: &str) -> bool {
    let numbers = name
        .strip_prefix(FOLDER)
        .and_then(|name| name.split_once('-'));
    numbers.is_some_and(|(pid, n)| is_number(pid) && is_number(n))
}

fn is_file_name(name: &str) -> bool {
    name.strip_suffix(FILE).is_some_and(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::AtomicBool;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn only_what_a_dead_process_has_left_is_removed() {
        let temp = tempfile::tempdir().unwrap();
        let shared = temp.path().join("shared");
        let live = ProcessFolder::make(&shared).unwrap();
        live.create().unwrap();
        let make = |name: &str, mode: u32| {
            let path = shared.join(name);
            DirBuilder::new().mode(mode).create(&path).unwrap();
            std::fs::write(path.join("1.out"), "x").unwrap();
        };
        // Nobody has its lock, as after the death of its process.
        make("offshoot-spill-1-1", 0o700);
        // Not ours: by its mode, its name, its kind.
        make("offshoot-spill-1-2", 0o755);
        make("offshoot-spill-1", 0o700);
        make("2024-11", 0o700);
        symlink(shared.join("2024-11"), shared.join("offshoot-spill-1-3")).unwrap();
        std::fs::write(shared.join("offshoot-spill-1-4"), "a file").unwrap();
        // Ours, with what is not.
        make("offshoot-spill-1-5", 0o700);
        std::fs::write(shared.join("offshoot-spill-1-5/notes"), "kept").unwrap();

        let mut before = names(&shared);
        assert_eq!(remove_stale(&shared).unwrap(), 1);
        before.retain(|name| name != "offshoot-spill-1-1");
        assert_eq!(names(&shared), before);
        assert_eq!(names(&shared.join("2024-11")), ["1.out"]);
        assert_eq!(names(&shared.join("offshoot-spill-1-2")), ["1.out"]);
        assert_eq!(names(&shared.join("offshoot-spill-1-5")), ["notes"]);
        assert_eq!(names(&live.path).len(), 1);
        assert_eq!(remove_stale(&temp.path().join("nowhere")).unwrap(), 0);
    }

    #[test]
    fn an_empty_folder_goes_with_its_last_handle() {
        let temp = tempfile::tempdir().unwrap();
        let folder = ProcessFolder::make(temp.path().join("shared").as_path()).unwrap();
        let path = folder.path.clone();
        drop(folder);
        assert!(!path.exists());
    }

    /// Makers and removers at the same time: what somebody has in use is never taken from him.
    #[test]
    fn a_folder_that_is_just_made_is_not_taken_for_a_dead_processs() {
        let temp = tempfile::tempdir().unwrap();
        let shared = temp.path().join("shared");
        drop(ProcessFolder::make(&shared).unwrap());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let makers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..200 {
                            let folder = ProcessFolder::make(&shared).unwrap();
                            let (path, _file) = folder.create().unwrap();
                            std::thread::yield_now();
                            std::fs::remove_file(path).expect("it is still there");
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    remove_stale(&shared).unwrap();
                }
            });
            let ends: Vec<_> = makers.into_iter().map(|maker| maker.join()).collect();
            done.store(true, Ordering::Relaxed);
            assert!(ends.iter().all(Result::is_ok));
        });
        assert_eq!(names(&shared), [] as [&str; 0]);
    }
}
