//! The output of a task that streams: the last bytes written, with absolute offsets.
//!
//! A buffer knows neither tasks nor readers. Offsets count every byte ever written, so that each
//! reader keeps its own and learns exactly how much it missed.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use crate::sync::lock;
use crate::waker_set::{WakerKey, WakerSet};

// Invariants
// 1. `text` ends at offset `end`; the kept window is its longest suffix that has at most `limit`
//    bytes and begins on a character boundary.
// 2. `text` may physically hold up to a quarter more, so that dropping the front is rare.
struct Window {
    text: String,
    end: u64,
    limit: usize,
    /// Those who wait for more.
    wakers: WakerSet,
}

impl Window {
    fn kept(&self) -> &str {
        offshoot_core::text::tail(&self.text, self.limit)
    }

    fn write(&mut self, text: &str) {
        self.end += text.len() as u64;
        if text.len() >= self.limit {
            self.text.clear();
            self.text
                .push_str(offshoot_core::text::tail(text, self.limit));
            return;
        }
        self.text.push_str(text);
        if self.text.len() > self.limit + self.limit / 4 {
            let drop = self.text.len() - self.kept().len();
            self.text.drain(..drop);
        }
    }

    fn slice(&self, offset: u64) -> OutputSlice {
        slice_of(self.kept(), self.end, offset)
    }

    /// What is kept of some ranges, which begin and end on character boundaries, and how many of
    /// their bytes are gone.
    fn ranges(&self, ranges: &[Range<u64>]) -> (String, u64) {
        let kept = self.kept();
        let start = self.end - kept.len() as u64;
        let at = |offset: u64| usize::try_from(offset.max(start) - start).unwrap_or(kept.len());
        let (mut text, mut gap) = (String::new(), 0);
        for range in ranges {
            text.push_str(&kept[at(range.start)..at(range.end)]);
            gap += start.clamp(range.start, range.end) - range.start;
        }
        (text, gap)
    }
}

/// The part from `offset` on of an output of which `kept` is the last part and `end` the length.
pub(crate) fn slice_of(kept: &str, end: u64, offset: u64) -> OutputSlice {
    let start = end - kept.len() as u64;
    let wanted = offset.min(end);
    let from = wanted.max(start);
    // An offset inside a character: the whole character is given again.
    let at = kept.floor_char_boundary(usize::try_from(from - start).unwrap_or(kept.len()));
    OutputSlice {
        text: kept[at..].to_owned(),
        offset: start + at as u64,
        gap: start.saturating_sub(wanted),
        next: end,
    }
}

/// A piece of output, read at an offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputSlice {
    /// The text.
    pub text: String,
    /// The offset of its first byte.
    pub offset: u64,
    /// How many bytes between the offset asked for and `offset` are no longer kept.
    pub gap: u64,
    /// The offset to ask for next: the end of the text.
    pub next: u64,
}

struct Shared {
    window: Mutex<Window>,
    // Copies that are read without the lock. They only grow.
    end: AtomicU64,
    replaced: AtomicU64,
    overflow_missing: AtomicU64,
    overflow: OnceLock<Overflow>,
}

/// The file that has an output from its first byte on. It is kept while a handle to it lives: each
/// [`OutputBuffer`] of the output is one, and so is each clone of this.
#[derive(Clone)]
pub struct Overflow {
    path: Arc<Path>,
    _guard: Arc<dyn Any + Send + Sync>,
}

impl Overflow {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Overflow").field(&self.path).finish()
    }
}

impl Shared {
    fn window(&self) -> MutexGuard<'_, Window> {
        lock(&self.window)
    }
}

/// Keeps the last bytes of a stream of text. Clones are handles to the same buffer.
///
/// ```
/// use offshoot_task::OutputBuffer;
/// let buffer = OutputBuffer::new(4);
/// buffer.writer().write("abcdef");
/// let slice = buffer.read_at(1);
/// assert_eq!((slice.text.as_str(), slice.gap, slice.next), ("cdef", 1, 6));
/// ```
#[derive(Clone)]
pub struct OutputBuffer(Arc<Shared>);

