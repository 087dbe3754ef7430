//! The folder that keeps what was installed, shared by every test of a user: one place a set of
//! packages, filled once under a lock, marked when it is whole.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a package is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// Its registry does not answer.
    #[error("the registry cannot be reached: {0}")]
    Unreachable(String),
    /// Anything else.
    #[error("{0}")]
    Broken(String),
}

/// How long a registry that did not answer is not asked again.
const PATIENCE: Duration = Duration::from_secs(300);

/// One folder of the cache.
#[derive(Debug)]
pub(crate) struct Place {
    folder: PathBuf,
}

fn broken(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::Broken(format!("{}: {what}: {error}", path.display()))
}

/// `OFFSHOOT_PEERS`, else a folder in the user's cache.
fn root() -> Result<PathBuf, Failure> {
    if let Some(folder) = std::env::var_os("OFFSHOOT_PEERS") {
        return Ok(folder.into());
    }
    let caches = match std::env::var_os("XDG_CACHE_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => match std::env::home_dir() {
            Some(home) => home.join(".cache"),
            None => {
                return Err(Failure::Broken(
                    "there is no home; set OFFSHOOT_PEERS".into(),
                ));
            }
        },
    };
    Ok(caches.join("offshoot-peers"))
}

impl Place {
    pub(crate) fn of(name: &str) -> Result<Self, Failure> {
        Ok(Self::in_folder(&root()?, name))
    }

    fn in_folder(root: &Path, name: &str) -> Self {
        Self {
            folder: root.join(name),
        }
    }

    /// A file beside the folder: what is in the folder goes when it is filled anew.
    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.folder.clone().into_os_string();
        name.push(ending);
        name.into()
    }

    /// The folder, filled by `fill` unless it was before. Others who ask meanwhile wait. A folder
    /// whose filling failed, or was cut, is filled anew.
    pub(crate) fn filled(
        &self,
        fill: impl FnOnce(&Path) -> Result<(), Failure>,
    ) -> Result<PathBuf, Failure> {
        let whole = self.folder.join(".whole");
        if whole.exists() {
            return Ok(self.folder.clone());
        }
        let parent = self.folder.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(|error| broken("not made", parent, &error))?;
        let path = self.beside(".lock");
        let lock = File::create(&path).map_err(|error| broken("not made", &path, &error))?;
        lock.lock()
            .map_err(|error| broken("not locked", &path, &error))?;
        if whole.exists() {
            return Ok(self.folder.clone());
        }
        let unreachable = self.beside(".unreachable");
        if is_younger(&unreachable, PATIENCE) {
            return Err(Failure::Unreachable("asked a moment ago".into()));
        }
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)
                .map_err(|error| broken("not removed", &self.folder, &error))?;
        }
        fs::create_dir_all(&self.folder)
            .map_err(|error| broken("not made", &self.folder, &error))?;
        if let Err(failure) = fill(&self.folder) {
            if let Failure::Unreachable(_) = failure {
                let _ = File::create(&unreachable);
            }
            return Err(failure);
        }
        let _ = fs::remove_file(&unreachable);
        File::create(&whole).map_err(|error| broken("not made", &whole, &error))?;
        Ok(self.folder.clone())
    }
}

fn is_younger(path: &Path, age: Duration) -> bool {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|elapsed| elapsed < age))
}

/// Says something past the capture of a test's output.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "offshoot-peers: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_filled_once_and_again_after_a_failure() {
        let root = tempfile::tempdir().unwrap();
        let place = Place::in_folder(root.path(), "thing");
        let failed = place.filled(|folder| {
            fs::write(folder.join("half"), "").unwrap();
            Err(Failure::Broken("cut".into()))
        });
        assert_eq!(failed, Err(Failure::Broken("cut".into())));
        let folder = place
            .filled(|folder| {
                assert!(!folder.join("half").exists(), "it begins anew");
                fs::write(folder.join("whole"), "").unwrap();
                Ok(())
            })
            .unwrap();
        assert!(folder.join("whole").exists());
        let again = place.filled(|_| panic!("it is filled"));
        assert_eq!(again, Ok(folder));
    }

    #[test]
    fn a_registry_out_of_reach_is_not_asked_by_every_test() {
        let root = tempfile::tempdir().unwrap();
        let place = Place::in_folder(root.path(), "thing");
        let offline = || Failure::Unreachable("offline".into());
        assert_eq!(place.filled(|_| Err(offline())), Err(offline()));
        let again = place.filled(|_| panic!("it was asked a moment ago"));
        assert!(matches!(again, Err(Failure::Unreachable(_))), "{again:?}");
    }

    #[test]
    fn those_who_ask_at_once_wait_for_one_filling() {
        let root = tempfile::tempdir().unwrap();
        let count = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let place = Place::in_folder(root.path(), "thing");
                    let filled = place.filled(|_| {
                        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        Ok(())
                    });
                    assert!(filled.is_ok(), "{filled:?}");
                });
            }
        });
        assert_eq!(count.into_inner(), 1);
    }
}
