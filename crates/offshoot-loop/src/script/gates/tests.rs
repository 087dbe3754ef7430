use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use super::Gates;

#[derive(Clone, Default)]
struct Trace(Arc<Mutex<Vec<&'static str>>>);

impl Trace {
    fn push(&self, what: &'static str) {
        self.0.lock().expect("not poisoned").push(what);
    }

    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock().expect("not poisoned"))
    }
}

fn is_ready(future: std::pin::Pin<&mut impl Future>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    future.poll(&mut context).is_ready()
}

#[test]
fn callbacks_run_in_order_before_a_waiter_is_released() {
    let (gates, trace) = (Gates::new(), Trace::default());
    for what in ["first", "second"] {
        let (gates_, trace) = (gates.clone(), trace.clone());
        gates.on_open("go", move || {
            assert!(!gates_.is_open("go"));
            trace.push(what);
        });
    }
    let mut wait = pin!(gates.wait("go"));
    assert!(!is_ready(wait.as_mut()));
    gates.open("go");
    assert_eq!(trace.take(), ["first", "second"]);
    assert!(is_ready(wait.as_mut()));
}

#[test]
fn opening_again_changes_nothing() {
    let (gates, trace) = (Gates::new(), Trace::default());
    let seen = trace.clone();
    gates.on_open("go", move || seen.push("opened"));
    gates.open("go");
    gates.open("go");
    assert_eq!(trace.take(), ["opened"]);
}

#[test]
fn a_wait_for_an_open_gate_is_over_at_once_and_other_gates_stay_closed() {
    let gates = Gates::new();
    gates.open("go");
    assert!(is_ready(pin!(gates.wait("go"))));
    assert!(!is_ready(pin!(gates.wait("other"))));
    assert!(!gates.is_open("other"));
}

#[test]
fn a_callback_of_an_open_gate_runs_at_once() {
    let (gates, trace) = (Gates::new(), Trace::default());
    gates.open("go");
    let seen = trace.clone();
    gates.on_open("go", move || seen.push("late"));
    assert_eq!(trace.take(), ["late"]);
}

#[test]
fn a_callback_may_open_gates_and_register_more() {
    let (gates, trace) = (Gates::new(), Trace::default());
    let (inner, seen) = (gates.clone(), trace.clone());
    gates.on_open("go", move || {
        inner.open("go");
        inner.open("next");
        let late = seen.clone();
        inner.on_open("go", move || late.push("registered while opening"));
        seen.push("go");
    });
    let seen = trace.clone();
    gates.on_open("next", move || seen.push("next"));
    gates.open("go");
    assert_eq!(trace.take(), ["next", "go", "registered while opening"]);
    assert!(gates.is_open("go") && gates.is_open("next"));
}

#[test]
fn a_panic_in_a_callback_does_not_keep_the_gate_closed() {
    let gates = Gates::new();
    gates.on_open("go", || panic!("callback"));
    let mut wait = pin!(gates.wait("go"));
    assert!(!is_ready(wait.as_mut()));
    assert!(catch_unwind(AssertUnwindSafe(|| gates.open("go"))).is_err());
    assert!(is_ready(wait.as_mut()));
}

#[test]
fn threads_that_open_one_gate_run_its_callbacks_once() {
    for _ in 0..100 {
        let (gates, trace) = (Gates::new(), Trace::default());
        let seen = trace.clone();
        gates.on_open("go", move || seen.push("opened"));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| gates.open("go"));
            }
        });
        assert_eq!(trace.take(), ["opened"]);
        assert!(gates.is_open("go"));
    }
}