impl fmt::Debug for OutputBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputBuffer")
            .field("written", &self.written())
            .finish_non_exhaustive()
    }
}

impl OutputBuffer {
    /// A buffer that keeps the last `window` bytes (fewer when a character would be cut).
    #[must_use]
    pub fn new(window: usize) -> Self {
        Self(Arc::new(Shared {
            window: Mutex::new(Window {
                text: String::new(),
                end: 0,
                limit: window,
                wakers: WakerSet::default(),
            }),
            end: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
            overflow_missing: AtomicU64::new(0),
            overflow: OnceLock::new(),
        }))
    }

    /// A handle that writes.
    #[must_use]
    pub fn writer(&self) -> OutputWriter {
        OutputWriter(self.clone())
    }

    /// Bytes written in all.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.0.end.load(Ordering::Acquire)
    }

    /// Bytes that were not text and were replaced before they were written.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        self.0.replaced.load(Ordering::Relaxed)
    }

    /// Says that the file at `path` has the output from its first byte on, so that what the window
    /// loses can be found there. `guard` is dropped with the last handle: that of a task's record goes
    /// when the record leaves the registry, so a guard that removes the file removes it then.
    ///
    /// Once only; false, and `guard` is dropped, when a file was named before.
    pub fn overflow_to(&self, path: &Path, guard: impl Send + Sync + 'static) -> bool {
        let overflow = Overflow {
            path: path.into(),
            _guard: Arc::new(guard),
        };
        self.0.overflow.set(overflow).is_ok()
    }

    /// The file that has what the window has lost, when there is one.
    #[must_use]
    pub fn overflow(&self) -> Option<Arc<Path>> {
        let overflow = self.0.overflow.get()?;
        Some(Arc::clone(&overflow.path))
    }

    /// How many bytes at the end of the output that file does not have, since it is full or could not
    /// be written.
    #[must_use]
    pub fn overflow_missing(&self) -> u64 {
        self.0.overflow_missing.load(Ordering::Acquire)
    }

    /// A handle that keeps that file though this buffer goes.
    #[must_use]
    pub fn keep_overflow(&self) -> Option<Overflow> {
        self.0.overflow.get().cloned()
    }

    /// What is kept from `offset` to the end. Consumes nothing; any number of readers may keep
    /// offsets of their own. An offset past the end gives an empty slice at the end.
    #[must_use]
    pub fn read_at(&self, offset: u64) -> OutputSlice {
        self.0.window().slice(offset)
    }

    /// As [`Window::ranges`].
    pub(crate) fn read_ranges(&self, ranges: &[Range<u64>]) -> (String, u64) {
        self.0.window().ranges(ranges)
    }

    /// Waits until more than `offset` bytes were written in all. It does not end when the writers
    /// do: wait for the task as well. Dropping the future has no effect.
    pub async fn grown_past(&self, offset: u64) {
        let mut reader = WaitingReader {
            shared: &self.0,
            place: None,
        };
        std::future::poll_fn(|cx| reader.poll(offset, cx)).await;
    }
}

/// A place among those who wait for more, given back by the drop.
struct WaitingReader<'a> {
    shared: &'a Shared,
    /// Valid until the next write, which empties the set: that is, while `end` is what it was.
    place: Option<(WakerKey, u64)>,
}

