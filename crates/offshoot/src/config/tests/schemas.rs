//! Schemas of answers: tables and files.

use serde_json::json;

use super::*;

#[test]
fn a_schema_is_a_table_or_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("answer.json");
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    std::fs::write(&path, schema.to_string()).expect("a file");
    let path = path.display();
    let table = "{ type = \"object\", properties = { n = { type = \"integer\" } } }";
    for value in [table.to_owned(), format!("'{path}'")] {
        let text = format!("[[subagent]]\nbackground_mode = \"one-shot\"\noutput_schema = {value}");
        let config = toml(&text).expect("a good file");
        let read = config.subagent[0].output_schema.as_ref();
        assert_eq!(read.map(|it| it.schema()), Some(&schema), "{value}");
    }
    std::fs::write(folder.path().join("answer.json"), "{").expect("a file");
    let text = format!("[[subagent]]\nbackground_mode = \"one-shot\"\noutput_schema = '{path}'");
    let error = toml(&text).expect_err("not JSON");
    assert_eq!(
        (error.code(), error.key()),
        ("CONFIG_SYNTAX", "subagent[0].output_schema")
    );
}

#[test]
fn a_schema_file_is_beside_the_file_that_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let schema = json!({ "type": "object" });
    std::fs::write(folder.path().join("answer.json"), schema.to_string()).expect("a file");
    let file = folder.path().join("offshoot.toml");
    let text = "[[subagent]]\nbackground_mode = \"one-shot\"\noutput_schema = \"answer.json\"";
    std::fs::write(&file, text).expect("a file");
    let config = ConfigLayers::new().file(&file).and_then(|it| it.build());
    let config = config.expect("a good file");
    let read = config.subagent[0].output_schema.as_ref();
    assert_eq!(read.map(|it| it.schema()), Some(&schema));
    // Text has no folder.
    assert_eq!(toml(text).expect_err("no file").code(), "CONFIG_READ");
}
