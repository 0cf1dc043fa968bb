use super::*;
use crate::observation::{Form, Position};

const MS: Ns = 1_000_000;

fn state(version: u64, at: Ns, outcome: WriteOutcome) -> KeyState {
    KeyState {
        version,
        present: version != 12,
        transaction: 1,
        commit_sent_ns: Some(at * MS),
        outcome,
        log: None,
    }
}

fn committed(at: Ns) -> WriteOutcome {
    WriteOutcome::Committed { returned_ns: at * MS }
}

fn read(sent: Ns, seen: Claim) -> Observation {
    Observation {
        key: 3,
        reader: 4,
        origin: Origin::Instance(0),
        sent_ns: sent * MS,
        received_ns: (sent + 1) * MS,
        form: Form::Get,
        requirement: Requirement::NoCache,
        seen,
        outcome: Outcome::Hit,
        age_s: Some(0),
        position: None,
    }
}

fn names() -> Names {
    Names {
        instances: vec!["http://a".to_owned()],
        balancers: Vec::new(),
        first_version: 10,
        key: "k3".to_owned(),
        beside: "k5".to_owned(),
    }
}

#[test]
fn writes_and_reads_are_listed_in_order() {
    let offence = read(1100, Claim::Version(10));
    let earlier =
        PriorResponse { version: 11, sent_ns: 1050 * MS, received_ns: 1051 * MS, reader: 9 };
    let violation = Violation {
        rule: Rule::Monotonic,
        observation: offence.clone(),
        floor: 11,
        earlier: Some(earlier),
        beside: Some(Beside { key: 5, version: 12 }),
    };
    let evidence = Evidence {
        violation,
        states: vec![
            state(10, 100, committed(101)),
            KeyState {
                log: Some(LogInterval { from: 3, at: 7 }),
                ..state(11, 1040, committed(1042))
            },
            state(12, 1090, WriteOutcome::Unknown),
        ],
        reads: vec![
            read(500, Claim::Version(10)),
            offence,
            Observation {
                position: Some(Position { log: 0xab, at: 7 }),
                ..read(1200, Claim::Absent)
            },
        ],
        purges: vec![Purge {
            key: None,
            origin: Origin::Instance(0),
            sent_ns: 1060 * MS,
            received_ns: 1061 * MS,
        }],
    };
    let counterexample = render(&evidence, &names());
    let order = [
        "violated: point 1, monotonic",
        "key k3, read at http://a",
        "shows version #0, the oldest version allowed is #1",
        "-60.000 commit of version #1 (a row, position 3 to 7); COMMIT returned at -58.000",
        "-50.000 reader 9 reads; at -49.000 it has version #1   <== although this response came \
         before",
        "-40.000 purge at http://a, completed at -39.000",
        "-10.000 commit of version #2 (no row); the connection was lost at COMMIT",
        "0.000 reader 4 sends a get read with no-cache to http://a; at 1.000 it has version #0 \
         (hit, age 0)   <== this one",
        "100.000 reader 4 sends a get read with no-cache to http://a; at 101.000 it has 404 \
         (hit, age 0, position 00000000000000ab-7)",
    ];
    let mut rest = counterexample.as_str();
    for part in order {
        let at = rest
            .find(part)
            .unwrap_or_else(|| panic!("{part}, in this order, in\n{counterexample}"));
        rest = &rest[at + part.len()..];
    }
    // Events that ended long before are omitted.
    assert!(
        !counterexample.contains("-600.000") && !counterexample.contains("commit of version #0"),
        "{counterexample}"
    );
}

#[test]
fn essential_lines_stay_however_many_follow() {
    let offence = read(1100, Claim::Version(10));
    let evidence = Evidence {
        violation: Violation {
            rule: Rule::Fresh,
            observation: offence.clone(),
            floor: 11,
            earlier: None,
            beside: None,
        },
        states: vec![state(11, 1000, committed(1001))],
        reads: (1002..1099).map(|at| read(at, Claim::Version(10))).chain([offence]).collect(),
        purges: Vec::new(),
    };
    let counterexample = render(&evidence, &names());
    assert!(
        counterexample.contains("commit of version #1 (a row); COMMIT returned at -99.000"),
        "{counterexample}"
    );
    assert!(
        counterexample.contains("(59 earlier lines omitted)")
            && counterexample.contains("<== this one"),
        "{counterexample}"
    );
    assert_eq!(
        counterexample.lines().filter(|line| line.contains("sends a")).count(),
        LINES_BEFORE_MAX - 1,
        "{counterexample}"
    );
}
