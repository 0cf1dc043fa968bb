use super::*;

const UPDATE: &str = "UPDATE one SET n = n + ?";

fn session(id: u32, state: SessionState, statement: &str, blocked_by: &[u32]) -> Session {
    Session {
        id: id.to_string(),
        state,
        statement: statement.to_owned(),
        blocked_by: blocked_by.iter().map(u32::to_string).collect(),
    }
}

fn lock(name: &str) -> SessionState {
    SessionState::Waiting(SessionWait::new(SessionWaitKind::Lock, name))
}

fn look(sessions: &[Session]) -> DatabaseLook {
    DatabaseLook { sessions: sessions.to_vec(), restriction: None }
}

/// The waiters of a row queue behind each other; the holder alone is the blocker.
#[test]
fn the_blocker_is_at_the_end_of_the_chain() {
    let first = look(&[
        session(1, SessionState::IdleInTransaction, UPDATE, &[]),
        session(2, lock("transactionid"), UPDATE, &[1]),
        session(3, lock("tuple"), UPDATE, &[2]),
        session(4, lock("tuple"), UPDATE, &[2, 3]),
        // Its blockers were not asked for.
        session(5, lock("tuple"), UPDATE, &[]),
        session(6, lock("tuple"), UPDATE, &[5]),
        session(7, SessionState::Idle, "", &[]),
        session(8, SessionState::Running, "SELECT ?", &[]),
    ]);
    let second = look(&[session(7, SessionState::Idle, "", &[])]);
    let mut tally = WaitTally::default();
    tally.add(first);
    tally.add(second);
    let means = tally.means("PostgreSQL").expect("two looks");
    assert_eq!((means.looks, means.active, means.hidden), (2, 3.0, 0.0));
    let waits: Vec<(String, f64)> =
        means.waits.iter().map(|wait| (wait.wait.words(), wait.sessions)).collect();
    let expected = [
        ("Lock (tuple)", 2.0),
        ("Lock (transactionid)", 0.5),
        ("Client (idle in transaction)", 0.5),
        ("Running", 0.5),
    ];
    assert_eq!(waits, expected.map(|(words, sessions)| (words.to_owned(), sessions)));
    assert_eq!(means.sessions(SessionWaitKind::Lock), 2.5);
    assert_eq!(means.sessions(SessionWaitKind::Disk), 0.0);
    let blocker = Blocker {
        session: "1".to_owned(),
        sessions: 1,
        doing: "idle in transaction".to_owned(),
        statement: UPDATE.to_owned(),
        blocked: 1.5,
    };
    assert_eq!(means.blocker, Some(blocker));
}

/// A contended row: each look finds another holder, with the same statement.
#[test]
fn blockers_are_counted_by_statement() {
    let mut tally = WaitTally::default();
    for holder in 0..10 {
        let mut sessions = vec![session(holder, SessionState::Running, UPDATE, &[])];
        let waiters = (0..10).filter(|id| *id != holder);
        sessions.extend(waiters.map(|id| session(id, lock("tuple"), UPDATE, &[holder])));
        tally.add(look(&sessions));
    }
    let blocker = tally.means("PostgreSQL").and_then(|means| means.blocker).expect("a blocker");
    assert_eq!((blocker.sessions, blocker.blocked), (10, 9.0));
    assert_eq!((blocker.session.as_str(), blocker.doing.as_str()), ("9", "running"));
}

#[test]
fn a_blocker_outside_the_list_and_a_deadlock_are_handled() {
    let unknown = look(&[session(2, lock("advisory"), UPDATE, &[1])]);
    let mut tally = WaitTally::default();
    tally.add(unknown);
    let blocker = tally.means("").and_then(|means| means.blocker).expect("a blocker");
    assert_eq!((blocker.session.as_str(), blocker.doing.as_str()), ("1", "not visible"));
    let mut tally = WaitTally::default();
    tally.add(look(&[session(1, lock(""), UPDATE, &[2]), session(2, lock(""), UPDATE, &[1])]));
    assert_eq!(tally.means("").and_then(|means| means.blocker), None);
}

#[test]
fn hidden_sessions_are_counted_and_idle_is_zero() {
    let mut tally = WaitTally::default();
    let sessions = [session(1, SessionState::Hidden, "", &[])];
    let restriction = Some("GRANT".to_owned());
    tally.add(DatabaseLook { sessions: sessions.to_vec(), restriction: restriction.clone() });
    let means = tally.means("PostgreSQL").expect("a look");
    assert_eq!((means.active, means.hidden, means.waits.len()), (0.0, 1.0, 0));
    assert_eq!(means.restriction, restriction);
    assert_eq!(WaitTally::default().means("PostgreSQL"), None);
}

/// Names and statements come from outside.
#[test]
fn everything_that_is_kept_is_bounded() {
    let mut tally = WaitTally::default();
    for round in 0..(SESSIONS_MAX as u32) / 10 {
        let one = |n: u32| {
            let statement = format!("SELECT {round}{n}");
            session(round * 20 + n, lock("tuple"), &statement, &[round * 20 + n + 10])
        };
        let other = session(round, lock(&format!("lock {round}")), "", &[]);
        tally.add(look(&[(0..9).map(one).collect(), vec![other]].concat()));
    }
    assert_eq!(tally.waits.len(), GROUPS_MAX);
    assert!(tally.waits.values().all(|count| count.statements.len() <= STATEMENTS_MAX));
    assert!(tally.blockers.len() <= GROUPS_MAX);
    assert!(tally.blockers.values().all(|count| count.sessions.len() <= BLOCKERS_MAX));
    let mut tally = WaitTally::default();
    let many = vec![session(1, SessionState::Running, "", &[]); SESSIONS_MAX + 1];
    tally.add(look(&many));
    assert_eq!(tally.means("").map(|means| means.active), Some(SESSIONS_MAX as f64));
}
