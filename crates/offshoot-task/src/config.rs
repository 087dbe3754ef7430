//! The settings of a registry.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use offshoot_core::{SystemClock, WallClock};

/// The settings of a [`TaskRegistry`](crate::TaskRegistry). Start from the default and change what
/// should differ.
///
/// ```
/// use offshoot_task::TaskConfig;
/// let config = TaskConfig { max_live_per_owner: 3, ..TaskConfig::default() };
/// ```
#[derive(Clone)]
pub struct TaskConfig {
    /// How many tasks of one owner may be live at a time (10). With 0 every start is refused.
    pub max_live_per_owner: usize,
    /// How long the closing of an owner, or the shutdown of the registry, waits for stopped tasks
    /// before it aborts them (5 s).
    pub teardown_grace: Duration,
    /// How long a task that was killed, or passed its deadline, may take to end before it is aborted
    /// (30 s). `None`: for ever.
    pub kill_grace: Option<Duration>,
    /// How many finished and reported tasks of one owner are kept (100); the longest reported goes
    /// first. Those that nobody has read are kept until they are read.
    pub retain_finished: usize,
    /// How many bytes of output are kept for a task (256 KiB): the last ones.
    pub output_window: usize,
    /// Whether tasks without an owner may be started (no). Everybody has access to them.
    pub allow_unowned: bool,
    /// Whether a start is refused when no [`Controller`](crate::Controller) serves its owner (no:
    /// whoever has the registry is able to look after tasks).
    pub require_controller: bool,
    /// Where the times that are shown come from.
    pub clock: Arc<dyn WallClock>,
}

impl Default for TaskConfig {
    fn default() -> Self {
        Self {
            max_live_per_owner: 10,
            teardown_grace: Duration::from_secs(5),
            kill_grace: Some(Duration::from_secs(30)),
            retain_finished: 100,
            output_window: 256 * 1024,
            allow_unowned: false,
            require_controller: false,
            clock: Arc::new(SystemClock),
        }
    }
}

impl fmt::Debug for TaskConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskConfig")
            .field("max_live_per_owner", &self.max_live_per_owner)
            .field("teardown_grace", &self.teardown_grace)
            .field("kill_grace", &self.kill_grace)
            .field("retain_finished", &self.retain_finished)
            .field("output_window", &self.output_window)
            .field("allow_unowned", &self.allow_unowned)
            .field("require_controller", &self.require_controller)
            .finish_non_exhaustive()
    }
}
