//! Description of a run's result: one line first, details after it.

use hotrow_diagnose::rules::finding::LimitClass;
use hotrow_load::bottleneck::stall::hidden_stall;
use hotrow_load::bottleneck::{self, Bottleneck, RATE_KEPT, RateCause};
use hotrow_load::format::{counted, duration, grouped, known};
use hotrow_load::outcome::{Outcome, RunEnd, UNREACHABLE_SECONDS};
use hotrow_load::stats::{CensoredNs, LoadStats, OTHER_STATUS};

/// Share of awaited responses from which unread ones are reported, together with the next value.
const UNREAD_SHARE_REPORTED: f64 = 0.1;
const UNREAD_NS_REPORTED: u64 = 100_000;

/// Mean requests in flight below this share of the room for them are reported.
const IN_FLIGHT_SHARE: f64 = 0.9;

/// Share of the sent requests that failed from which that is the result, whatever limited the rest.
const MOSTLY_FAILED: f64 = 0.5;

/// The limit that a diagnosis names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedLimit {
    /// Its class.
    pub class: LimitClass,
    /// True if a trial confirmed it.
    pub confirmed: bool,
}

/// Returns one paragraph from the generator's own measurements.
pub fn sentence(outcome: &Outcome) -> String {
    sentence_beside(outcome, None)
}

/// Returns the paragraph shown beside a verdict on this limit, without contradicting it.
pub fn sentence_beside(outcome: &Outcome, named: Option<NamedLimit>) -> String {
    let mut parts = vec![summary(outcome, named)];
    parts.extend(details(outcome, named));
    parts.join(" ")
}

/// Returns how most requests failed, with the usual reason as a question; `None` if most did not.
/// Such a run says nothing about a limit.
pub fn mostly_failed(outcome: &Outcome) -> Option<String> {
    let LoadStats { counts, refused, .. } = &outcome.total;
    let failed = counts.errors.total() + counts.timeouts;
    if counts.sent == 0 || (failed as f64) < MOSTLY_FAILED * counts.sent as f64 {
        return None;
    }
    let errors = &counts.errors;
    let lost = errors.reset + errors.closed + errors.goaway + errors.stream_reset;
    let mut kinds = vec![
        (counts.timeouts, "timed out: is the target too slow?".to_owned()),
        (lost, "were ended by the target: a limit of its connections?".to_owned()),
        (errors.malformed, "were answered with something else: is this an HTTP server?".to_owned()),
        (errors.refused_stream, "were refused streams: more than the target allows?".to_owned()),
    ];
    kinds.extend(refused.iter().map(|(status, latency)| (latency.count(), status_words(*status))));
    let (most, words) = kinds.into_iter().max_by_key(|(count, _)| *count)?;
    Some(format!("{} {words}", percent(most as f64 / counts.sent as f64)))
}

/// Returns an unexpected status with its usual reason: RFC 9110 section 15, RFC 6585 section 4.
fn status_words(status: u16) -> String {
    let reason = match status {
        OTHER_STATUS => return "had other statuses: what does the target answer?".to_owned(),
        1..300 => "is --expect-status right?",
        300..400 => "is this the right address?",
        401 | 403 => "a missing token?",
        404 | 410 => "wrong ids?",
        429 => "a rate limit?",
        400..500 => "a wrong request?",
        502 | 504 => "no answer from behind a proxy?",
        503 => "overload, or a database that is away?",
        500.. => "an error in the target?",
    };
    format!("were {status}: {reason}")
}

