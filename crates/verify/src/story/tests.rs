use super::*;
use crate::observation::Form;
use crate::rules::Rule;

const MS: Ns = 1_000_000;

fn state(version: u64, at: Ns, fate: Fate) -> State {
    State { version, present: version != 12, transaction: 1, begun_ns: Some(at * MS), fate, position: None }
}

fn committed(at: Ns) -> Fate {
    Fate::Committed { returned_ns: at * MS }
}

fn read(sent: Ns, seen: Seen) -> Observation {
    Observation {
        key: 3,
        reader: 4,
        origin: Origin::Instance(0),
        sent_ns: sent * MS,
        received_ns: (sent + 1) * MS,
        form: Form::Get,
        wish: Wish::NoCache,
        seen,
        outcome: Outcome::Hit,
        age_s: Some(0),
        position: None,
    }
}

fn names() -> Names {
    Names { instances: vec!["http://a".to_owned()], balancers: Vec::new(), first_version: 10, key: "k3".to_owned() }
}

#[test]
fn a_story_tells_what_was_written_and_read_in_order() {
    let offence = read(1100, Seen::Version(10));
    let earlier = Answered { version: 11, sent_ns: 1050 * MS, received_ns: 1051 * MS, reader: 9 };
    let violation =
        Violation { rule: Rule::Monotonic, observation: offence.clone(), floor: 11, earlier: Some(earlier) };
    let evidence = Evidence {
        violation,
        states: vec![state(10, 100, committed(101)), state(11, 1040, committed(1042)), state(12, 1090, Fate::Unknown)],
        reads: vec![read(500, Seen::Version(10)), offence, read(1200, Seen::Absent)],
        purges: vec![Purge { origin: Origin::Instance(0), sent_ns: 1060 * MS, received_ns: 1061 * MS }],
    };
    let story = tell(&evidence, &names());
    let order = [
        "broken: point 1, monotonic",
        "key k3, asked at http://a",
        "shows version #0, the oldest version allowed is #1",
        "-60.000 commit of version #1 (a row); COMMIT returned at -58.000",
        "-50.000 reader 9 reads; at -49.000 it has version #1   <== although this was answered before",
        "-40.000 purge at http://a, answered at -39.000",
        "-10.000 commit of version #2 (no row); the connection was lost at COMMIT",
        "0.000 reader 4 sends a get read with no-cache to http://a; at 1.000 it has version #0 (hit, age 0)   <== this one",
        "100.000 reader 4 sends a get read with no-cache to http://a; at 101.000 it has 404",
    ];
    let mut rest = story.as_str();
    for part in order {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part}, in this order, in\n{story}"));
        rest = &rest[at + part.len()..];
    }
    // What was over long before is left out.
    assert!(!story.contains("-600.000") && !story.contains("commit of version #0"), "{story}");
}

#[test]
fn what_the_verdict_rests_on_stays_however_much_was_read_since() {
    let offence = read(1100, Seen::Version(10));
    let evidence = Evidence {
        violation: Violation { rule: Rule::Fresh, observation: offence.clone(), floor: 11, earlier: None },
        states: vec![state(11, 1000, committed(1001))],
        reads: (1002..1099).map(|at| read(at, Seen::Version(10))).chain([offence]).collect(),
        purges: Vec::new(),
    };
    let story = tell(&evidence, &names());
    assert!(story.contains("commit of version #1 (a row); COMMIT returned at -99.000"), "{story}");
    assert!(story.contains("(59 earlier lines left out)") && story.contains("<== this one"), "{story}");
    assert_eq!(story.lines().filter(|line| line.contains("sends a")).count(), LINES_BEFORE_MAX - 1, "{story}");
}
