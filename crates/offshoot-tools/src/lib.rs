//! The tools that a model delegates with, their prompt sections, and the notices that tell an agent
//! how its background work ended.
//!
//! - [`Toolbox`]: all of them over one task registry and one delegation service.
//! - Arguments are read leniently and schemas are written strictly: see [`arguments`] and [`schema`].
//! - Every text that a model reads is written in this crate, from typed values and errors.

pub mod arguments;
mod bash;
mod fit;
mod handed;
mod interrupt_agent;
mod kept_files;
mod list_agents;
mod live;
mod notices;
mod past;
mod quote;
mod records;
mod refusal;
mod rule;
pub mod schema;
mod sections;
mod send_message;
mod settings;
mod shape;
mod subagent;
mod task_kill;
mod task_list;
mod task_output;
mod task_view;
mod toolbox;
mod unsaid;

pub use notices::EVENT_TYPES;
pub use past::open_tasks;
pub use records::TaskRecords;
pub use rule::TaskRule;
pub use settings::{
    BashSettings, NoticeSettings, SubagentToolSettings, TaskOutputSettings, ToolsSettings,
};
pub use shape::NOTICE_PREFIX;
pub use toolbox::Toolbox;
