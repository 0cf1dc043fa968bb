use std::panic::{AssertUnwindSafe, catch_unwind};
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
        let load = AssertUnwindSafe(|| watch.during(AN_HOUR, None, || panic!("a load that fails")));
        let panicked = catch_unwind(load).is_err();
        let _ = ended.send(panicked);
    });
    assert_eq!(end.recv_timeout(PATIENCE), Ok(true));
}

#[test]
fn what_a_load_gives_comes_back() {
    let mut watch = Watch::new(&[], true, String::new());
    let (done, seen) = watch.during(AN_HOUR, None, || 7);
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
