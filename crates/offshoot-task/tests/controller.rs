//! Controllers: where the settings want one, nothing is started that nobody can look after.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use common::*;
use offshoot_core::Scope;
use offshoot_task::*;

fn strict() -> (TaskRegistry, Scope) {
    fixture_with(|config| {
        config.require_controller = true;
        config.allow_unowned = true;
    })
}

fn refused(registry: &TaskRegistry, owner: Option<&Scope>) -> bool {
    let spec = TaskSpec::new("bash", "a label");
    let started = match owner {
        Some(owner) => registry.start(owner, spec, |_| Ok(pending())),
        None => registry.start_unowned(spec, |_| Ok(pending())),
    };
    started.is_err_and(|error| error.code() == "NO_CONTROLLER")
}

#[tokio::test]
async fn t20_no_start_without_a_controller_whatever_else_is_wrong() {
    let (registry, owner) = strict();
    let error = registry.start(&owner, TaskSpec::new("", ""), never);
    let error = error.unwrap_err();
    assert_eq!(error.code(), "NO_CONTROLLER");
    assert!(
        error
            .to_string()
            .contains("no task controller serves this owner")
    );
    let spawned = registry.spawn(&owner, TaskSpec::new("a", "b"), async |_| {
        TaskOutcome::completed()
    });
    assert_eq!(spawned.unwrap_err().code(), "NO_CONTROLLER");
    assert_eq!((registry.list(owner.id()).len(), owner.holds()), (0, 0));
}

#[tokio::test]
async fn t21_a_controller_of_one_scope_serves_it_and_what_is_within() {
    let (registry, owner) = strict();
    let (inner, other) = (owner.child("inner").unwrap(), Scope::root("other"));
    let _controller = registry.attach_controller_within(&owner);
    assert!(!refused(&registry, Some(&owner)) && !refused(&registry, Some(&inner)));
    assert!(refused(&registry, Some(&other)) && refused(&registry, None));
    let _inner = registry.attach_controller_within(&other.child("within").unwrap());
    assert!(refused(&registry, Some(&other)), "not upwards");
}

#[tokio::test]
async fn t22_a_controller_for_everybody_serves_everybody() {
    let (registry, owner) = strict();
    let _controller = registry.attach_controller();
    assert!(!refused(&registry, Some(&owner)) && !refused(&registry, None));
}

#[tokio::test]
async fn t94_t95_t97_t98_controllers_are_counted_and_the_last_one_that_goes_counts() {
    let (registry, owner) = strict();
    let first = registry.attach_controller_within(&owner);
    let second = registry.attach_controller_within(&owner);
    drop(first);
    assert!(!refused(&registry, Some(&owner)), "one is left");
    drop(second);
    assert!(refused(&registry, Some(&owner)));
    assert_eq!(registry.live_count(owner.id()), 1, "what runs goes on");
}

#[tokio::test]
async fn without_the_setting_nobody_has_to_be_attached() {
    let (registry, owner) = fixture();
    assert!(!refused(&registry, Some(&owner)));
}
