use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use hotrow_diagnose::database::{
    DatabaseLook, Session, SessionState, SessionWait, SessionWaitKind,
};
use hotrow_diagnose::probe::cpu::CpuShares;
use hotrow_diagnose::samples::{Thread, WatchedProcess};

use super::*;

/// An observer that misses the end would sleep for an hour, and so would its waiter.
const WAIT_MAX: Duration = Duration::from_secs(30);
const AN_HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_load_that_panics_ends_the_observation() {
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        let mut observer = Observer::new(&[], true, String::new());
        let load =
            AssertUnwindSafe(|| observer.during(AN_HOUR, None, |_| panic!("a load that fails")));
        let panicked = catch_unwind(load).is_err();
        let _ = ended.send(panicked);
    });
    assert_eq!(end.recv_timeout(WAIT_MAX), Ok(true));
}

#[test]
fn the_result_of_a_load_is_returned() {
    let mut observer = Observer::new(&[], true, String::new());
    let (done, seen) = observer.during(AN_HOUR, None, |_| 7);
    assert!(done == 7 && seen.is_none() && observer.cpu_share().is_some());
}

/// Findings about the generator's machine do not apply to a remote target; "none found" remains.
#[test]
fn there_is_always_a_finding() {
    let thread = Thread { name: "worker".to_owned(), busy: 0.98, waited: Some(0.0) };
    let service =
        WatchedProcess { role: Role::Service, threads: vec![thread], ..WatchedProcess::default() };
    let samples = Samples {
        span: Duration::from_secs(1),
        cores: vec![CpuShares { busy: 0.4, ..CpuShares::default() }; 4],
        processes: vec![service],
        ..Samples::default()
    };
    let classes =
        |local| findings(&samples, local).iter().map(|finding| finding.class).collect::<Vec<_>>();
    assert_eq!(classes(true)[0], LimitClass::OneThread);
    assert_eq!(classes(false), [LimitClass::NoneFound]);
}

/// A server with more workers than are observed: here idle child processes.
#[test]
fn processes_beyond_the_limit_are_reported_and_lower_the_confidence() {
    let workers: Vec<Child> = (0..WATCHED_MAX + 5)
        .map(|_| Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().expect("a process"))
        .collect();
    let services: Vec<(u32, Role)> =
        workers.iter().map(|worker| (worker.id(), Role::Service)).collect();
    let mut observer = Observer::new(&services, true, "workers".to_owned());
    let few = Observer::new(&services[..WATCHED_MAX - 1], true, "workers".to_owned());
    let (words, latest) = (observer.words.clone(), observer.latest.clone());
    let (observed, seen) = observer.during(Duration::ZERO, None, |start| {
        start.at(Nanos::now());
        let until = Nanos::now().after(WAIT_MAX);
        while latest.lock().expect("no looker has panicked").is_none() && Nanos::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        Nanos::now() < until
    });
    for mut worker in workers {
        let _ = worker.kill();
        let _ = worker.wait();
    }
    assert!(observed);
    assert_eq!(words, "workers (only 64 of 70 are observed)");
    assert_eq!(
        (few.words.as_str(), few.with_role(Role::Service).len()),
        ("workers", WATCHED_MAX - 1)
    );
    assert_eq!(observer.with_role(Role::Service).len(), WATCHED_MAX - 1, "and the generator");
    let mut seen = seen.expect("a running load is observed");
    let sure = |samples: &Samples| findings(samples, true)[0].confidence;
    let unseen = seen
        .probe_errors
        .iter()
        .position(|unseen| unseen.to_string() == "/proc/*/task: only 64 of 70 are observed");
    let less = sure(&seen);
    // Other unobserved processes lower the confidence too, down to a bound.
    let unobserved = seen.probe_errors.remove(unseen.expect("it is reported"));
    seen.probe_errors = Vec::new();
    let whole = sure(&seen);
    seen.probe_errors = vec![unobserved];
    assert!(sure(&seen) < whole && less < whole, "{:?}", seen.probe_errors);
}

