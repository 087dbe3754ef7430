use serde_json::json;

use super::{Lookup, PlaceholderError, check, expand, expand_json};

struct Agent;

impl Lookup for Agent {
    fn self_id(&self) -> Option<String> {
        Some("me".to_owned())
    }

    fn parent(&self) -> Option<String> {
        None
    }

    fn child(&self, label: Option<&str>) -> Option<String> {
        match label {
            None => Some("youngest".to_owned()),
            Some("sizes of it") => Some("sizer".to_owned()),
            Some(_) => None,
        }
    }

    fn task(&self, n: Option<usize>) -> Option<String> {
        Some(n.map_or("bash-9".to_owned(), |n| format!("bash-{n}")))
    }

    fn last_result(&self) -> Option<String> {
        Some("${self}".to_owned())
    }

    fn last_notice(&self) -> Option<String> {
        Some("noticed".to_owned())
    }

    fn last_message(&self) -> Option<String> {
        Some("界".to_owned())
    }
}

#[test]
fn every_name_is_filled_in() {
    let text =
        "${self} ${child} ${child:sizes of it} ${task} ${task:2} ${last_notice}${last_message}";
    let expanded = "me youngest sizer bash-9 bash-2 noticed界";
    assert_eq!(expand(text, &Agent).as_deref(), Ok(expanded));
}

#[test]
fn what_is_filled_in_is_not_looked_at_again() {
    assert_eq!(
        expand("<${last_result}>", &Agent).as_deref(),
        Ok("<${self}>")
    );
}

#[test]
fn other_braces_are_left_as_they_are() {
    for text in [
        "",
        "$",
        "${",
        "}",
        "${HOME} ${x:-1} $self {self}",
        "${self",
        "${Self}",
        "${}",
        "${self:-x}",
    ] {
        assert_eq!(check(text), Ok(()));
        assert_eq!(expand(text, &Agent).as_deref(), Ok(text));
    }
    assert_eq!(expand("${x:-${self}}$", &Agent).as_deref(), Ok("${x:-me}$"));
}

#[test]
fn one_that_stands_for_nothing_is_named() {
    for placeholder in ["${parent}", "${child:nobody}"] {
        let error = PlaceholderError::Unresolvable {
            placeholder: placeholder.to_owned(),
        };
        assert_eq!(expand(&format!("a {placeholder} b"), &Agent), Err(error));
        assert_eq!(check(placeholder), Ok(()));
    }
}

#[test]
fn a_malformed_one_is_an_error_before_any_lookup() {
    let message = |text| check(text).map_err(|error| error.to_string());
    let task = |text: &str| {
        Err(format!(
            "malformed placeholder `{text}`, expected `${{task:N}}` with N from 1"
        ))
    };
    assert_eq!(message("${task:0}"), task("${task:0}"));
    assert_eq!(message("${parent} ${task:x}"), task("${task:x}"));
    assert_eq!(
        message("${child:}"),
        Err("malformed placeholder `${child:}`, expected `${child:LABEL}`".to_owned())
    );
}

#[test]
fn every_string_inside_json_is_filled_in_and_keys_are_not() {
    let json = json!({"${self}": ["${self}", {"id": "<${task:1}>"}], "n": 1, "b": true, "z": null});
    let expanded = json!({"${self}": ["me", {"id": "<bash-1>"}], "n": 1, "b": true, "z": null});
    assert_eq!(expand_json(&json, &Agent), Ok(expanded));
    assert!(expand_json(&json!(["${parent}"]), &Agent).is_err());
}
