//! Why a folder is not used for spill files.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Why the folder of a [`SpillConfig`](crate::SpillConfig) is not used. Nothing in it is touched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// A symbolic link, wherever it leads to.
    #[error("it is a symbolic link")]
    Link,
    /// A file or something else.
    #[error("it is not a folder")]
    NotAFolder,
    /// Somebody else's: he could read or replace what is in it.
    #[error("it belongs to user {owner}, not to this one ({user})")]
    Owner {
        /// Whose it is.
        owner: u32,
        /// Who runs this process.
        user: u32,
    },
    /// Others than its owner can enter or read it.
    #[error("others may enter it (mode {mode:04o}, expected 0700)")]
    Mode {
        /// Its permissions.
        mode: u32,
    },
    /// It is this user's, and nothing can be made in it.
    #[error("it cannot be written to: {0}")]
    Shut(io::Error),
    /// It is not there and cannot be made.
    #[error("it cannot be made: {0}")]
    NotMade(io::Error),
}

/// Whether it is a folder of `user` that nobody else can enter.
pub(super) fn judge(found: &Metadata, user: u32) -> Result<(), FolderError> {
    let mode = found.mode() & 0o7777;
    let owner = found.uid();
    match found {
        _ if found.is_symlink() => Err(FolderError::Link),
        _ if !found.is_dir() => Err(FolderError::NotAFolder),
        _ if owner != user => Err(FolderError::Owner { owner, user }),
        _ if mode & 0o077 != 0 => Err(FolderError::Mode { mode }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(folder.path(), private).unwrap();
        let found = std::fs::symlink_metadata(folder.path()).unwrap();
        assert!(judge(&found, found.uid()).is_ok());
        let refused = judge(&found, found.uid() + 1).unwrap_err();
        let (owner, user) = (found.uid(), found.uid() + 1);
        let expected = format!("it belongs to user {owner}, not to this one ({user})");
        assert_eq!(refused.to_string(), expected);
    }
}
