//! Starts the child, reads its output, and determines how it ended.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::LimitCheckError;
use super::child::{RampOrder, RampStep};

const RAMP_TIME_MAX: Duration = Duration::from_secs(30);
/// Maximum size of the child's error output, in bytes.
const ERROR_OUTPUT_BYTES_MAX: u64 = 16 << 10;

pub(super) struct RampResult {
    /// The state before it began.
    pub(super) first: RampStep,
    /// The last measured state; the first, if it died early.
    pub(super) last: RampStep,
    pub(super) made: u64,
    /// The end, as text.
    pub(super) end: String,
    /// The next one was refused, or ended the child.
    pub(super) stopped: bool,
}

pub(super) fn run(order: &RampOrder) -> Result<RampResult, LimitCheckError> {
    let broke = |words: String| LimitCheckError::Child(words);
    let program =
        std::env::current_exe().map_err(|e| broke(format!("cannot find its own program: {e}")))?;
    let order = serde_json::to_string(order).map_err(LimitCheckError::RampOrder)?;
    let mut child = Command::new(program)
        .args(["doctor", "--child", &order])
        // glibc would reserve 64 MiB of addresses per arena and distort the cost of a thread.
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
            // Invalid UTF-8 ends the text early; it is only shown to users.
            let _ = stderr.take(ERROR_OUTPUT_BYTES_MAX).read_to_string(&mut text);
            text
        })
    });
    let (send, steps) = mpsc::sync_channel(64);
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            // The receiver is gone after a time-out.
            lines
                .map_while(|line| serde_json::from_str::<RampStep>(&line).ok())
                .all(|step| send.send(step).is_ok())
        });
    }
    let until = Instant::now() + RAMP_TIME_MAX;
    let mut result_ = Vec::new();
    let in_time = loop {
        match steps.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(step) => result_.push(step),
            Err(error) => break error == mpsc::RecvTimeoutError::Disconnected,
        }
    };
    if !in_time {
        // Its output is still open, so it has not ended; if it ends now, that is fine.
        let _ = child.kill();
    }
    let status = child.wait().map_err(|e| broke(format!("cannot be waited for: {e}")))?;
    let complaint = complaints.and_then(|reader| reader.join().ok()).unwrap_or_default();
    summary(&result_, status, &complaint)
}

fn summary(
    result_: &[RampStep],
    status: ExitStatus,
    complaint: &str,
) -> Result<RampResult, LimitCheckError> {
    let first_line = complaint.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let Some(first) = result_.first().filter(|first| first.measured) else {
        return Err(LimitCheckError::Child(format!(
            "ended before it started ({status}): {first_line}"
        )));
    };
    let made = result_.iter().map(|step| step.made).max().unwrap_or(0);
    let last = result_.iter().rev().find(|step| step.measured).unwrap_or(first);
    let end = match (status.signal(), status.success(), last.refused) {
        (Some(signal), ..) => format!("it died of signal {signal}: {first_line}"),
        (None, true, true) => "the next one was refused, and it exited".to_owned(),
        (None, true, false) => "it reached its maximum and exited".to_owned(),
        (None, false, _) => format!("it ended with {status}: {first_line}"),
    };
    Ok(RampResult {
        first: *first,
        last: *last,
        made,
        end,
        stopped: last.refused || !status.success(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABORTED: i32 = 6;

    fn step(made: u64, measured: bool, refused: bool) -> RampStep {
        RampStep { made, measured, refused, ..RampStep::default() }
    }

    #[test]
    fn the_end_of_a_ramp_is_derived_from_its_output() {
        let way = [step(0, true, false), step(1, false, false), step(2, false, false)];
        let result_ = |last: Option<RampStep>, raw, complaint| {
            let steps: Vec<RampStep> = way.into_iter().chain(last).collect();
            summary(&steps, ExitStatus::from_raw(raw), complaint).expect("it began")
        };
        let enough = result_(Some(step(2, true, false)), 0, "");
        assert_eq!((enough.made, enough.stopped, enough.last.made), (2, false, 2));
        assert_eq!(enough.end, "it reached its maximum and exited");
        let refused = result_(Some(step(2, true, true)), 0, "");
        assert!(refused.stopped && refused.end.contains("refused"), "{}", refused.end);
        // A panic in a thread that cannot unwind: the last state remains, and the first line of the
        // message is repeated.
        let died = result_(None, ABORTED, "\nthread 'main' panicked: no signal stack\nmore\n");
        assert_eq!((died.made, died.stopped, died.last.made), (2, true, 0));
        assert_eq!(died.end, "it died of signal 6: thread 'main' panicked: no signal stack");
        let failed = result_(None, 1 << 8, "hotrow: no");
        assert!(
            failed.stopped && failed.end == "it ended with exit status: 1: hotrow: no",
            "{}",
            failed.end
        );
    }

    #[test]
    fn a_child_that_never_started_has_no_result() {
        for steps in [&[][..], &[step(3, false, false)][..]] {
            let error =
                summary(steps, ExitStatus::from_raw(1 << 8), "hotrow: entering the cgroup: no")
                    .err();
            let words = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(
                words.contains("ended before it started") && words.ends_with("the cgroup: no"),
                "{words}"
            );
        }
    }
}
