//! The committed snapshots of what a model sees: tool schemas and prompt sections.

mod snapshots;

use std::io::Write as _;

use anyhow::{Context as _, bail, ensure};
use offshoot::tools::schema::Variant;
use serde_json::Value;

use snapshots::Snapshots;

/// The folder of the snapshots in the workspace.
const FOLDER: &str = "tests/schemas";

/// What to do about snapshots that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Write them anew.
    Write,
    /// Show the differences and fail.
    Check,
}

pub(crate) fn run(mode: Mode) -> anyhow::Result<()> {
    let folder = crate::workspace()?.workspace_root.join(FOLDER);
    let folder = folder.as_std_path();
    let snapshots = of_this_build()?;
    if mode == Mode::Write {
        return snapshots.write(folder);
    }
    let differences = snapshots.differences(folder)?;
    if differences.is_empty() {
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    for difference in &differences {
        write!(out, "{difference}").context("writing the differences")?;
    }
    out.flush().context("writing the differences")?;
    bail!(
        "{} of the snapshots in {FOLDER} differ from the code; if that is meant, run `cargo xtask schemas` and commit",
        differences.len()
    );
}

/// Where the data comes from: what this build shows to a model.
struct Source {
    /// The tools of a variant by name, each with its schema.
    tool_schemas: fn(variant: Variant) -> Vec<(String, Value)>,
    /// The sections of the prompt by name.
    prompt_sections: fn() -> Vec<(String, String)>,
}

const SOURCE: Source = Source {
    tool_schemas: offshoot::snapshots::tool_schemas,
    prompt_sections: offshoot::snapshots::prompt_sections,
};

fn of_this_build() -> anyhow::Result<Snapshots> {
    let tools = Variant::ALL.map(|variant| (variant.name(), (SOURCE.tool_schemas)(variant)));
    let snapshots = Snapshots::new(tools, (SOURCE.prompt_sections)())?;
    // Nothing to compare would pass every check.
    ensure!(
        !snapshots.is_empty(),
        "this build shows no tools to a model"
    );
    Ok(snapshots)
}
