//! A kind of long work as a type.

use crate::context::TaskContext;
use crate::error::StarterError;
use crate::spec::TaskSpec;
use crate::status::TaskOutcome;

/// A kind of long work as a type of its own: what a task of it is called, what must be started before
/// there is a task, and the work.
///
/// [`TaskRegistry::launch`](crate::TaskRegistry::launch) runs one. Work that is a closure needs no
/// such type: see [`TaskRegistry::spawn`](crate::TaskRegistry::spawn).
///
/// # Implementing
///
/// `spec` and `run` are enough. `run` should end soon after
/// [`TaskContext::cancelled`](crate::TaskContext::cancelled) completes; when it does not end in the
/// grace it is dropped, and then its drop must release what it owns. A panic anywhere is contained.
///
/// ```
/// use offshoot_task::{Producer, TaskContext, TaskOutcome, TaskSpec};
///
/// struct Render { frames: u64 }
///
/// impl Producer for Render {
///     fn spec(&self) -> TaskSpec {
///         TaskSpec::new("render", format!("{} frames", self.frames))
///     }
///
///     async fn run(self, context: TaskContext) -> TaskOutcome {
///         for frame in 0..self.frames {
///             if context.stop_request().is_some() {
///                 return TaskOutcome::killed();
///             }
///             context.progress(frame, self.frames, "rendering");
///             tokio::task::yield_now().await;
///         }
///         TaskOutcome::completed()
///     }
/// }
/// ```
pub trait Producer: Sized + Send + 'static {
    /// What is said of the task before it starts.
    fn spec(&self) -> TaskSpec;

    /// Starts what the work needs (a process, a connection). Called once, after the task was found
    /// admissible and a place was reserved for it, outside every lock; it must not block.
    ///
    /// # Errors
    ///
    /// Whatever went wrong: then nothing is registered and no id is used.
    fn begin(&mut self, context: &TaskContext) -> Result<(), StarterError> {
        let _ = context;
        Ok(())
    }

    /// The work, from the first poll to its one end.
    fn run(self, context: TaskContext) -> impl Future<Output = TaskOutcome> + Send + 'static;
}
