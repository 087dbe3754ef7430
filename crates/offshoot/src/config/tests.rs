//! How configurations are read, by subject.

mod faults;
mod layers;
mod programs;
mod read;
mod schemas;

use super::*;

/// Tools and providers of all kinds.
const CHILDREN: &str = r#"
[[subagent]]
tool_name = "ask"
provider = "peer"
background_mode = "one-shot"
enable_run_in_background = false
[[subagent]]
tool_name = "terse"
persona = "You are terse."
tool_filter = { deny = ["bash"] }
[[acp]]
name = "peer"
command = "some-agent"
args = ["--acp"]
permission = "allow"
[[process]]
name = "cli"
command = "some-program"
args = ["exec", "--json", "{prompt}"]
env = { A_TOKEN = "x" }
env_allow = ["B_*"]
cwd = "sub"
timeout_ms = 5000
answer = "item.text"
output_tokens = "usage.output"
exit_codes = { 0 = "completed", 3 = "refusal" }
"#;

fn toml(text: &str) -> Result<Config, ConfigError> {
    ConfigLayers::new().toml("f.toml", text)?.build()
}

/// What comes of it, in one line.
fn shown(result: Result<Config, ConfigError>) -> String {
    match result {
        Ok(_) => "accepted".to_owned(),
        Err(error) => {
            let line = error.to_string();
            assert!(!line.contains('\n'), "{line:?}");
            format!("{} {line}", error.code())
        }
    }
}
