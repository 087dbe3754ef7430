//! Structured ownership, through its public face.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use offshoot_core::{CleanupFailure, Scope, ScopeClosed};
use tokio::sync::oneshot;

type Log = Arc<Mutex<Vec<&'static str>>>;

fn note(log: &Log, what: &'static str) {
    log.lock().expect("the log").push(what);
}

/// Registers a cleanup that writes its name down.
fn noting(scope: &Scope, log: &Log, what: &'static str) {
    let log = Arc::clone(log);
    let registered = scope.on_close(what, async move || {
        note(&log, what);
        Ok(())
    });
    registered.expect("an open scope");
}

#[tokio::test]
async fn cleanups_run_last_in_first_out_and_are_awaited() {
    let (scope, log) = (Scope::root("owner"), Log::default());
    for what in ["first", "second", "third"] {
        noting(&scope, &log, what);
    }
    let report = scope.close().await;
    assert!(report.is_clean());
    assert_eq!(*log.lock().expect("the log"), ["third", "second", "first"]);
    assert!(scope.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_failure_a_panic_and_a_hang_are_contained_and_reported() {
    let (scope, log) = (Scope::root("owner"), Log::default());
    noting(&scope, &log, "first");
    scope
        .on_close("hangs", async || std::future::pending().await)
        .expect("open");
    scope
        .on_close("panics", async || panic!("no {}", "way"))
        .expect("open");
    scope
        .on_close("fails", async || Err("no".to_owned()))
        .expect("open");
    let report = scope.close().await;
    let failure = |name: &str, error: &str| CleanupFailure {
        name: name.to_owned(),
        error: error.to_owned(),
    };
    let expected = [
        failure("fails", "no"),
        failure("panics", "panicked: no way"),
        failure("hangs", "took longer than 60 s"),
    ];
    assert_eq!(report.failures, expected);
    assert_eq!(*log.lock().expect("the log"), ["first"]);
}

#[tokio::test]
async fn nothing_attaches_after_closing_began() {
    let scope = Scope::root("owner");
    let closing = scope.close();
    assert_eq!(scope.hold().err(), Some(ScopeClosed));
    assert_eq!(
        scope.on_close("late", async || Ok(())).err(),
        Some(ScopeClosed)
    );
    assert_eq!(scope.child("late").err(), Some(ScopeClosed));
    closing.await;
}

#[tokio::test]
async fn every_caller_awaits_the_same_end_and_a_dropped_one_does_not_stop_it() {
    let scope = Scope::root("owner");
    let (open, gate) = oneshot::channel::<()>();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    scope
        .on_close("waits", async move || {
            counted.fetch_add(1, Ordering::SeqCst);
            gate.await.map_err(|error| error.to_string())
        })
        .expect("open");
    drop(scope.close());
    let (one, other) = (scope.close(), scope.close());
    open.send(()).expect("the cleanup runs");
    let (one, other) = tokio::join!(one, other);
    assert!(Arc::ptr_eq(&one, &other), "one report");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert!(Arc::ptr_eq(&one, &scope.close().await), "also afterwards");
}

#[tokio::test]
async fn a_child_scope_closes_before_what_its_parent_had_before_it() {
    let (parent, log) = (Scope::root("parent"), Log::default());
    noting(&parent, &log, "parent's first");
    let child = parent.child("child").expect("open");
    noting(&child, &log, "child's");
    noting(&parent, &log, "parent's last");
    parent.close().await;
    assert!(child.is_closed());
    assert_eq!(
        *log.lock().expect("the log"),
        ["parent's last", "child's", "parent's first"]
    );
}

#[tokio::test]
async fn a_child_that_closes_first_leaves_nothing_with_its_parent() {
    let parent = Scope::root("parent");
    let child = parent.child("child").expect("open");
    let weak = {
        let witness = Arc::new(());
        let weak = Arc::downgrade(&witness);
        child
            .on_close("holds the witness", async move || {
                drop(witness);
                Ok(())
            })
            .expect("open");
        weak
    };
    child.close().await;
    assert!(weak.upgrade().is_none());
    assert!(parent.close().await.is_clean());
}

#[tokio::test]
async fn a_cleanup_that_is_taken_back_does_not_run() {
    let scope = Scope::root("owner");
    let id = scope
        .on_close("never", async || Err("it ran".to_owned()))
        .expect("open");
    assert!(scope.forget_cleanup(id));
    assert!(!scope.forget_cleanup(id));
    assert!(scope.close().await.is_clean());
}

#[tokio::test]
async fn holds_are_counted_and_their_last_release_wakes() {
    let scope = Scope::root("owner");
    scope.unheld().await;
    let holds = [scope.hold().expect("open"), scope.hold().expect("open")];
    assert_eq!(scope.holds(), 2);
    let waiting = tokio::spawn({
        let scope = scope.clone();
        async move { scope.unheld().await }
    });
    let [one, other] = holds;
    drop(one);
    assert_eq!(scope.holds(), 1);
    drop(other);
    waiting.await.expect("the waiter is woken");
}

#[tokio::test]
async fn a_hold_that_outlives_the_closing_is_reported() {
    let scope = Scope::root("owner");
    let hold = scope.hold().expect("open");
    let report = scope.close().await;
    assert_eq!(report.holds_left, 1);
    assert!(!report.is_clean());
    drop(hold);
    assert_eq!(scope.holds(), 0);
}

#[tokio::test]
async fn a_cleanup_may_use_its_scope() {
    let scope = Scope::root("owner");
    let inner = scope.clone();
    scope
        .on_close("asks", async move || {
            assert!(inner.is_closing());
            inner.closing().await;
            match inner.hold() {
                Ok(_) => Err("a hold was given".to_owned()),
                Err(ScopeClosed) => Ok(()),
            }
        })
        .expect("open");
    let closed = tokio::time::timeout(Duration::from_secs(10), scope.close());
    assert!(closed.await.expect("no deadlock").is_clean());
}

/// Each hold is either refused or counted until it is dropped, whatever races with the closing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_never_slips_past_the_closing() {
    for _ in 0..2000 {
        let scope = Scope::root("owner");
        let taker = tokio::spawn({
            let scope = scope.clone();
            async move { scope.hold() }
        });
        let seen = {
            let scope = scope.clone();
            tokio::spawn(async move {
                let closing = scope.close();
                // From here on no hold may appear.
                (scope.holds(), closing.await.holds_left)
            })
        };
        let taken = taker.await.expect("the taker");
        let (at_once, at_the_end) = seen.await.expect("the closer");
        assert_eq!(usize::from(taken.is_ok()), at_once);
        assert_eq!(at_once, at_the_end);
        drop(taken);
        assert_eq!(scope.holds(), 0);
    }
}

/// Counts its wakes.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn each_wait_for_the_last_release_is_woken_whoever_waited_before() {
    let scope = Scope::root("owner");
    drop(scope.hold().expect("open"));
    for _ in 0..3 {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        let hold = scope.hold().expect("open");
        let (mut first, mut second) = (pin!(scope.unheld()), pin!(scope.unheld()));
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert!(second.as_mut().poll(&mut cx).is_pending());
        drop(hold);
        assert_eq!(wakes.0.load(Ordering::SeqCst), 2);
        assert!(first.as_mut().poll(&mut cx).is_ready());
        assert!(second.as_mut().poll(&mut cx).is_ready());
        assert_eq!(scope.holds(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_beside_a_wait_that_begins_is_not_missed() {
    for _ in 0..2000 {
        let scope = Scope::root("owner");
        let hold = scope.hold().expect("open");
        let release = tokio::spawn(async move { drop(hold) });
        let wait = tokio::time::timeout(Duration::from_secs(60), scope.unheld());
        wait.await.expect("the release is seen");
        release.await.expect("it does not panic");
    }
}

/// A scope with one inside it, and one inside that.
fn chain() -> [Scope; 3] {
    let top = Scope::root("top");
    let middle = top.child("middle").expect("open");
    let bottom = middle.child("bottom").expect("open");
    [top, middle, bottom]
}

#[tokio::test]
async fn all_that_is_inside_is_closing_with_the_call_and_told_once() {
    let (scopes, log) = (chain(), Log::default());
    let [top, middle, bottom] = &scopes;
    for (scope, what) in [(bottom, "bottom"), (middle, "middle"), (top, "top")] {
        let (log, scopes) = (Arc::clone(&log), scopes.clone());
        let heard = move || {
            assert!(scopes.iter().all(Scope::is_closing), "told {what}");
            note(&log, what);
        };
        scope.on_closing(heard).expect("open");
    }
    let again = Arc::clone(&log);
    middle
        .on_closing(|| panic!("a listener's own"))
        .and_then(|()| middle.on_closing(move || note(&again, "middle too")))
        .expect("open");
    let closing = top.close();
    let told = ["top", "middle", "middle too", "bottom"];
    assert_eq!(*log.lock().expect("the log"), told);
    for scope in &scopes {
        assert_eq!(scope.hold().err(), Some(ScopeClosed));
        assert_eq!(scope.child("late").err(), Some(ScopeClosed));
        assert_eq!(scope.on_closing(|| {}).err(), Some(ScopeClosed));
        scope.closing().await;
    }
    assert!(!bottom.report_dropped("early"), "its turn has not come");
    assert!(closing.await.is_clean());
    assert_eq!(*log.lock().expect("the log"), told, "once");
}

/// Sleeps so long when the scope closes.
fn sleeping(scope: &Scope, seconds: u64) {
    let sleep = async move || {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok(())
    };
    scope.on_close("sleeps", sleep).expect("open");
}

#[tokio::test(start_paused = true)]
async fn neighbouring_children_close_together_and_the_parents_own_after_them() {
    let (parent, log) = (Scope::root("parent"), Log::default());
    noting(&parent, &log, "before all");
    for seconds in 1..=50 {
        sleeping(&parent.child("one of many").expect("open"), seconds);
    }
    noting(&parent, &log, "between");
    sleeping(&parent.child("the last").expect("open"), 7);
    let began = tokio::time::Instant::now();
    let closing = parent.close();
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(*log.lock().expect("the log"), ["between"]);
    assert!(closing.await.is_clean());
    assert_eq!(began.elapsed().as_secs(), 57);
    assert_eq!(*log.lock().expect("the log"), ["between", "before all"]);
}

/// Its cleanups each have a minute, not all of them one.
#[tokio::test(start_paused = true)]
async fn a_child_may_take_longer_than_one_cleanup_may() {
    let [top, middle, bottom] = chain();
    for scope in [&middle, &bottom] {
        sleeping(scope, 50);
        sleeping(scope, 50);
    }
    assert!(top.close().await.is_clean());
    assert!(bottom.is_closed() && middle.is_closed());
}

#[tokio::test]
async fn what_was_dropped_inside_is_in_every_report_above() {
    let [top, middle, bottom] = chain();
    let inside = bottom.clone();
    bottom
        .on_close("gives up", async move || {
            assert!(inside.report_dropped("a step"));
            Ok(())
        })
        .expect("open");
    assert!(!bottom.report_dropped("early"));
    let report = top.close().await;
    assert_eq!(report.dropped, ["middle: bottom: a step"]);
    assert!(!report.is_clean() && report.failures.is_empty());
    assert_eq!(middle.close().await.dropped, ["bottom: a step"]);
    assert_eq!(bottom.close().await.dropped, ["a step"]);
    assert!(!bottom.report_dropped("late"));
}

/// A cleanup of the parent's may end a child before its turn.
#[tokio::test]
async fn a_child_of_a_closing_parent_can_be_closed_by_itself() {
    let [top, middle, bottom] = chain();
    let (log, child) = (Log::default(), middle.clone());
    noting(&bottom, &log, "bottom");
    top.on_close("closes the child", async move || {
        assert!(child.close().await.is_clean());
        Ok(())
    })
    .expect("open");
    assert!(top.close().await.is_clean());
    assert_eq!(*log.lock().expect("the log"), ["bottom"]);
}

#[test]
fn a_runtime_that_ends_ends_the_closing() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime")
    };
    let (first, second) = (runtime(), runtime());
    let (top, log) = (Scope::root("top"), Log::default());
    noting(&top, &log, "never");
    let middle = top.child("middle").expect("open");
    let bottom = middle.child("bottom").expect("open");
    bottom
        .on_close("hangs", async || std::future::pending().await)
        .expect("open");
    first.block_on(async {
        drop(top.close());
        tokio::time::sleep(Duration::from_millis(1)).await;
    });
    assert!(!bottom.is_closed());
    drop(first);
    let reports = second.block_on(async {
        let reports = async {
            [
                top.close().await,
                middle.close().await,
                bottom.close().await,
            ]
        };
        let reports = tokio::time::timeout(Duration::from_secs(60), reports);
        reports.await.expect("closing ended")
    });
    let failed = reports.each_ref().map(|report| {
        let failed = report.failures.iter();
        failed
            .map(|failure| format!("{}: {}", failure.name, failure.error))
            .collect::<Vec<_>>()
    });
    assert_eq!(failed[0], ["never: the runtime shut down"]);
    assert_eq!(failed[1], [""; 0]);
    assert_eq!(failed[2], ["hangs: the runtime shut down"]);
    assert_eq!(*log.lock().expect("the log"), [""; 0]);
}

#[test]
fn closing_without_a_runtime_begins_nothing() {
    let scope = Scope::root("owner");
    let closing = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(scope.close())));
    assert!(closing.is_err(), "as documented");
    assert!(!scope.is_closing());
    assert!(scope.hold().is_ok());
}
