//! What the sessions of the database say about a service that waits. Not a rule; `external` uses
//! it, and every finding gets [`notes`].

use super::finding::{Finding, LimitClass, number};
use super::thread_states::under_way;
use crate::database::{Blocker, DatabaseWaits, MeanWait, SessionWaitKind};
use crate::root::ProbeErrorKind;
use crate::samples::{Role, Samples};

/// Share of the requests in flight from which their sessions explain the service time.
const EXPLAINED_FROM: f64 = 0.5;
/// Share of the requests in flight below which a database is idle.
const IDLE_BELOW: f64 = 0.1;
/// Least mean number of sessions that counts as waiting at all.
const SESSIONS_MIN: f64 = 0.3;
/// Confidence where sessions wait for locks, as many as half of the requests.
const LOCKED: f64 = 0.95;
/// Confidence where as many sessions are active, with any wait.
const ACTIVE: f64 = 0.9;
/// Factor to the confidence when the database is idle: it is not what the service waits for.
const IDLE_FACTOR: f64 = 0.5;
/// The same where threads were seen waiting for a peer, which is then another one.
const IDLE_FACTOR_SEEN: f64 = 0.8;
/// Least mean number of sessions that is shown.
const SHOWN_FROM: f64 = 0.05;
/// Most waits named in one line of evidence.
const WAITS_MAX: usize = 4;
/// Place of the [`notes`] in a finding's evidence, of which a report shows the first lines.
const NOTES_AT: usize = 2;

/// Completes the finding from the machine with what the database's sessions wait for. Lock waits
/// are a finding of their own: where the service's threads are not visible, and also where other
/// signs are missing.
pub(super) fn complete(
    samples: &Samples,
    machine: Option<Finding>,
    seen_waiting: bool,
) -> Option<Finding> {
    let Some(database) = &samples.database else { return machine };
    let requests = requests(samples);
    let explains =
        |sessions: f64| sessions >= SESSIONS_MIN && sessions >= EXPLAINED_FROM * requests;
    let locked = explains(database.sessions(SessionWaitKind::Lock));
    // Running sessions of a database on this machine may be what its CPUs are busy with, which
    // other rules report.
    let waiting = database.active - database.sessions(SessionWaitKind::Running);
    let hidden_service = samples.with_role(Role::Service).next().is_none();
    let active = match machine {
        Some(_) => explains(database.active),
        None => hidden_service && explains(waiting),
    };
    if !locked && !active {
        return machine.map(|finding| less_certain(database, requests, finding, seen_waiting));
    }
    let confidence = if locked { LOCKED } else { ACTIVE };
    let (sure, seen) = machine.map(|finding| (finding.confidence, finding.evidence)).unzip();
    Some(Finding {
        class: LimitClass::External,
        confidence: confidence.max(sure.unwrap_or(0.0)),
        evidence: [evidence(database), seen.unwrap_or_default()].concat(),
        counterfactual: counterfactual(database),
    })
}

/// Returns the requests in flight; where none was answered, as many as there are connections.
fn requests(samples: &Samples) -> f64 {
    let connections = samples.load.map_or(0.0, |load| load.connections as f64);
    under_way(samples).filter(|requests| *requests > 0.0).unwrap_or(connections)
}

/// Lowers the confidence where the database is idle, and names what it does otherwise.
fn less_certain(
    database: &DatabaseWaits,
    requests: f64,
    mut finding: Finding,
    seen_waiting: bool,
) -> Finding {
    let idle = database.active < IDLE_BELOW * requests;
    if !idle || database.restriction.is_some() {
        finding.evidence = [evidence(database), finding.evidence].concat();
        return finding;
    }
    finding.confidence *= if seen_waiting { IDLE_FACTOR_SEEN } else { IDLE_FACTOR };
    let client = database.sessions(SessionWaitKind::Client);
    let instead = if client >= SESSIONS_MIN {
        format!("; {} transactions wait for the service's next statement", number(client))
    } else {
        String::new()
    };
    finding.evidence.insert(
        0,
        format!(
            "{}: {} sessions are active, with {} requests in flight: the service does not wait \
             for this database{instead}",
            database.engine,
            number(database.active),
            number(requests)
        ),
    );
    finding
}

