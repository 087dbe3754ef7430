//! Progress on stderr, shown by a thread of its own: no agent waits for a slow terminal.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use offshoot::agent::{EventObserver, EventRecord};

use super::plain::plain;
use super::terminal;
use super::tree::{Frame, Tree};

/// How often a live tree is drawn while nothing happens, and at most.
const FRAME: Duration = Duration::from_millis(80);
/// How often the terminal is asked for its size.
const MEASURE: Duration = Duration::from_secs(2);

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Not at all.
    Nothing,
    /// As a tree that is redrawn in place.
    Live,
    /// As a line for each change.
    Lines,
}

impl Style {
    /// A live tree for a person, lines for a pipe.
    pub(crate) fn of_stderr() -> Self {
        if terminal::can_redraw() {
            Self::Live
        } else {
            Self::Lines
        }
    }

    /// Something for a person, nothing for a pipe.
    pub(crate) fn of_a_terminal_only() -> Self {
        if terminal::is_stderr() {
            Self::of_stderr()
        } else {
            Self::Nothing
        }
    }
}

enum Order {
    Event(Box<EventRecord>),
    Say(String),
    Finish,
}

/// Shows progress until it is finished.
pub(crate) struct Progress {
    sender: Sender<Order>,
    thread: JoinHandle<()>,
}

impl Progress {
    /// Begins to show progress, unless nothing is to be shown.
    pub(crate) fn begin(style: Style) -> std::io::Result<Option<Self>> {
        if style == Style::Nothing {
            return Ok(None);
        }
        let (sender, orders) = channel();
        let thread = std::thread::Builder::new()
            .name("progress".to_owned())
            .spawn(move || match style {
                Style::Live => live(&orders),
                _ => lines(&orders),
            })?;
        Ok(Some(Self { sender, thread }))
    }

    /// What makes the events of a run be shown.
    pub(crate) fn observer(&self) -> Arc<dyn EventObserver> {
        let sender = self.sender.clone();
        Arc::new(move |record: &EventRecord| {
            // A display that is gone is nobody's fault.
            let _ = sender.send(Order::Event(Box::new(record.clone())));
        })
    }

    /// What says something beside what is shown.
    pub(crate) fn teller(&self) -> impl Fn(&str) + Send + Sync + 'static {
        let sender = self.sender.clone();
        move |line| {
            let _ = sender.send(Order::Say(line.to_owned()));
        }
    }

    /// Shows the end and stops.
    pub(crate) fn finish(self) {
        let _ = self.sender.send(Order::Finish);
        let _ = self.thread.join();
        super::gap();
    }
}

fn lines(orders: &Receiver<Order>) {
    let mut tree = Tree::new(Instant::now());
    loop {
        match orders.recv() {
            Ok(Order::Event(record)) => {
                for line in tree.apply(&record, Instant::now()) {
                    let _ = writeln!(std::io::stderr(), "{line}");
                }
            }
            Ok(Order::Say(line)) => super::note(line),
            Ok(Order::Finish) | Err(_) => return,
        }
    }
}

fn live(orders: &Receiver<Order>) {
    let mut tree = Tree::new(Instant::now());
    let mut screen = Screen::new();
    let mut drawn = Instant::now();
    loop {
        match orders.recv_timeout(FRAME) {
            Ok(Order::Event(record)) => {
                tree.apply(&record, Instant::now());
                if drawn.elapsed() < FRAME {
                    continue;
                }
            }
            Ok(Order::Say(line)) => screen.say(&line),
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Order::Finish) | Err(RecvTimeoutError::Disconnected) => break,
        }
        screen.draw(&tree);
        drawn = Instant::now();
    }
    screen.draw(&tree);
}

/// The lines that were drawn last, to be drawn over.
struct Screen {
    lines: usize,
    frame: Frame,
    measured: Instant,
}

impl Screen {
    fn new() -> Self {
        let (columns, rows) = terminal::size();
        Self {
            lines: 0,
            frame: Frame {
                columns,
                rows,
                colour: terminal::wants_colour(),
            },
            measured: Instant::now(),
        }
    }

    /// Puts a line above the tree, which is drawn again below it.
    fn say(&mut self, line: &str) {
        let mut out = std::io::stderr().lock();
        if self.lines > 0 {
            let _ = write!(out, "\x1b[{}A\r\x1b[J", self.lines);
        }
        let _ = writeln!(out, "offshoot: {}", plain(line));
        self.lines = 0;
    }

    fn draw(&mut self, tree: &Tree) {
        if self.measured.elapsed() > MEASURE {
            (self.frame.columns, self.frame.rows) = terminal::size();
            self.measured = Instant::now();
        }
        let lines = tree.draw(self.frame, Instant::now());
        // Without wrapping, a line that is too wide after a resize is cut and not two lines.
        let mut frame = String::from("\x1b[?7l");
        if self.lines > 0 {
            frame.push_str(&format!("\x1b[{}A", self.lines));
        }
        for line in &lines {
            frame.push_str("\r\x1b[2K");
            frame.push_str(line);
            frame.push('\n');
        }
        frame.push_str("\x1b[J\x1b[?7h");
        self.lines = lines.len();
        let mut out = std::io::stderr().lock();
        let _ = out.write_all(frame.as_bytes()).and_then(|()| out.flush());
    }
}
