//! A private file with the output of one command from its first byte on, up to a limit.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use offshoot_task::OutputWriter;

/// Where the output of commands goes that no window holds. Only a command that writes more than
/// [`beyond`](Self::beyond), or than the window holds, has a file; it has the output from its beginning.
///
/// The file can be read by its owner alone (mode 0600). It is removed when the last handle to the
/// output goes: that of a task's record, so with the record. What a killed program leaves behind stays:
/// choose a folder that is emptied some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpillConfig {
    /// The folder. It is made, for its owner alone, when it is missing; one that others can enter, or
    /// that somebody else owns, is not used.
    pub folder: PathBuf,
    /// How many bytes of one command's output are written at most (64 MiB).
    pub limit: u64,
    /// How much a command may write without a file, when the window holds it (all that it holds). Less
    /// is of use where readers do not show the whole window.
    pub beyond: usize,
}

impl SpillConfig {
    /// Spills into `folder`, up to 64 MiB a command.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            limit: 64 * 1024 * 1024,
            beyond: usize::MAX,
        }
    }
}

/// Writes the output of one command: to its window, and when that is about to lose something, to a
/// file. Clones write to the same.
#[derive(Clone)]
pub(crate) struct Sink {
    writer: OutputWriter,
    /// What may be written without a file.
    room: u64,
    // Held while both are written: the file has the order of the window.
    spill: Arc<Mutex<Spill>>,
}

enum Spill {
    /// Everything so far is in the window.
    Waiting(SpillConfig),
    Open {
        file: File,
        left: u64,
    },
    /// Not wanted, full, or impossible.
    Done,
}

impl Sink {
    pub(crate) fn new(writer: OutputWriter, window: usize, spill: Option<SpillConfig>) -> Self {
        let beyond = spill.as_ref().map_or(usize::MAX, |spill| spill.beyond);
        Self {
            writer,
            room: window.min(beyond) as u64,
            spill: Arc::new(Mutex::new(spill.map_or(Spill::Done, Spill::Waiting))),
        }
    }

    pub(crate) fn write(&self, text: &str) {
        // A panic while it was held has left the file shorter, no more.
        let mut spill = self.spill.lock().unwrap_or_else(PoisonError::into_inner);
        let written = self.writer.buffer().written();
        if let Spill::Waiting(config) = &*spill
            && written + text.len() as u64 > self.room
        {
            let begun = begin(config, &self.writer);
            *spill = begun.unwrap_or_else(|error| {
                let folder = config.folder.display();
                tracing::warn!(%error, %folder, "output beyond the window is lost: no spill file");
                Spill::Done
            });
        }
        if let Spill::Open { file, left } = &mut *spill
            && let Err(error) = append(file, left, text)
        {
            // What the file has is still the first part of the output.
            tracing::warn!(%error, "a spill file ends early");
            *spill = Spill::Done;
        }
        self.writer.write(text);
    }

    pub(crate) fn note_replaced(&self, bytes: u64) {
        self.writer.note_replaced(bytes);
    }
}

/// Appends what fits, on a character boundary.
fn append(file: &mut File, left: &mut u64, text: &str) -> io::Result<()> {
    let room = usize::try_from(*left).unwrap_or(usize::MAX);
    let fits = &text[..text.floor_char_boundary(room.min(text.len()))];
    *left = if fits.len() < text.len() {
        0
    } else {
        *left - fits.len() as u64
    };
    // The page cache takes it: one chunk of a pipe at a time.
    file.write_all(fits.as_bytes())
}

/// Opens the file of an output whose window has lost nothing yet, and writes what that holds.
fn begin(config: &SpillConfig, writer: &OutputWriter) -> io::Result<Spill> {
    prepare(&config.folder)?;
    let (path, mut file) = create(&config.folder)?;
    let guard = Removed(path.clone());
    let mut left = config.limit;
    append(&mut file, &mut left, &writer.buffer().read_at(0).text)?;
    if writer.buffer().overflow_to(&path, guard) {
        Ok(Spill::Open { file, left })
    } else {
        // Somebody else keeps the overflow of this buffer; the guard has removed our file.
        Ok(Spill::Done)
    }
}

/// Makes sure of a folder that is ours alone.
fn prepare(folder: &Path) -> io::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made?;
    let found = std::fs::symlink_metadata(folder)?;
    let private = found.is_dir()
        && found.mode() & 0o077 == 0
        && found.uid() == rustix::process::geteuid().as_raw();
    if private {
        return Ok(());
    }
    let message = "the folder is not private: it must be owned by the user, with mode 0700";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

fn create(folder: &Path) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    loop {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{}-{n}.out", std::process::id()));
        let opened = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        match opened {
            Ok(file) => return Ok((path, file)),
            // Left by an earlier process with our number.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes the file when it is dropped.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(%error, "a spill file could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offshoot_task::OutputBuffer;

    fn sink(folder: &Path, window: usize, limit: u64) -> (OutputBuffer, Sink) {
        let buffer = OutputBuffer::new(window);
        let spill = SpillConfig {
            limit,
            ..SpillConfig::new(folder)
        };
        let sink = Sink::new(buffer.writer(), window, Some(spill));
        (buffer, sink)
    }

    #[test]
    fn a_small_output_has_no_file_and_a_large_one_is_whole_until_its_last_handle_goes() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("deep/spill");
        let (buffer, sink) = sink(&folder, 8, 1000);
        sink.write("1234567\n");
        assert!(!folder.exists() && buffer.overflow().is_none());
        sink.write("ü");
        sink.write("more");
        let path = buffer.overflow().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1234567\nümore");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        drop(sink);
        assert!(path.exists());
        drop(buffer);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_begins_where_it_is_told_to() {
        let temp = tempfile::tempdir().unwrap();
        let buffer = OutputBuffer::new(100);
        let spill = SpillConfig {
            beyond: 4,
            ..SpillConfig::new(temp.path().join("spill"))
        };
        let sink = Sink::new(buffer.writer(), 100, Some(spill));
        sink.write("four");
        assert!(buffer.overflow().is_none());
        sink.write("more");
        let kept = buffer.keep_overflow().unwrap();
        assert_eq!(std::fs::read_to_string(kept.path()).unwrap(), "fourmore");
        drop((sink, buffer));
        assert!(kept.path().exists());
        let path = kept.path().to_owned();
        drop(kept);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_ends_at_its_limit_on_a_character_boundary() {
        let temp = tempfile::tempdir().unwrap();
        let (buffer, sink) = sink(&temp.path().join("spill"), 4, 10);
        for _ in 0..100 {
            sink.write("界");
        }
        let path = buffer.overflow().unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "界界界");
        assert_eq!(buffer.written(), 300);
    }

    #[test]
    fn a_folder_that_others_can_enter_is_not_used() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("open");
        DirBuilder::new().mode(0o755).create(&folder).unwrap();
        let (buffer, sink) = sink(&folder, 4, 100);
        sink.write("more than four");
        assert!(buffer.overflow().is_none());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        assert_eq!(buffer.written(), 14, "the window goes on");
    }
}
