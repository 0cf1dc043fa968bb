//! Starts the child, hears it out, and learns how it ended.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::DemonstrationError;
use super::climber::{Order, Step};

/// Longest that a climb may take.
const CLIMB_TIME_MAX: Duration = Duration::from_secs(30);
/// How much of the child's complaints is kept, in bytes.
const COMPLAINT_BYTES_MAX: u64 = 16 << 10;

/// What the child said and how it ended.
pub(super) struct Heard {
    /// Before it began.
    pub(super) first: Step,
    /// The last one that was measured; the first, if it died on its way.
    pub(super) last: Step,
    /// How many it made.
    pub(super) made: u64,
    /// How it ended, in words.
    pub(super) end: String,
    /// It was refused one, or died of it.
    pub(super) stopped: bool,
}

/// Runs one climb to its end.
pub(super) fn run(order: &Order) -> Result<Heard, DemonstrationError> {
    let broke = |words: String| DemonstrationError::Child(words);
    let program = std::env::current_exe().map_err(|e| broke(format!("cannot find its own program: {e}")))?;
    let order = serde_json::to_string(order).map_err(DemonstrationError::Order)?;
    let mut child = Command::new(program)
        .args(["doctor", "--climb", &order])
        // glibc would keep 64 MiB of addresses for each of its arenas, and blur what a thread takes.
        .env("MALLOC_ARENA_MAX", "1")
        .env("RUST_BACKTRACE", "0")
        .env_remove("RUST_MIN_STACK")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| broke(format!("could not be started: {e}")))?;
    let complaints = child.stderr.take().map(|stderr| {
        std::thread::spawn(move || {
            let mut text = String::new();
            // What is no UTF-8 ends it early; it is only repeated to people.
            let _ = stderr.take(COMPLAINT_BYTES_MAX).read_to_string(&mut text);
            text
        })
    });
    let (send, steps) = mpsc::sync_channel(64);
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            // Nobody listens any more when time is up.
            lines.map_while(|line| serde_json::from_str::<Step>(&line).ok()).all(|step| send.send(step).is_ok())
        });
    }
    let until = Instant::now() + CLIMB_TIME_MAX;
    let mut heard = Vec::new();
    let in_time = loop {
        match steps.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(step) => heard.push(step),
            Err(error) => break error == mpsc::RecvTimeoutError::Disconnected,
        }
    };
    if !in_time {
        // It cannot have ended before: its output is open. If it has meanwhile, all the better.
        let _ = child.kill();
    }
    let status = child.wait().map_err(|e| broke(format!("cannot be waited for: {e}")))?;
    let complaint = complaints.and_then(|reader| reader.join().ok()).unwrap_or_default();
    summary(&heard, status, &complaint)
}

fn summary(heard: &[Step], status: ExitStatus, complaint: &str) -> Result<Heard, DemonstrationError> {
    let said = complaint.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let Some(first) = heard.first().filter(|first| first.measured) else {
        return Err(DemonstrationError::Child(format!("broke off before it began ({status}): {said}")));
    };
    let made = heard.iter().map(|step| step.made).max().unwrap_or(0);
    let last = heard.iter().rev().find(|step| step.measured).unwrap_or(first);
    let end = match (status.signal(), status.success(), last.refused) {
        (Some(signal), ..) => format!("it died of signal {signal}: {said}"),
        (None, true, true) => "it was refused the next one and ended by itself".to_owned(),
        (None, true, false) => "it had enough and ended by itself".to_owned(),
        (None, false, _) => format!("it ended with {status}: {said}"),
    };
    Ok(Heard { first: *first, last: *last, made, end, stopped: last.refused || !status.success() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABORTED: i32 = 6;

    fn step(made: u64, measured: bool, refused: bool) -> Step {
        Step { made, measured, refused, ..Step::default() }
    }

    #[test]
    fn how_a_climb_ended_is_told_from_what_was_heard() {
        let way = [step(0, true, false), step(1, false, false), step(2, false, false)];
        let heard = |last: Option<Step>, raw, complaint| {
            let steps: Vec<Step> = way.into_iter().chain(last).collect();
            summary(&steps, ExitStatus::from_raw(raw), complaint).expect("it began")
        };
        let enough = heard(Some(step(2, true, false)), 0, "");
        assert_eq!((enough.made, enough.stopped, enough.last.made), (2, false, 2));
        assert_eq!(enough.end, "it had enough and ended by itself");
        let refused = heard(Some(step(2, true, true)), 0, "");
        assert!(refused.stopped && refused.end.contains("refused"), "{}", refused.end);
        // A panic in a thread that cannot unwind: the last that it said stays, and its first words are repeated.
        let died = heard(None, ABORTED, "\nthread 'main' panicked: no signal stack\nmore\n");
        assert_eq!((died.made, died.stopped, died.last.made), (2, true, 0));
        assert_eq!(died.end, "it died of signal 6: thread 'main' panicked: no signal stack");
        let failed = heard(None, 1 << 8, "hotrow: no");
        assert!(failed.stopped && failed.end == "it ended with exit status: 1: hotrow: no", "{}", failed.end);
    }

    #[test]
    fn a_child_that_never_began_is_no_result() {
        for steps in [&[][..], &[step(3, false, false)][..]] {
            let error = summary(steps, ExitStatus::from_raw(1 << 8), "hotrow: entering the cgroup: no").err();
            let words = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(words.contains("broke off before it began") && words.ends_with("the cgroup: no"), "{words}");
        }
    }
}
