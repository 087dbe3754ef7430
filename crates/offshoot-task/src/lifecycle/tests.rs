//! The state machine against its table and against a model that remembers the whole history.

use proptest::prelude::*;

use super::*;
use crate::status::StoppedBy::{Deadline, Human, Model, Owner, Service};
use crate::status::TaskStatus::{Completed, Failed, Killed, Running, Stopping};

/// Tells everything there is to tell.
fn drain(life: &mut Lifecycle) -> Vec<TaskChange> {
    let mut changes = Vec::new();
    while let Some(change) = life.tell() {
        life.told();
        life.check();
        changes.push(change);
    }
    changes
}

#[test]
fn the_whole_table_of_stops_and_ends() {
    // (status before, event) -> (effect, status after, reported after)
    use StopEffect::{AlreadyFinished, AlreadyStopping, Cancel};
    for by in [Model, Human, Owner, Service, Deadline] {
        let silent = matches!(by, Model | Owner | Service);
        let mut life = Lifecycle::running();
        assert_eq!(life.stop(by), Cancel);
        assert_eq!(
            (life.status(), life.is_reported()),
            (Stopping, silent),
            "{by}"
        );
        let before = life;
        assert_eq!(life.stop(Model), AlreadyStopping);
        assert_eq!(life, before, "a repeated stop changes nothing");
        for end in [Completed, Killed, Failed] {
            let mut life = before;
            assert!(life.settle(end));
            assert_eq!((life.status(), life.is_reported()), (end, silent));
            let before = life;
            for late in [Completed, Killed, Failed] {
                assert!(!life.settle(late));
                assert_eq!(life, before, "a late end changes nothing");
            }
            assert_eq!(life.stop(by), AlreadyFinished);
            assert_eq!(life.is_reported(), silent || by == Model);
        }
    }
    // A teardown silences what a person had stopped.
    let mut life = Lifecycle::running();
    life.stop(Human);
    assert_eq!(life.tear_down(Owner), AlreadyStopping);
    assert!(life.is_reported());
    // It does not report what had ended before.
    let mut life = Lifecycle::running();
    life.settle(Completed);
    assert_eq!(life.tear_down(Owner), AlreadyFinished);
    assert!(!life.is_reported());
}

#[test]
fn a_stop_that_was_overtaken_by_the_end_is_still_told_first() {
    let mut life = Lifecycle::running();
    assert_eq!(life.tell(), Some(TaskChange::Started));
    life.stop(Human);
    life.settle(Killed);
    assert_eq!(life.tell(), None, "one at a time");
    life.told();
    assert_eq!(
        drain(&mut life),
        [TaskChange::Stopping, TaskChange::Settled]
    );
}

#[test]
fn a_lost_task_tells_only_that_it_was_collected() {
    let mut life = Lifecycle::ended(TaskStatus::Failed);
    assert_eq!(drain(&mut life), []);
    life.arrive();
    life.commit_claim();
    assert_eq!(drain(&mut life), [TaskChange::Collected]);
    life.remove();
    assert_eq!(drain(&mut life), [TaskChange::Removed]);
    assert!(life.is_over());
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Stop(StoppedBy),
    TearDown,
    Settle(TaskStatus),
    Arrive,
    Leave,
    Commit,
    Remove,
    Tell,
    Told,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        prop_oneof![Just(Model), Just(Human), Just(Deadline)].prop_map(Event::Stop),
        Just(Event::TearDown),
        prop_oneof![Just(Completed), Just(Killed), Just(Failed)].prop_map(Event::Settle),
        Just(Event::Arrive),
        Just(Event::Arrive),
        Just(Event::Leave),
        Just(Event::Commit),
        Just(Event::Remove),
        Just(Event::Tell),
        Just(Event::Tell),
        Just(Event::Told),
    ]
}

/// What happened, in plain words: nothing here is derived from `Lifecycle`.
#[derive(Debug, Default)]
struct History {
    stopped_first_by: Option<StoppedBy>,
    end: Option<TaskStatus>,
    shown: bool,
    silenced: bool,
    visitors: u32,
    removed: bool,
    telling: bool,
    told: Vec<TaskChange>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn every_history_agrees_with_the_model(events in prop::collection::vec(event(), 0..60)) {
        let mut life = Lifecycle::running();
        let mut model = History::default();
        for event in events {
            match event {
                Event::Stop(by) => {
                    life.stop(by);
                    if model.end.is_some() {
                        model.shown |= by == Model;
                    } else if model.stopped_first_by.is_none() {
                        model.stopped_first_by = Some(by);
                        model.silenced |= by == Model;
                    }
                }
                Event::TearDown => {
                    life.tear_down(Owner);
                    if model.end.is_none() {
                        model.silenced = true;
                        model.stopped_first_by.get_or_insert(Owner);
                    }
                }
                Event::Settle(status) => {
                    prop_assert_eq!(life.settle(status), model.end.is_none());
                    model.end.get_or_insert(status);
                }
                Event::Arrive if !model.removed => {
                    let arrival = life.arrive();
                    prop_assert_eq!(arrival == Arrival::Claimed, model.end.is_some());
                    model.visitors += 1;
                }
                Event::Leave if model.visitors > 0 => {
                    life.leave();
                    model.visitors -= 1;
                }
                Event::Commit if model.visitors > 0 && model.end.is_some() => {
                    life.commit_claim();
                    model.visitors -= 1;
                    model.shown = true;
                }
                Event::Remove if model.end.is_some() => {
                    life.remove();
                    model.removed = true;
                }
                Event::Tell if !model.telling => {
                    if let Some(change) = life.tell() {
                        model.telling = true;
                        model.told.push(change);
                    }
                }
                Event::Told if model.telling => {
                    life.told();
                    model.telling = false;
                }
                _ => continue,
            }
            life.check();
            let live = if model.stopped_first_by.is_some() { Stopping } else { Running };
            prop_assert_eq!(life.status(), model.end.unwrap_or(live));
            let shown = model.shown || model.silenced;
            let showing = model.end.is_some() && model.visitors > 0;
            prop_assert_eq!(life.is_reported(), shown || showing);
        }
        // Everybody leaves, everything is told.
        for _ in 0..model.visitors {
            life.leave();
        }
        if model.telling {
            life.told();
        }
        model.told.extend(drain(&mut life));
        let order = |change: &TaskChange| match change {
            TaskChange::Started => 0,
            TaskChange::Stopping => 1,
            TaskChange::Settled => 2,
            TaskChange::NoticeDue | TaskChange::Collected => 3,
            TaskChange::Removed => 4,
        };
        prop_assert!(model.told.is_sorted_by_key(order), "{:?}", model.told);
        let count = |wanted| model.told.iter().filter(|change| **change == wanted).count();
        prop_assert_eq!(count(TaskChange::Started), 1);
        prop_assert_eq!(count(TaskChange::Stopping), usize::from(model.stopped_first_by.is_some()));
        prop_assert_eq!(count(TaskChange::Settled), usize::from(model.end.is_some()));
        prop_assert_eq!(count(TaskChange::Removed), usize::from(model.removed));
        prop_assert_eq!(life.is_over(), model.removed);
        if model.end.is_some() && !model.removed {
            // Whoever follows the announcements ends with the truth.
            let shown = model.shown || model.silenced;
            prop_assert_eq!(life.told.due, !shown);
        }
    }
}
