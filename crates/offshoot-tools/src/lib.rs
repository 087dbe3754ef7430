//! The tools that a model delegates with, their prompt sections, and the notices that tell an agent
//! how its background work ended.

mod settings;
mod toolbox;

pub use settings::{
    BashSettings, NoticeSettings, SubagentToolSettings, TaskOutputSettings, ToolsSettings,
};
pub use toolbox::Toolbox;