/// A database whose sessions wait for a lock, or that does not answer.
struct FakeDatabase {
    looks: Arc<AtomicBool>,
    answer: Result<DatabaseLook, String>,
}

impl DatabaseProbe for FakeDatabase {
    fn engine(&self) -> &'static str {
        "a database"
    }

    fn look(&mut self) -> Result<DatabaseLook, String> {
        self.looks.store(true, Ordering::Relaxed);
        self.answer.clone()
    }
}

/// Observes a load that lasts until the machine and the database have been looked at.
fn asked(answer: Result<DatabaseLook, String>) -> Samples {
    let looks = Arc::new(AtomicBool::new(false));
    let mut observer = Observer::new(&[], true, String::new());
    observer.database = Some(Box::new(FakeDatabase { looks: looks.clone(), answer }));
    let latest = observer.latest.clone();
    let (_, seen) = observer.during(Duration::ZERO, None, |start| {
        start.at(Nanos::now());
        let until = Nanos::now().after(WAIT_MAX);
        let seen = || latest.lock().expect("no looker has panicked").is_some();
        while !(seen() && looks.load(Ordering::Relaxed)) && Nanos::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    seen.expect("a running load is observed")
}

#[test]
fn the_database_is_asked_during_the_load() {
    let waiting = |id: &str| Session {
        id: id.to_owned(),
        state: SessionState::Waiting(SessionWait::new(SessionWaitKind::Lock, "tuple")),
        statement: "UPDATE".to_owned(),
        blocked_by: vec!["1".to_owned()],
    };
    let sessions = vec![waiting("2"), waiting("3")];
    let samples = asked(Ok(DatabaseLook { sessions, restriction: None }));
    let database = samples.database.expect("it was asked");
    assert_eq!((database.engine.as_str(), database.active), ("a database", 2.0));
    assert!(samples.probe_errors.iter().all(|error| !error.file.is_empty()));
}

#[test]
fn a_database_that_does_not_answer_is_reported() {
    let samples = asked(Err("connection refused".to_owned()));
    assert_eq!(samples.database, None);
    let words: Vec<String> = samples.probe_errors.iter().map(ToString::to_string).collect();
    let reported = words.iter().find(|words| words.starts_with("the database could not be asked"));
    assert!(reported.is_some_and(|words| words.contains("connection refused")), "{words:?}");
    let findings = findings(&samples, false);
    let evidence = &findings[0].evidence;
    assert!(evidence.iter().any(|line| line.contains("could not be asked")), "{evidence:?}");
}

/// Its thread must not outlive a load that never began.
#[test]
fn a_load_without_a_beginning_asks_nothing() {
    let looks = Arc::new(AtomicBool::new(false));
    let mut observer = Observer::new(&[], true, String::new());
    let answer = Err("not asked".to_owned());
    observer.database = Some(Box::new(FakeDatabase { looks: looks.clone(), answer }));
    let (_, seen) = observer.during(AN_HOUR, None, |_| ());
    assert!(seen.is_none() && !looks.load(Ordering::Relaxed));
}

/// After its length a load only waits for its last responses. A stalled machine may sample late;
/// then it retries.
#[test]
fn the_last_responses_are_not_part_of_the_observation() {
    let length = Duration::from_millis(300);
    let seen = (0..10).any(|_| {
        let mut observer = Observer::new(&[], true, String::new());
        let started = Nanos::now();
        let (begun_at, samples) = observer.during(Duration::ZERO, Some(length), |start| {
            // Connections are opened first.
            std::thread::sleep(length);
            let at = Nanos::now();
            start.at(at);
            std::thread::sleep(length * 4);
            at
        });
        let Some(seen) = samples else { return false };
        assert!(begun_at > started && seen.span >= length.mul_f64(LAST_SAMPLE_SHARE));
        seen.span < length * 3 / 2
    });
    assert!(seen);
}
