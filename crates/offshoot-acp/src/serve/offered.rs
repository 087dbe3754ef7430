//! MCP servers that a client offers a session. They are not used, and it is told so: a session has the
//! tools of this runtime.

use std::fmt;

use offshoot_core::text::one_line;
use serde_json::{Value, json};

/// The longest name that is repeated, in bytes.
const MAX_NAME: usize = 60;

/// How many are named.
const MOST: usize = 10;

/// The MCP servers that a client wanted a session to use.
#[derive(Debug, PartialEq, Eq)]
pub struct UnusedServers {
    named: Vec<String>,
    more: usize,
}

impl UnusedServers {
    /// Those of the request for a session; `None` when it names none.
    pub(super) fn of(params: &Value) -> Option<Self> {
        let offered = params.get("mcpServers")?.as_array()?;
        let names = offered.iter().take(MOST).map(|server| {
            let name = server.get("name").and_then(Value::as_str);
            one_line(name.unwrap_or("?"), MAX_NAME)
        });
        let unused = Self {
            named: names.collect(),
            more: offered.len().saturating_sub(MOST),
        };
        (!offered.is_empty()).then_some(unused)
    }

    /// What a client may read of it in the answer to its request.
    pub(super) fn meta(&self) -> Value {
        json!({ "offshoot/unusedMcpServers": self.named })
    }
}

/// Their names, the first ten of them, in one line.
impl fmt::Display for UnusedServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named.join(", "))?;
        match self.more {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}
