//! A private file with the output of one command from its first byte on, up to a limit.

mod folder;
mod refused;

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use offshoot_task::OutputWriter;

use folder::ProcessFolder;
pub use refused::FolderError;

/// Where the output of commands goes that no window holds. Only a command that writes more than
/// [`beyond`](Self::beyond), or than the window holds, has a file; it has the output from its beginning.
///
/// The file can be read by its owner alone (mode 0600). It is removed when the last handle to the
/// output goes: that of a task's record, so with the record. What a killed process has left is removed
/// by the next one that uses the same folder, with its first file or by
/// [`remove_stale`](Self::remove_stale).
///
/// ```
/// use offshoot_shell::SpillConfig;
/// let folder = std::env::temp_dir().join("my-program-output");
/// let spill = SpillConfig::new(&folder).limit(1024 * 1024);
/// assert_eq!(spill.folder(), folder);
/// ```
#[derive(Clone)]
pub struct SpillConfig {
    folder: PathBuf,
    limit: u64,
    beyond: usize,
    /// The folder of this process, while anything is in it.
    own: Arc<Mutex<Weak<ProcessFolder>>>,
}

impl SpillConfig {
    /// Spills into `folder`, up to 64 MiB a command.
    ///
    /// The folder is made, for its owner alone, when it is missing; one that others can enter, or that
    /// somebody else owns, is not used ([`check`](Self::check)). Any number of processes may share it: each has a folder of its
    /// own in it, and knows by a lock which of the others live.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            limit: 64 * 1024 * 1024,
            beyond: usize::MAX,
            own: Arc::default(),
        }
    }

    /// As [`new`](Self::new), into the folder `NAME-UID` among the system's temporary files: the same
    /// one for all processes of the user.
    #[must_use]
    pub fn of_user(name: &str) -> Self {
        let user = rustix::process::geteuid().as_raw();
        let mut temp = std::env::temp_dir();
        if temp.as_os_str().is_empty() {
            temp = PathBuf::from("/tmp");
        }
        // Commands run elsewhere: a path that their results name begins at the root.
        let temp = std::path::absolute(&temp).unwrap_or(temp);
        Self::new(temp.join(format!("{name}-{user}")))
    }

    /// How many bytes of one command's output are written at most (64 MiB). What comes after them is
    /// [counted](offshoot_task::OutputBuffer::overflow_missing).
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// How much a command may write without a file, when the window holds it (all that it holds). Less
    /// is of use where readers do not show the whole window.
    #[must_use]
    pub fn beyond(mut self, bytes: usize) -> Self {
        self.beyond = bytes;
        self
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes what killed processes have left in the folder, and returns how many of them. For the
    /// start of a program; a folder that is not there, or is not private, has nothing.
    ///
    /// # Errors
    ///
    /// When the folder cannot be read. What cannot be removed stays, and is no error.
    pub fn remove_stale(&self) -> io::Result<usize> {
        folder::remove_stale(&self.folder)
    }

    /// Whether the folder will be used. For the start of a program, whose user should know: later, a
    /// command whose file cannot be made goes on without one, and only the log says so.
    ///
    /// # Errors
    ///
    /// What speaks against the folder, or against making it. Nothing is made or changed.
    pub fn check(&self) -> Result<(), FolderError> {
        folder::check(&self.folder)
    }

    /// Removes the folder if it is empty and one that is used. For the end of a program; a folder that
    /// [is refused](Self::check) stays.
    pub fn remove_empty(&self) {
        folder::remove_empty(&self.folder);
    }

    /// A new file in the folder of this process.
    fn create(&self) -> io::Result<(File, Removed)> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = own.upgrade() {
            match folder.create() {
                // Somebody has emptied the folder of temporary files.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                created => return created.map(|(path, file)| (file, Removed { path, folder })),
            }
        }
        let folder = Arc::new(ProcessFolder::make(&self.folder)?);
        *own = Arc::downgrade(&folder);
        let (path, file) = folder.create()?;
        Ok((file, Removed { path, folder }))
    }
}

impl PartialEq for SpillConfig {
    fn eq(&self, other: &Self) -> bool {
        (&self.folder, self.limit, self.beyond) == (&other.folder, other.limit, other.beyond)
    }
}

impl Eq for SpillConfig {}