/// Returns the result in a line: whether the rate was kept, the share of failed requests, and what
/// limited it; of a run that mostly failed, how.
pub fn summary(outcome: &Outcome, named: Option<NamedLimit>) -> String {
    let counts = &outcome.total.counts;
    let failed = failed(outcome);
    let early = match outcome.end {
        RunEnd::Complete => "",
        RunEnd::Interrupted => "Interrupted. ",
        RunEnd::TargetUnreachable => {
            return format!(
                "FAILED: no connection could be opened for {UNREACHABLE_SECONDS} s; {failed}."
            );
        }
        RunEnd::StoppedAnswering { after } => {
            let after = duration(after.as_nanos() as u64);
            return format!("FAILED: the target stopped answering after {after}; {failed}.");
        }
    };
    if counts.sent == 0 {
        return format!("{early}FAILED: nothing was sent.");
    }
    let mostly = mostly_failed(outcome);
    if counts.ok == 0 {
        let how = mostly.map_or_else(String::new, |how| format!(" {how}"));
        return format!("{early}FAILED: no request was answered as expected.{how}");
    }
    let rate = grouped(outcome.throughput_rps());
    if let Some(how) = mostly {
        return format!("{early}{how} {rate} requests/s were answered as expected.");
    }
    let pace = match (outcome.target_rate, outcome.rate_ratio()) {
        (Some(target), Some(ratio)) if ratio >= RATE_KEPT => {
            format!("Kept: {} requests/s", grouped(target))
        }
        (Some(target), _) => format!("Not kept: {rate} of {} requests/s", grouped(target)),
        (None, _) => {
            format!("{rate} requests/s with {}", counted(outcome.max_in_flight, "request"))
                + " in flight at most"
        }
    };
    format!("{early}{pace}, {failed}; {}.", limited_by(outcome, named))
}

/// Returns the share of due requests without the expected response.
fn failed(outcome: &Outcome) -> String {
    let latency = &outcome.total.latency;
    match latency.unbounded_count() {
        0 => "none failed".to_owned(),
        failed => {
            let share = failed as f64 / latency.count() as f64 * 100.0;
            let digits = if share < 0.01 { 4 } else { 2 };
            format!("{} failed ({share:.digits$} %)", grouped(failed as f64))
        }
    }
}

fn limited_by(outcome: &Outcome, named: Option<NamedLimit>) -> String {
    match named {
        Some(NamedLimit { class: LimitClass::NoneFound, .. }) => {
            return "no limit was found".to_owned();
        }
        Some(NamedLimit { class, confirmed: true }) => return format!("limit: {}", class.words()),
        Some(NamedLimit { class, confirmed: false }) => {
            return format!("suspected limit: {}", class.words());
        }
        None => {}
    }
    let limit = match (outcome.limit(), bottleneck::cause(outcome)) {
        (Bottleneck::NotGenerator, RateCause::NoneFound | RateCause::Nothing) => {
            return "no limit was found".to_owned();
        }
        (Bottleneck::NotGenerator, RateCause::Failures) => "responses that failed or came late",
        (
            Bottleneck::NotGenerator,
            RateCause::TargetOrConnections { .. } | RateCause::ConnectionsBusy { .. },
        ) => "the target or its connections",
        (_, _) => "the generator",
    };
    format!("limited by {limit}")
}

/// Returns the sentences behind the summary.
pub fn details(outcome: &Outcome, named: Option<NamedLimit>) -> Vec<String> {
    let named = named.map(|named| named.class);
    let mut parts = Vec::new();
    if outcome.end != RunEnd::Complete {
        parts.push("The figures cover the time until the end of the run.".to_owned());
    }
    // What the target could do otherwise is not the question then.
    if matches!(outcome.end, RunEnd::StoppedAnswering { .. }) || mostly_failed(outcome).is_some() {
        parts.extend(unsent(outcome));
        return parts;
    }
    match outcome.limit() {
        Bottleneck::NotGenerator => {
            let busy = percent(outcome.cpu_share());
            parts.push(format!(
                "The generator was not the limit: its busiest thread used {busy} of a CPU."
            ));
            parts.extend(cause(outcome, named.is_some()));
        }
        limit => {
            parts.push(generator(limit, named.is_none_or(|class| class == LimitClass::Generator)))
        }
    }
    let unread_ns = outcome.unread_ns();
    if let Some(share) = outcome
        .unread_share()
        .filter(|share| *share >= UNREAD_SHARE_REPORTED && unread_ns >= UNREAD_NS_REPORTED)
        && !matches!(outcome.limit(), Bottleneck::Unread(_))
    {
        parts.push(format!(
            "Of the awaited responses, {} had arrived and were unread: about {} of the mean \
             service time is the generator's.",
            percent(share),
            duration(unread_ns)
        ));
    }
    parts.extend(stall(outcome));
    parts.extend(unsent(outcome));
    parts
}

