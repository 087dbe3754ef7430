//! What an agent is shown: its tools and the sections of its prompt.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use offshoot_agent::{
    FilterError, Prompt, PromptSection, Tool, ToolCall, ToolFilter, ToolOutput, ToolSet,
};
use serde_json::Value;

struct Named {
    name: &'static str,
    says: &'static str,
    inherited: bool,
}

impl Tool for Named {
    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> &str {
        self.says
    }

    fn input_schema(&self) -> &Value {
        &Value::Null
    }

    fn is_inherited(&self) -> bool {
        self.inherited
    }

    fn call(&self, _: ToolCall) -> BoxFuture<'_, ToolOutput> {
        std::future::ready(ToolOutput::text(self.says)).boxed()
    }
}

fn tool(name: &'static str, says: &'static str) -> Arc<dyn Tool> {
    Arc::new(Named {
        name,
        says,
        inherited: true,
    })
}

fn own(name: &'static str) -> Arc<dyn Tool> {
    Arc::new(Named {
        name,
        says: "own",
        inherited: false,
    })
}

fn tools(names: &[&'static str]) -> ToolSet {
    ToolSet::new(names.iter().map(|name| tool(name, name)))
}

fn names(set: &ToolSet) -> Vec<&str> {
    set.iter().map(|tool| tool.name()).collect()
}

fn filter(allow: Option<&[&str]>, deny: Option<&[&str]>) -> ToolFilter {
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    ToolFilter {
        allow: allow.map(list),
        deny: deny.map(list),
    }
}

#[test]
fn a94_sections_come_in_their_order_and_in_that_of_addition_within_one_place() {
    let prompt = Prompt::new([
        PromptSection::for_tool("b", 101, "on b"),
        PromptSection::new("first", 100, "first at 100"),
        PromptSection::persona("persona"),
        PromptSection::for_tool("a", 100, "on a"),
        PromptSection::new("identity", -100, "identity"),
        PromptSection::new("silent", -50, ""),
    ]);
    assert_eq!(
        prompt.render(&tools(&["a", "b"])),
        "identity\n\npersona\n\nfirst at 100\n\non a\n\non b"
    );
    let keys: Vec<_> = prompt
        .sections()
        .map(|section| section.key.as_str())
        .collect();
    assert_eq!(
        keys,
        ["identity", "silent", "persona", "first", "tool:a", "tool:b"]
    );
}

#[test]
fn a94_guidance_is_shown_only_beside_its_tool() {
    let prompt = Prompt::new([
        PromptSection::for_tool("a", 100, "on a"),
        PromptSection::for_tool("b", 101, "on b"),
    ]);
    let all = tools(&["b", "a"]);
    assert_eq!(prompt.render(&all), "on a\n\non b");
    let masked = all.restrict(&filter(None, Some(&["a"]))).expect("a filter");
    assert_eq!(prompt.render(&masked), "on b");
}

#[test]
fn a97_a_prompt_that_shows_nothing_is_empty_text() {
    assert_eq!(Prompt::default().render(&tools(&["a"])), "");
    let hidden = Prompt::new([PromptSection::for_tool("a", 100, "on a")]);
    assert_eq!(hidden.render(&ToolSet::default()), "");
}

#[test]
fn a217_a_section_takes_the_place_of_its_namesake_in_one_agent_only() {
    let shared = Prompt::new([
        PromptSection::persona("shared"),
        PromptSection::new("rules", 10, "rules"),
    ]);
    let mine = shared.with(PromptSection::new(PromptSection::PERSONA, 20, "mine"));
    assert_eq!(mine.render(&ToolSet::default()), "rules\n\nmine");
    assert_eq!(shared.render(&ToolSet::default()), "shared\n\nrules");
}

#[test]
fn a101_a201_tools_keep_their_order_and_a_later_one_shadows_its_namesake_in_one_agent_only() {
    let shared = tools(&["b", "a", "c"]);
    let mine = shared.with(tool("a", "mine"));
    assert_eq!(
        names(&mine),
        ["b", "a", "c"],
        "in the place of its namesake"
    );
    assert_eq!(mine.get("a").map(|tool| tool.description()), Some("mine"));
    assert_eq!(shared.get("a").map(|tool| tool.description()), Some("a"));
    assert_eq!(names(&shared.with(tool("d", "d"))), ["b", "a", "c", "d"]);
    let twice = ToolSet::new([tool("a", "first"), tool("a", "second")]);
    assert_eq!(names(&twice), ["a"]);
    assert_eq!(
        twice.get("a").map(|tool| tool.description()),
        Some("second")
    );
}

#[test]
fn a200_a_filter_masks_the_listing_and_the_look_up_alike() {
    let all = tools(&["a", "b", "c"]);
    for (filter, left) in [
        (filter(Some(&["c", "a"]), None), vec!["a", "c"]),
        (filter(None, Some(&["b"])), vec!["a", "c"]),
        (filter(Some(&["a", "b"]), Some(&["b"])), vec!["a"]),
        (filter(Some(&["a"]), Some(&[])), vec!["a"]),
        (filter(Some(&[]), None), vec![]),
    ] {
        let masked = all.restrict(&filter).expect("a filter");
        assert_eq!(names(&masked), left, "{filter:?}");
        for name in ["a", "b", "c"] {
            let seen = masked.get(name).is_some();
            assert_eq!(seen, left.contains(&name), "{name} under {filter:?}");
        }
    }
    assert_eq!(names(&all), ["a", "b", "c"], "the whole set is as it was");
}

#[test]
fn a200_a_mask_reaches_descendants_and_two_of_them_intersect() {
    let root = tools(&["a", "b", "c"]);
    let child = root
        .restrict(&filter(None, Some(&["a"])))
        .expect("a filter");
    let grandchild = child.inherited().restrict(&filter(Some(&["b"]), None));
    assert_eq!(names(&grandchild.expect("a filter")), ["b"]);
    // What is hidden from the parent is unknown below it.
    let refused = child.restrict(&filter(Some(&["a"]), None)).unwrap_err();
    assert_eq!(refused, FilterError::UnknownTool("a".to_owned()));
}

#[test]
fn a200_own_tools_are_exempt_and_not_inherited() {
    let parent = tools(&["a", "b"]).with(own("mine"));
    assert_eq!(names(&parent.inherited()), ["a", "b"]);
    let child = parent.inherited().restrict(&filter(Some(&["a"]), None));
    let child = child.expect("a filter").with(own("b"));
    assert_eq!(
        names(&child),
        ["a", "b"],
        "a tool of its own, though `b` is masked"
    );
    assert_eq!(child.get("b").map(|tool| tool.description()), Some("own"));
    let refused = parent.inherited().restrict(&filter(None, Some(&["mine"])));
    assert_eq!(
        refused.unwrap_err(),
        FilterError::UnknownTool("mine".to_owned())
    );
}

#[test]
fn a200_a_filter_that_says_nothing_or_names_nobody_is_refused() {
    let all = tools(&["a", "b"]);
    for empty in [filter(None, None), filter(None, Some(&[]))] {
        assert_eq!(all.restrict(&empty).unwrap_err(), FilterError::Empty);
    }
    for unknown in [
        filter(Some(&["a", "nope"]), None),
        filter(None, Some(&["nope"])),
        filter(Some(&["a"]), Some(&["nope"])),
        filter(Some(&["A"]), None),
    ] {
        let refused = all.restrict(&unknown).unwrap_err();
        let expected = unknown.allow.iter().chain(&unknown.deny).flatten();
        let expected = expected.last().cloned().unwrap_or_default();
        assert_eq!(refused, FilterError::UnknownTool(expected), "{unknown:?}");
    }
}