impl fmt::Debug for SpillConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpillConfig")
            .field("folder", &self.folder)
            .field("limit", &self.limit)
            .field("beyond", &self.beyond)
            .finish_non_exhaustive()
    }
}

/// Writes the output of one command: to its window, and when that is about to lose something, to a
/// file.
pub(crate) struct Sink {
    writer: OutputWriter,
    /// What may be written without a file.
    room: u64,
    spill: Spill,
}

enum Spill {
    /// Everything so far is in the window.
    Waiting(SpillConfig),
    Open {
        file: File,
        left: u64,
    },
    /// It has the beginning of the output, and gets no more.
    Full,
    /// Not wanted, or impossible.
    Done,
}

impl Sink {
    pub(crate) fn new(writer: OutputWriter, window: usize, spill: Option<SpillConfig>) -> Self {
        let beyond = spill.as_ref().map_or(usize::MAX, |spill| spill.beyond);
        Self {
            writer,
            room: window.min(beyond) as u64,
            spill: spill.map_or(Spill::Done, Spill::Waiting),
        }
    }

    pub(crate) fn write(&mut self, text: &str) {
        let written = self.writer.buffer().written();
        if let Spill::Waiting(config) = &self.spill
            && written + text.len() as u64 > self.room
        {
            let begun = begin(config, &self.writer);
            self.spill = begun.unwrap_or_else(|error| {
                let folder = config.folder.display();
                tracing::warn!(%error, %folder, "output beyond the window is lost: no spill file");
                Spill::Done
            });
        }
        let missing = match &mut self.spill {
            Spill::Open { file, left } => {
                let (taken, result) = append(file, left, text);
                if let Err(error) = &result {
                    // What the file has is still the first part of the output.
                    tracing::warn!(%error, "a spill file ends early");
                }
                if result.is_err() || taken < text.len() {
                    self.spill = Spill::Full;
                }
                text.len() - taken
            }
            Spill::Full => text.len(),
            Spill::Waiting(_) | Spill::Done => 0,
        };
        if missing > 0 {
            self.writer.note_overflow_missing(missing as u64);
        }
        self.writer.write(text);
    }

    pub(crate) fn note_replaced(&self, bytes: u64) {
        self.writer.note_replaced(bytes);
    }
}