fn unsent(outcome: &Outcome) -> Option<String> {
    let unsent = outcome.total.counts.unsent;
    (unsent > 0).then(|| {
        format!(
            "{} due requests were never sent; the percentiles count them as unanswered.",
            grouped(unsent as f64)
        )
    })
}

/// `named`: whether the generator is the reported limit.
fn generator(limit: Bottleneck, named: bool) -> String {
    let was =
        if named { "The generator was the limit:" } else { "The generator was short of time too:" };
    match limit {
        // The caller reports this case.
        Bottleneck::NotGenerator => String::new(),
        Bottleneck::OwnCpu(share) => format!(
            "{was} a thread of it had no time left (it used {} of a CPU). \
             The rate is a lower bound; add threads, or load from another machine.",
            percent(share)
        ),
        Bottleneck::NoFreeCpu(share) => format!(
            "{was} a thread of it waited {} of the time for a CPU that others used. The rate is a \
             lower bound and the latencies include this wait; free a CPU for it, or load from \
             another machine.",
            percent(share)
        ),
        Bottleneck::OwnLag(ns) => format!(
            "{was} it sent 1 % of the requests {} late or more although connections were free. \
             Latencies include this lateness; service times do not.",
            duration(ns)
        ),
        Bottleneck::HeldBack(share) => format!(
            "{was} for {} of the time a thread of it was ready but not running, although no other \
             thread had its CPU: it was stopped, or a CPU quota or the host of a virtual machine \
             delayed it. The rate is a lower bound and the latencies include this wait.",
            percent(share)
        ),
        Bottleneck::Unread(share) => format!(
            "{was} of the awaited responses, {} had arrived and were unread in its receive \
             buffers, although its threads were neither busy nor waiting for a CPU: something \
             stopped them (a CPU quota of a container, a virtual machine that was not running). \
             The rate is a lower bound and the latencies include this wait.",
            percent(share)
        ),
    }
}

/// Describes what set the rate when the generator did not; `None` when already stated. `named`: a
/// verdict states the limit.
fn cause(outcome: &Outcome, named: bool) -> Option<String> {
    let counts = &outcome.total.counts;
    let places = outcome.max_in_flight;
    match bottleneck::cause(outcome) {
        RateCause::TargetOrConnections { mean, in_flight } if counts.ok > 0 => {
            let law = little(mean, in_flight, places);
            let which = if named {
                ""
            } else {
                " More connections show whether the target or their number set the rate: if it \
                 rises with them, it was their number."
            };
            Some(format!("{law}{which}"))
        }
        RateCause::ConnectionsBusy { needed, lag_ns } if counts.sent > 0 => {
            let late = format!(
                "no connection was free when requests were due (1 % went out {} late or more)",
                duration(lag_ns)
            );
            let at = "at the observed service times this rate keeps";
            let wanted = wanted(needed);
            let room = counted(places, "request");
            Some(format!(
                "The target or its connections were the limit: {late}; {at} {wanted} in flight, \
                 and there is room for {room}."
            ))
        }
        RateCause::Failures if counts.ok > 0 => {
            Some("Requests were sent in time; the responses failed or arrived too late.".to_owned())
        }
        RateCause::NoneFound
        | RateCause::TargetOrConnections { .. }
        | RateCause::ConnectionsBusy { .. }
        | RateCause::Failures
        | RateCause::Nothing => None,
    }
}

fn wanted(needed: f64) -> String {
    if needed < 10.0 { format!("{needed:.1} requests") } else { format!("{needed:.0} requests") }
}

/// States Little's law with the measured figures, and that fewer requests were in flight than could
/// have been.
fn little(mean: CensoredNs, in_flight: f64, room: usize) -> String {
    let mut law = format!(
        "On average {in_flight:.2} requests were in flight for {} each (Little's law).",
        known(mean)
    );
    if in_flight < IN_FLIGHT_SHARE * room as f64 {
        law += &format!(
            " There was room for {room}: the rest of the time connections were being opened, \
             waited after failures, or waited for the generator."
        );
    }
    law
}

