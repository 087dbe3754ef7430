//! Which crate may depend on which: the table, and its comparison with what the manifests say.
//!
//! Only normal dependencies inside the workspace are judged; a test may use any crate.

use std::collections::BTreeMap;

use anyhow::bail;
use cargo_metadata::{DependencyKind, Metadata};

/// Every crate with the crates that it may depend on, lowest first.
const ALLOWED: &[(&str, &[&str])] = &[
    ("offshoot-core", &[]),
    ("offshoot-task", &["offshoot-core"]),
    ("offshoot-agent", &["offshoot-core"]),
    ("offshoot-subagent", &["offshoot-core", "offshoot-agent"]),
    ("offshoot-shell", &["offshoot-core", "offshoot-task"]),
    ("offshoot-loop", &["offshoot-core", "offshoot-agent"]),
    (
        "offshoot-llm",
        &["offshoot-core", "offshoot-agent", "offshoot-loop"],
    ),
    ("offshoot-inprocess", PROVIDER),
    ("offshoot-acp", PROVIDER),
    ("offshoot-process", PROVIDER),
    ("offshoot-provider-conformance", PROVIDER),
    (
        "offshoot-tools",
        &[
            "offshoot-core",
            "offshoot-task",
            "offshoot-agent",
            "offshoot-subagent",
            "offshoot-shell",
        ],
    ),
    (
        "offshoot-mcp",
        &[
            "offshoot-core",
            "offshoot-task",
            "offshoot-agent",
            "offshoot-subagent",
            "offshoot-tools",
        ],
    ),
    (
        "offshoot",
        &[
            "offshoot-core",
            "offshoot-task",
            "offshoot-agent",
            "offshoot-subagent",
            "offshoot-shell",
            "offshoot-loop",
            "offshoot-llm",
            "offshoot-inprocess",
            "offshoot-acp",
            "offshoot-process",
            "offshoot-tools",
            "offshoot-mcp",
        ],
    ),
    ("offshoot-model-server", &[]),
    ("offshoot-cli", &["offshoot"]),
    ("offshoot-tests", &["offshoot"]),
    ("offshoot-peers", &[]),
    ("xtask", &["offshoot"]),
];

const PROVIDER: &[&str] = &["offshoot-core", "offshoot-agent", "offshoot-subagent"];

/// The crates of a workspace with their normal dependencies inside it.
type Arrows = BTreeMap<String, Vec<String>>;

/// Fails with every arrow that the table does not have.
pub(crate) fn run() -> anyhow::Result<()> {
    let faults = faults(&arrows(&crate::workspace()?));
    if faults.is_empty() {
        return Ok(());
    }
    bail!("the layers do not hold:\n  {}", faults.join("\n  "));
}

fn arrows(metadata: &Metadata) -> Arrows {
    let members = metadata.workspace_packages();
    let is_member = |name: &str| members.iter().any(|member| member.name == name);
    members
        .iter()
        .map(|member| {
            let normal = member.dependencies.iter().filter(|dependency| {
                dependency.kind == DependencyKind::Normal && is_member(&dependency.name)
            });
            let names = normal.map(|dependency| dependency.name.clone());
            (member.name.to_string(), names.collect())
        })
        .collect()
}

fn faults(arrows: &Arrows) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    let mut faults = Vec::new();
    for (name, dependencies) in arrows {
        let Some(may) = allowed.get(name.as_str()) else {
            faults.push(format!("{name} is not in the table of xtask/src/layers.rs"));
            continue;
        };
        for dependency in dependencies {
            if !may.contains(&dependency.as_str()) {
                faults.push(format!("{name} must not depend on {dependency}"));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_of(arrows: &[(&str, &[&str])]) -> Arrows {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        arrows
            .iter()
            .map(|(name, dependencies)| ((*name).to_owned(), owned(dependencies)))
            .collect()
    }

    #[test]
    fn a_forbidden_arrow_is_named() {
        let arrows = made_of(&[
            ("offshoot-core", &["offshoot-task"]),
            ("offshoot-task", &["offshoot-core"]),
            ("offshoot-cli", &["offshoot", "offshoot-core"]),
        ]);
        let expected = [
            "offshoot-cli must not depend on offshoot-core",
            "offshoot-core must not depend on offshoot-task",
        ];
        assert_eq!(faults(&arrows), expected);
    }

    #[test]
    fn an_unknown_crate_is_named() {
        let expected = ["offshoot-extra is not in the table of xtask/src/layers.rs"];
        assert_eq!(faults(&made_of(&[("offshoot-extra", &[])])), expected);
    }

    #[test]
    fn the_table_goes_only_downwards_and_names_only_its_own_crates() {
        for (i, (name, may)) in ALLOWED.iter().enumerate() {
            for lower in *may {
                assert!(
                    ALLOWED[..i].iter().any(|(known, _)| known == lower),
                    "{name} -> {lower}"
                );
            }
        }
    }

    #[test]
    fn the_arrows_are_read_from_the_manifests() {
        let arrows = arrows(&crate::workspace().expect("cargo metadata"));
        assert_eq!(arrows.get("offshoot-core"), Some(&Vec::new()));
        assert_eq!(
            arrows.get("offshoot-task"),
            Some(&vec!["offshoot-core".to_owned()])
        );
        assert_eq!(faults(&arrows), [""; 0]);
    }
}