/// Adds to each finding that the database could not be asked, or what it does not show, and what
/// its sessions do where that explains the service time.
pub(super) fn notes(samples: &Samples, finding: &mut Finding) {
    let failed = samples.probe_errors.iter().find_map(|error| match &error.why {
        why @ ProbeErrorKind::Database(_) => Some(why.to_string()),
        _ => None,
    });
    let database = samples.database.as_ref();
    let restriction = database.and_then(|database| database.restriction.clone());
    let summary = database.filter(|database| {
        finding.class != LimitClass::External
            && database.active >= SESSIONS_MIN
            && database.active >= EXPLAINED_FROM * requests(samples)
    });
    let notes: Vec<String> =
        failed.into_iter().chain(restriction).chain(summary.map(activity)).collect();
    let at = finding.evidence.len().min(NOTES_AT);
    finding.evidence.splice(at..at, notes);
}

fn evidence(database: &DatabaseWaits) -> Vec<String> {
    let mut lines = vec![activity(database)];
    lines.extend(database.blocker.as_ref().map(blocking));
    lines
}

/// Describes the active sessions and their waits.
fn activity(database: &DatabaseWaits) -> String {
    let words = |wait: &MeanWait| match wait.wait.kind {
        SessionWaitKind::Running => format!("{} run", number(wait.sessions)),
        _ => format!("{} wait for {}", number(wait.sessions), wait.wait.words()),
    };
    let visible = database.waits.iter().filter(|wait| wait.sessions >= SHOWN_FROM);
    let (idle, active): (Vec<_>, Vec<_>) = visible.partition(|wait| wait.wait.is_idle());
    let (engine, sessions) = (&database.engine, number(database.active));
    let mut line = match active.as_slice() {
        [] => format!("{engine}: {sessions} active sessions"),
        some => {
            let parts: Vec<String> = some.iter().take(WAITS_MAX).map(|wait| words(wait)).collect();
            format!("{engine}: of {sessions} active sessions {}", parts.join(", "))
        }
    };
    for wait in idle {
        line += &format!("; {} more are {}", number(wait.sessions), wait.wait.name);
    }
    line
}

fn blocking(blocker: &Blocker) -> String {
    let Blocker { session, sessions, doing, statement, blocked } = blocker;
    let blocked = number(*blocked);
    let statement = if statement.is_empty() { "its statement is not visible" } else { statement };
    match sessions {
        0 | 1 => format!("session {session}, {doing}, blocks {blocked} of them: {statement}"),
        _ => format!(
            "{sessions} sessions in turn, at last {session}, {doing}, block {blocked} of them: \
             {statement}"
        ),
    }
}

/// Names what would shorten the most frequent wait.
fn counterfactual(database: &DatabaseWaits) -> String {
    let kinds = [
        SessionWaitKind::Lock,
        SessionWaitKind::Disk,
        SessionWaitKind::Running,
        SessionWaitKind::Client,
        SessionWaitKind::Other,
    ];
    let sessions = |kind: &SessionWaitKind| database.sessions(*kind);
    let most =
        kinds.into_iter().rev().max_by(|one, other| sessions(one).total_cmp(&sessions(other)));
    let wait = most.and_then(|kind| database.of(kind).next());
    let Some(MeanWait { wait, statement, .. }) = wait else { return String::new() };
    match wait.kind {
        SessionWaitKind::Lock => {
            let holder = database.blocker.as_ref().map_or(statement, |blocker| &blocker.statement);
            format!(
                "a shorter transaction around the blocking statement ({holder}): it is committed \
                 earlier, or changes rows that fewer requests share"
            )
        }
        SessionWaitKind::Disk => format!(
            "fewer or cheaper flushes and reads: several changes per transaction, a larger cache, \
             a faster disk ({}: {statement})",
            wait.words()
        ),
        SessionWaitKind::Running => {
            format!("the database computes: examine the plan of its statement: {statement}")
        }
        SessionWaitKind::Client => {
            "the transactions wait for their client: the service is slow, not the database"
                .to_owned()
        }
        SessionWaitKind::Other => {
            format!("if {} takes half the time, the rate up to doubles: {statement}", wait.words())
        }
    }
}