impl WaitingReader<'_> {
    fn poll(&mut self, offset: u64, cx: &Context<'_>) -> Poll<()> {
        self.leave();
        let mut window = self.shared.window();
        let ready = window.end > offset;
        if !ready {
            self.place = Some((window.wakers.insert(cx), window.end));
        }
        drop(window);
        if ready {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    fn leave(&mut self) {
        let Some((place, end)) = self.place.take() else {
            return;
        };
        let old = {
            let mut window = self.shared.window();
            (window.end == end).then(|| window.wakers.remove(place))
        };
        drop(old);
    }
}

impl Drop for WaitingReader<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Writes to an [`OutputBuffer`].
#[derive(Clone, Debug)]
pub struct OutputWriter(OutputBuffer);

impl OutputWriter {
    /// Appends `text`. Never blocks for long and never fails: what does not fit pushes out the oldest.
    pub fn write(&self, text: &str) {
        if text.is_empty() {
            return;
        }
        let shared = &*self.0.0;
        let wakers = {
            let mut window = shared.window();
            window.write(text);
            // Under the lock, so that it never goes back.
            shared.end.store(window.end, Ordering::Release);
            window.wakers.take()
        };
        wakers.wake_all();
    }

    /// Counts bytes that were not text and were written as U+FFFD.
    pub fn note_replaced(&self, bytes: u64) {
        self.0.0.replaced.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that are written here and not to the [file](OutputBuffer::overflow_to) that is
    /// there. Say it before they are written, so that nobody finds them missing and not counted.
    pub fn note_overflow_missing(&self, bytes: u64) {
        let missing = &self.0.0.overflow_missing;
        missing.fetch_add(bytes, Ordering::Release);
    }

    /// The buffer that is written to.
    #[must_use]
    pub fn buffer(&self) -> &OutputBuffer {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_slides_on_character_boundaries_and_counts_exactly() {
        let buffer = OutputBuffer::new(7);
        let writer = buffer.writer();
        writer.write("界界界");
        let slice = buffer.read_at(0);
        assert_eq!(slice.text, "界界");
        assert_eq!((slice.offset, slice.gap, slice.next), (3, 3, 9));
        // Inside a character: the character is given again, and nothing is counted as lost.
        let slice = buffer.read_at(4);
        assert_eq!((slice.offset, slice.gap), (3, 0));
        assert_eq!(buffer.read_at(100).next, 9);
    }

    #[test]
    fn b061_a_gap_has_the_exact_count_of_the_bytes_that_are_gone() {
        let buffer = OutputBuffer::new(262_144);
        let writer = buffer.writer();
        for _ in 0..300_001 {
            writer.write("x");
        }
        let slice = buffer.read_at(0);
        assert_eq!(slice.text.len(), 262_144);
        assert_eq!(slice.gap, 300_001 - 262_144);
        let once = OutputBuffer::new(262_144);
        once.writer().write(&"x".repeat(300_001));
        assert_eq!(once.read_at(0), slice);
    }

    #[test]
    fn b059_an_endless_line_keeps_the_window_and_says_what_was_dropped() {
        let buffer = OutputBuffer::new(64 * 1024);
        let writer = buffer.writer();
        for _ in 0..10_000_000 {
            writer.write("bad input!\n");
        }
        assert!(buffer.0.window().text.capacity() <= 128 * 1024);
        let slice = buffer.read_at(0);
        assert_eq!(slice.gap + slice.text.len() as u64, 110_000_000);
    }

    #[test]
    fn independent_readers_see_every_byte_once() {
        let buffer = OutputBuffer::new(16);
        let writer = buffer.writer();
        let (mut a, mut seen) = (0, String::new());
        for token in ["o1\n", "e1\n", "o2\n", "e2\n"] {
            writer.write(token);
            let slice = buffer.read_at(a);
            assert_eq!(slice.gap, 0);
            seen.push_str(&slice.text);
            a = slice.next;
        }
        assert_eq!(seen, "o1\ne1\no2\ne2\n");
        assert_eq!(buffer.read_at(0).text, seen);
    }

    #[tokio::test]
    async fn a_reader_that_gives_up_takes_no_other_readers_place() {
        let buffer = OutputBuffer::new(16);
        let mut gone = Box::pin(buffer.grown_past(5));
        assert!(futures::poll!(&mut gone).is_pending());
        // The write empties the set: the place of `gone` is stale, and the next reader gets its like.
        buffer.writer().write("abc");
        let reader = tokio::spawn({
            let buffer = buffer.clone();
            async move { buffer.grown_past(3).await }
        });
        tokio::task::yield_now().await;
        drop(gone);
        buffer.writer().write("d");
        reader.await.unwrap();
    }

    #[test]
    fn a_window_of_nothing_keeps_nothing() {
        let buffer = OutputBuffer::new(0);
        buffer.writer().write("abc");
        let slice = buffer.read_at(0);
        assert_eq!((slice.text.as_str(), slice.gap, slice.next), ("", 3, 3));
    }
}
