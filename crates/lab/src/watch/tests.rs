use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use hotrow_diagnose::probe::cpu::CpuShares;
use hotrow_diagnose::samples::{Thread, Watched};

use super::*;

/// A looker that hears nothing of the end would sleep for an hour; whoever waits for it would, too.
const PATIENCE: Duration = Duration::from_secs(30);
const AN_HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_load_that_panics_ends_the_looking_too() {
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        let mut watch = Watch::new(&[], true, String::new());
        let load = AssertUnwindSafe(|| watch.during(AN_HOUR, None, |_| panic!("a load that fails")));
        let panicked = catch_unwind(load).is_err();
        let _ = ended.send(panicked);
    });
    assert_eq!(end.recv_timeout(PATIENCE), Ok(true));
}

#[test]
fn what_a_load_gives_comes_back() {
    let mut watch = Watch::new(&[], true, String::new());
    let (done, seen) = watch.during(AN_HOUR, None, |_| 7);
    assert!(done == 7 && seen.is_none() && watch.cpu_share().is_some());
}

/// A finding about the generator's machine is none about a target elsewhere, and then there is that nothing was found.
#[test]
fn there_is_always_a_finding() {
    let thread = Thread { name: "worker".to_owned(), busy: 0.98, waited: Some(0.0) };
    let service = Watched { role: Role::Service, threads: vec![thread], ..Watched::default() };
    let samples = Samples {
        span: Duration::from_secs(1),
        cores: vec![CpuShares { busy: 0.4, ..CpuShares::default() }; 4],
        processes: vec![service],
        ..Samples::default()
    };
    let classes = |local| findings(&samples, local).iter().map(|finding| finding.class).collect::<Vec<_>>();
    assert_eq!(classes(true)[0], Class::OneThread);
    assert_eq!(classes(false), [Class::NoneFound]);
}

/// A server with more workers than are looked at: they are this process's own children here, that wait.
#[test]
fn processes_beyond_the_bound_are_told_and_lower_the_confidence() {
    let workers: Vec<Child> = (0..WATCHED_MAX + 5)
        .map(|_| Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().expect("a process to look at"))
        .collect();
    let services: Vec<(u32, Role)> = workers.iter().map(|worker| (worker.id(), Role::Service)).collect();
    let mut watch = Watch::new(&services, true, "workers".to_owned());
    let few = Watch::new(&services[..WATCHED_MAX - 1], true, "workers".to_owned());
    let (told, latest) = (watch.words.clone(), watch.latest.clone());
    let (looked, seen) = watch.during(Duration::ZERO, None, |begin| {
        begin.at(Nanos::now());
        let until = Nanos::now().after(PATIENCE);
        while latest.lock().expect("no looker has panicked").is_none() && Nanos::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        Nanos::now() < until
    });
    for mut worker in workers {
        let _ = worker.kill();
        let _ = worker.wait();
    }
    assert!(looked);
    assert_eq!(told, "workers (only 64 of 70 are looked at)");
    assert_eq!((few.words.as_str(), few.with_role(Role::Service).len()), ("workers", WATCHED_MAX - 1));
    assert_eq!(watch.with_role(Role::Service).len(), WATCHED_MAX - 1, "and the generator");
    let mut seen = seen.expect("a load that goes on is looked at");
    let sure = |samples: &Samples| findings(samples, true)[0].confidence;
    let unseen =
        seen.unseen.iter().position(|unseen| unseen.to_string() == "/proc/*/task: only 64 of 70 are looked at");
    let less = sure(&seen);
    // Others that are not seen here count too, down to a bound.
    let beyond = seen.unseen.remove(unseen.expect("it is told"));
    seen.unseen = Vec::new();
    let whole = sure(&seen);
    seen.unseen = vec![beyond];
    assert!(sure(&seen) < whole && less < whole, "{:?}", seen.unseen);
}

/// After its length a load only waits for its last answers. A machine that stands still may look late: then again.
#[test]
fn the_last_answers_are_no_part_of_what_is_seen() {
    let length = Duration::from_millis(300);
    let seen = (0..10).any(|_| {
        let mut watch = Watch::new(&[], true, String::new());
        let begun = Nanos::now();
        let (told, samples) = watch.during(Duration::ZERO, Some(length), |begin| {
            // Connections are opened first.
            std::thread::sleep(length);
            let at = Nanos::now();
            begin.at(at);
            std::thread::sleep(length * 4);
            at
        });
        let Some(seen) = samples else { return false };
        assert!(told > begun && seen.span >= length.mul_f64(LOOKED_AT));
        seen.span < length * 3 / 2
    });
    assert!(seen);
}