/// Appends what there is room for, on a character boundary. How many bytes the file has taken, also when
/// it took no more.
fn append(file: &mut File, left: &mut u64, text: &str) -> (usize, io::Result<()>) {
    let room = usize::try_from(*left).unwrap_or(usize::MAX);
    let fits = &text.as_bytes()[..text.floor_char_boundary(room)];
    let mut taken = 0;
    while taken < fits.len() {
        // The page cache takes it: one chunk of a pipe at a time.
        match file.write(&fits[taken..]) {
            Ok(0) => return (taken, Err(io::ErrorKind::WriteZero.into())),
            Ok(n) => {
                taken += n;
                *left -= n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (taken, Err(error)),
        }
    }
    (taken, Ok(()))
}

/// Opens the file of an output whose window has lost nothing yet, and writes what that holds.
fn begin(config: &SpillConfig, writer: &OutputWriter) -> io::Result<Spill> {
    let (mut file, guard) = config.create()?;
    let path = guard.path.clone();
    let mut left = config.limit;
    let kept = writer.buffer().read_at(0).text;
    let (taken, result) = append(&mut file, &mut left, &kept);
    result?;
    if !writer.buffer().overflow_to(&path, guard) {
        // Somebody else keeps the overflow of this buffer; the guard has removed our file.
        return Ok(Spill::Done);
    }
    if taken < kept.len() {
        writer.note_overflow_missing((kept.len() - taken) as u64);
        return Ok(Spill::Full);
    }
    Ok(Spill::Open { file, left })
}

/// Removes the file when it is dropped, and then lets go of its folder.
struct Removed {
    path: PathBuf,
    #[expect(dead_code, reason = "kept for its drop")]
    folder: Arc<ProcessFolder>,
}

/// Removes the file when it is dropped.
impl Drop for Removed {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "a spill file could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::DirBuilder;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};

    use super::*;
    use offshoot_task::OutputBuffer;

    fn sink(folder: &Path, window: usize, limit: u64) -> (OutputBuffer, Sink) {
        let buffer = OutputBuffer::new(window);
        let spill = SpillConfig::new(folder).limit(limit);
        let sink = Sink::new(buffer.writer(), window, Some(spill));
        (buffer, sink)
    }

    #[test]
    fn a_small_output_has_no_file_and_a_large_one_is_whole_until_its_last_handle_goes() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("deep/spill");
        let (buffer, mut sink) = sink(&folder, 8, 1000);
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
        let spill = SpillConfig::new(temp.path().join("spill")).beyond(4);
        let mut sink = Sink::new(buffer.writer(), 100, Some(spill));
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
        let (buffer, mut sink) = sink(&temp.path().join("spill"), 4, 10);
        for _ in 0..100 {
            sink.write("界");
        }
        let path = buffer.overflow().unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "界界界");
        assert_eq!((buffer.written(), buffer.overflow_missing()), (300, 291));
    }

    #[test]
    fn what_a_full_file_does_not_have_is_counted_to_the_byte() {
        let temp = tempfile::tempdir().unwrap();
        let (buffer, mut whole) = sink(&temp.path().join("spill"), 4, 10);
        for text in ["abc", "defghij", "", "k", "lm"] {
            whole.write(text);
            let file = buffer
                .overflow()
                .map(|path| std::fs::read(path).unwrap().len());
            let held = file.unwrap_or(3) as u64;
            assert_eq!(buffer.overflow_missing(), buffer.written() - held, "{text}");
        }
        assert_eq!(buffer.overflow_missing(), 3);
        // One that is full from its beginning.
        let (buffer, mut sink) = sink(&temp.path().join("other"), 4, 2);
        sink.write("abc");
        sink.write("de");
        assert_eq!(buffer.overflow_missing(), 3);
    }

    #[test]
    fn the_folder_of_the_process_is_made_for_the_first_file_and_goes_with_the_last() {
        let temp = tempfile::tempdir().unwrap();
        let config = SpillConfig::new(temp.path().join("spill"));
        let spill = |config: &SpillConfig| {
            let buffer = OutputBuffer::new(4);
            Sink::new(buffer.writer(), 4, Some(config.clone())).write("more than four");
            buffer
        };
        let folders = || std::fs::read_dir(config.folder()).unwrap().count();
        let (one, two) = (spill(&config), spill(&config));
        assert_eq!(folders(), 1);
        let folder =
            |buffer: &OutputBuffer| buffer.overflow().unwrap().parent().unwrap().to_owned();
        assert_eq!(folder(&one), folder(&two));
        assert_eq!(config.remove_stale().unwrap(), 0);
        drop(one);
        assert_eq!(folders(), 1);
        drop(two);
        assert_eq!(folders(), 0);
        // Also when somebody has taken it away.
        let lost = spill(&config);
        std::fs::remove_dir_all(config.folder()).unwrap();
        let found = spill(&config);
        assert!(found.overflow().unwrap().exists());
        drop((lost, found));
        assert_eq!(folders(), 0);
    }

    #[test]
    fn a_folder_that_others_can_enter_is_not_used() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("open");
        DirBuilder::new().mode(0o755).create(&folder).unwrap();
        let (buffer, mut sink) = sink(&folder, 4, 100);
        sink.write("more than four");
        assert!(buffer.overflow().is_none());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        assert_eq!(buffer.written(), 14, "the window goes on");
        // Nor is it removed, though it is empty.
        let config = SpillConfig::new(&folder);
        let refused = config.check().unwrap_err();
        assert!(matches!(refused, FolderError::Mode { mode: 0o755 }));
        config.remove_empty();
        assert!(folder.exists());
    }

    #[test]
    fn a_folder_that_is_used_goes_when_it_is_empty() {
        let temp = tempfile::tempdir().unwrap();
        let config = SpillConfig::new(temp.path().join("deep/spill"));
        config.check().unwrap();
        config.remove_empty();
        assert!(!temp.path().join("deep").exists(), "nothing was made");
        let (buffer, mut sink) = sink(config.folder(), 4, 100);
        sink.write("more than four");
        config.check().unwrap();
        config.remove_empty();
        assert!(buffer.overflow().unwrap().exists());
        drop((buffer, sink));
        config.remove_empty();
        assert!(!config.folder().exists());
    }
}
