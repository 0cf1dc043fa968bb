use std::sync::atomic::AtomicU32;

use super::*;

fn never() -> bool {
    false
}

/// Runs a thread that fails by `fail` in its first `failures` runs; returns the number of runs and
/// of clean-ups.
fn runs_of(supervisor: &Supervisor, failures: u32, fail: fn() -> io::Result<()>) -> (u32, u32) {
    let mut runs = 0;
    let mut clean_ups = 0;
    let ended = supervisor.run("t", &never, &mut || clean_ups += 1, &mut || {
        runs += 1;
        if runs <= failures { fail().map(|()| 0) } else { Ok(runs) }
    });
    assert_eq!(ended, Some(runs));
    (runs, clean_ups)
}

#[test]
fn a_panic_and_an_error_lead_to_another_run() {
    let supervisor = Supervisor::default();
    assert_eq!(runs_of(&supervisor, 2, || panic!("as the test asks")), (3, 2));
    assert_eq!(supervisor.panics(), [("t".to_owned(), 2)]);
    assert_eq!(runs_of(&supervisor, 1, || Err(io::Error::other("as the test asks"))), (2, 1));
    assert_eq!(supervisor.panics(), [("t".to_owned(), 2)], "an error is no panic");
    assert_eq!(supervisor.failing(Nanos::now()), None);
}

#[test]
fn a_panic_in_the_clean_up_is_caught_too() {
    let supervisor = Supervisor::default();
    let mut runs = 0;
    let ended = supervisor.run("t", &never, &mut || panic!("as the test asks"), &mut || {
        runs += 1;
        if runs == 1 { panic!("as the test asks") } else { Ok(()) }
    });
    assert_eq!((ended, supervisor.panics()), (Some(()), vec![("t".to_owned(), 2)]));
}

#[test]
fn a_thread_that_keeps_failing_is_named_until_it_is_stopped() {
    let supervisor = Supervisor::default();
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let stop = {
        let runs = Arc::clone(&runs);
        move || runs.load(Ordering::Relaxed) >= FAILURES_IN_A_ROW_MAX
    };
    let thread = supervisor.spawn(
        "t",
        stop,
        || (),
        move || -> io::Result<()> {
            counted.fetch_add(1, Ordering::Relaxed);
            panic!("as the test asks")
        },
    );
    assert_eq!(thread.unwrap().join().unwrap(), None, "it was stopped in its pause");
    let failing = FailingThread { name: "t".to_owned(), failures_in_a_row: FAILURES_IN_A_ROW_MAX };
    assert_eq!(supervisor.failing(Nanos::now()), Some(failing));
    assert_eq!(runs.load(Ordering::Relaxed), FAILURES_IN_A_ROW_MAX);
}

#[test]
fn a_failpoint_makes_the_thread_of_its_name_panic() {
    let supervisor = Supervisor::with_panic_points(vec![PanicPoint::new("b", PanicMode::Once)]);
    for name in ["a", "b"] {
        let ended = supervisor.run(name, &never, &mut || (), &mut || {
            turn();
            Ok(())
        });
        assert_eq!(ended, Some(()));
    }
    assert_eq!(supervisor.panics(), [("a".to_owned(), 0), ("b".to_owned(), 1)]);
    // A thread without a supervisor does not panic.
    turn();
}

#[test]
fn a_task_that_panics_is_counted_and_made_again() {
    let supervisor = Supervisor::default();
    let made = Arc::new(AtomicU32::new(0));
    let ended = supervisor.run("t", &never, &mut || (), &mut || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        runtime.block_on(keep_task(|| {
            let attempt = made.fetch_add(1, Ordering::Relaxed);
            async move { assert!(attempt > 0, "as the test asks") }
        }));
        Ok(())
    });
    assert_eq!((ended, made.load(Ordering::Relaxed)), (Some(()), 2));
    assert_eq!(supervisor.panics(), [("t".to_owned(), 1)]);
}