/// Describes a stall that the closed loop hid.
fn stall(outcome: &Outcome) -> Option<String> {
    let stall = hidden_stall(outcome)?;
    Some(format!(
        "A closed loop hides stalls, for it sends nothing while it waits: the longest response \
         took {}. An open loop at this rate (--rate {:.0}) would have had a p99 of about {} \
         instead of {}.",
        duration(stall.longest_ns),
        stall.rate_rps,
        duration(stall.open_p99_ns),
        duration(stall.p99_ns)
    ))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Ten seconds of 1,000 due requests, of which `refused` were answered 429 at once.
    fn outcome(target_rate: Option<f64>, refused: u64) -> Outcome {
        let mut total = LoadStats::default();
        total.latency.answered.record_n(2_000_000, 1_000 - refused);
        total.service.answered.record_n(2_000_000, 1_000 - refused);
        total.latency.record_unbounded(100_000, refused);
        total.service.record_unbounded(100_000, refused);
        if refused > 0 {
            total.refused.entry(429).or_default().record_n(100_000, refused);
        }
        let counts = &mut total.counts;
        (counts.scheduled, counts.sent, counts.ok) = (1_000, 1_000, 1_000 - refused);
        (counts.ok_in_window, counts.errors.unexpected_status) = (1_000 - refused, refused);
        Outcome {
            end: RunEnd::Complete,
            window: Duration::from_secs(10),
            total,
            in_flight_at_end: 0,
            target_rate,
            max_in_flight: 4,
            seconds: Vec::new(),
            threads: Vec::new(),
            failure_messages: Vec::new(),
            latency_map: hotrow_load::latency_map::LatencyMap::default(),
        }
    }

    #[test]
    fn the_first_line_is_the_result() {
        let kept = outcome(Some(100.0), 0);
        let line = "Kept: 100 requests/s, none failed; no limit was found.";
        assert_eq!(summary(&kept, None), line);
        let refused = summary(&outcome(Some(100.0), 400), None);
        assert!(
            refused.starts_with("Not kept: 60 of 100 requests/s, 400 failed (40.00 %); "),
            "{refused}"
        );
        let named = NamedLimit { class: LimitClass::Disk, confirmed: true };
        assert!(summary(&kept, Some(named)).ends_with("; limit: disk."));
        let died = RunEnd::StoppedAnswering { after: Duration::from_millis(2_010) };
        assert_eq!(
            sentence(&Outcome { end: died, ..outcome(Some(100.0), 800) }),
            "FAILED: the target stopped answering after 2.010 s; 800 failed (80.00 %). The \
             figures cover the time until the end of the run."
        );
    }

    /// A run that mostly failed says so first, and names no limit, also not one that was found.
    #[test]
    fn most_failures_are_the_result() {
        let named = Some(NamedLimit { class: LimitClass::Failures, confirmed: false });
        let words = sentence_beside(&outcome(Some(100.0), 520), named);
        assert_eq!(words, "52 % were 429: a rate limit? 48 requests/s were answered as expected.");
        let mut wrong = outcome(None, 1_000);
        wrong.total.refused = [(404, wrong.total.refused[&429].clone())].into();
        let words = "FAILED: no request was answered as expected. 100 % were 404: wrong ids?";
        assert_eq!(sentence(&wrong), words);
        assert_eq!(mostly_failed(&outcome(None, 499)), None);
        wrong.total.counts.timeouts = 3_000;
        wrong.total.counts.sent = 4_000;
        let words = "75 % timed out: is the target too slow?";
        assert_eq!(mostly_failed(&wrong).as_deref(), Some(words));
    }

    /// 100 requests a second of 2 ms each are 0.2 in flight, whatever was configured.
    #[test]
    fn littles_law_is_stated_with_measured_figures() {
        let words = sentence(&outcome(None, 0));
        assert!(words.contains("On average 0.20 requests were in flight for 2.00 ms"), "{words}");
        assert!(words.contains("There was room for 4"), "{words}");
    }

    #[test]
    fn a_stall_that_a_closed_loop_hides_is_estimated() {
        let mut stalled = outcome(None, 0);
        stalled.total.service.answered.record_n(1_000_000_000, 4);
        let words = sentence(&stalled);
        assert!(
            words.contains("A closed loop hides stalls") && words.contains("--rate"),
            "{words}"
        );
        stalled.target_rate = Some(100.0);
        assert!(!sentence(&stalled).contains("hides"), "an open loop shows it");
    }
}
