//! The variants of the tool schemas, judged by the official SDKs of those who take them.

use std::path::Path;
use std::time::Duration;

use offshoot_peers::{Home, Package, catalog};

/// Runs a check over the committed snapshots; it answers with the number of tools that it saw.
fn check(sdk: Package, script: &str) {
    let Some(sdk) = sdk.ready() else { return };
    let schemas = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
    let tools = std::fs::read_dir(schemas.join("mcp")).expect("the snapshots");
    let home = Home::new();
    let answer = home
        .command(sdk.program("python"))
        .args(["-c", script])
        .arg(&schemas)
        .run(Duration::from_secs(120))
        .success();
    home.assert_no_process_left();
    assert_eq!(answer.trim(), tools.count().to_string());
}

#[test]
fn b134_openai_takes_the_strict_variant_as_it_is() {
    check(
        catalog::OPENAI_SDK,
        include_str!("vendors/openai_strict.py"),
    );
}

#[test]
fn b134_anthropic_takes_its_variant() {
    check(catalog::ANTHROPIC_SDK, include_str!("vendors/anthropic.py"));
}

#[test]
fn b134_gemini_takes_its_variant() {
    check(catalog::GOOGLE_GENAI_SDK, include_str!("vendors/gemini.py"));
}
