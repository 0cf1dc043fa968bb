//! What the database's sessions change about the findings.

use super::*;
use crate::database::{Blocker, DatabaseWaits, MeanWait, SessionWait, SessionWaitKind};
use SessionWaitKind::{Client, Disk, Lock, Other, Running};

/// 50 requests in flight, on a machine with free CPUs.
fn asked(waits: &[(SessionWaitKind, &str, f64)]) -> Samples {
    let waits: Vec<MeanWait> = waits
        .iter()
        .map(|(kind, name, sessions)| MeanWait {
            wait: SessionWait::new(*kind, name),
            sessions: *sessions,
            statement: "UPDATE one SET n = n + ?".to_owned(),
        })
        .collect();
    let active = waits.iter().filter(|wait| !wait.wait.is_idle()).map(|wait| wait.sessions).sum();
    let database = DatabaseWaits {
        engine: "PostgreSQL".to_owned(),
        looks: 20,
        active,
        waits,
        ..DatabaseWaits::default()
    };
    Samples { database: Some(database), ..quiet(0.05) }
}

fn locked() -> Samples {
    let mut samples = asked(&[(Lock, "transactionid", 47.0), (Running, "", 2.0)]);
    samples.database.as_mut().expect("asked").blocker = Some(Blocker {
        session: "4711".to_owned(),
        sessions: 1,
        doing: "idle in transaction".to_owned(),
        statement: "UPDATE one SET n = n + ?".to_owned(),
        blocked: 47.0,
    });
    samples
}

fn external(samples: &Samples) -> Option<Finding> {
    evaluate(samples).into_iter().find(|finding| finding.class == LimitClass::External)
}

#[test]
fn lock_waits_name_the_lock_the_blocker_and_the_way_out() {
    let finding = external(&locked()).expect("a finding");
    assert!(finding.confidence >= 0.9, "{finding:#?}");
    assert_eq!(
        finding.evidence[..2],
        [
            "PostgreSQL: of 49 active sessions 47 wait for Lock (transactionid), 2.0 run",
            "session 4711, idle in transaction, blocks 47 of them: UPDATE one SET n = n + ?",
        ]
    );
    assert!(finding.counterfactual.contains("a shorter transaction"), "{finding:#?}");
    assert!(finding.counterfactual.contains("UPDATE one"), "{finding:#?}");
}

/// A service on another machine, and a service none of whose requests is answered.
#[test]
fn lock_waits_need_no_visible_service_and_no_answer() {
    let mut samples = locked();
    samples.processes.remove(0);
    assert!(external(&samples).is_some_and(|finding| finding.confidence >= 0.9));
    let mut samples = locked();
    samples.load =
        samples.load.map(|load| GeneratorLoad { rate: 0.0, service_time: Duration::ZERO, ..load });
    assert!(external(&samples).is_some_and(|finding| finding.confidence >= 0.9));
}

#[test]
fn few_lock_waits_prove_nothing_and_a_kept_rate_has_no_limit() {
    let mut samples = asked(&[(Lock, "tuple", 24.0), (Client, "idle in transaction", 1.0)]);
    samples.processes.remove(0);
    assert_eq!(external(&samples), None);
    let mut samples = locked();
    samples.load = samples.load.map(|load| GeneratorLoad { target_rate: Some(1000.0), ..load });
    assert_eq!(external(&samples), None);
    let mut samples = locked();
    samples.load = samples.load.map(|load| GeneratorLoad { was_the_limit: true, ..load });
    assert_eq!(external(&samples), None);
}

#[test]
fn each_wait_has_its_own_advice() {
    let cases = [
        ((Disk, "WALSync"), "flushes"),
        ((Running, ""), "the database computes"),
        ((Other, "PgSleep"), "Other (PgSleep) takes half the time"),
        ((Client, "ClientWrite"), "the service is slow"),
    ];
    for ((kind, name), advice) in cases {
        let finding = external(&asked(&[(kind, name, 45.0)])).expect("a finding");
        assert!(finding.counterfactual.contains(advice), "{finding:#?}");
        assert!(finding.confidence >= 0.9, "{finding:#?}");
    }
    // Beside a service on another machine, running sessions may be its neighbours' work.
    let remote = |wait: (SessionWaitKind, &str)| {
        let mut samples = asked(&[(wait.0, wait.1, 45.0)]);
        samples.processes.remove(0);
        external(&samples).is_some()
    };
    assert!(remote((Disk, "WALSync")) && !remote((Running, "")));
}

#[test]
fn an_idle_database_speaks_against_it() {
    let before = external(&quiet(0.05)).expect("a finding").confidence;
    let samples = asked(&[(Client, "idle in transaction", 40.0), (Running, "", 1.0)]);
    let finding = external(&samples).expect("a finding");
    assert!(finding.confidence < before, "{finding:#?}");
    let line = &finding.evidence[0];
    assert!(line.contains("does not wait for this database; 40 transactions wait"), "{line}");
    // Threads were seen waiting for a peer: another one, still.
    let mut samples = asked(&[]);
    let peer = Some("10.0.0.6:80".parse().expect("an address"));
    samples.processes[0].waits =
        vec![crate::samples::Wait { what: crate::samples::WaitReason::Peer(peer), threads: 40.0 }];
    let finding = external(&samples).expect("a finding");
    assert!((0.5..0.9).contains(&finding.confidence), "{finding:#?}");
}

/// Hidden sessions may be the active ones.
#[test]
fn what_is_not_visible_is_no_evidence_and_is_said() {
    let before = external(&quiet(0.05)).expect("a finding").confidence;
    let mut samples = asked(&[]);
    samples.database.as_mut().expect("asked").restriction = Some("GRANT it".to_owned());
    let finding = external(&samples).expect("a finding");
    assert_eq!(finding.confidence, before);
    assert!(finding.evidence.contains(&"GRANT it".to_owned()), "{finding:#?}");
    // Also where nothing was found.
    samples.load = samples.load.map(|load| GeneratorLoad { target_rate: Some(1000.0), ..load });
    assert!(evaluate(&samples)[0].evidence.contains(&"GRANT it".to_owned()));
}

#[test]
fn a_failed_look_is_among_the_first_lines() {
    let mut samples = quiet(0.05);
    let file = |file: &str, why| ProbeError { file: file.to_owned(), why };
    samples.probe_errors = vec![
        file("proc/1/io", ProbeErrorKind::PermissionDenied),
        file("", ProbeErrorKind::Database("connection refused".to_owned())),
    ];
    let finding = external(&samples).expect("a finding");
    let line = "the database could not be asked: connection refused".to_owned();
    assert!(finding.evidence[..3].contains(&line), "{finding:#?}");
    let last = finding.evidence.last().expect("evidence");
    assert_eq!(last, "not seen: /proc/1/io: this user may not read it");
}

/// The CPUs are busy with the database: the other finding says what its sessions do.
#[test]
fn other_findings_say_what_the_sessions_do() {
    let mut samples = asked(&[(Running, "", 45.0)]);
    samples.processes[0] = process(10, Role::Service, &[0.98, 0.05]);
    let finding = &evaluate(&samples)[0];
    assert_eq!(finding.class, LimitClass::OneThread);
    let line = "PostgreSQL: of 45 active sessions 45 run".to_owned();
    assert!(finding.evidence.contains(&line), "{finding:#?}");
}
