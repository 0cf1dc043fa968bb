use std::time::Duration;

use super::*;
use crate::bottleneck;
use crate::outcome::{Outcome, RunEnd};
use crate::outcome::{ThreadUse, Unread};
use crate::stats::LoadStats;

/// 1,000 requests in 10 s: latencies of 1 to 1,000 ms but for `timeouts`, given up at 2 s.
fn outcome(timeouts: u64, generator_limited: bool) -> Outcome {
    let mut total = LoadStats::default();
    for ms in 1..=1000 - timeouts {
        total.latency.answered.record(ms * 1_000_000);
        total.service.answered.record(ms * 500_000);
        total.schedule_lag.record(ms * 500_000);
    }
    if timeouts > 0 {
        total.latency.record_unbounded(2_000_000_000, timeouts);
        total.service.record_unbounded(2_000_000_000, timeouts);
    }
    total.counts.scheduled = 1000;
    total.counts.sent = 1000;
    total.counts.timeouts = timeouts;
    total.counts.ok = 1000 - timeouts;
    total.counts.ok_in_window = 1000 - timeouts;
    let cpu = if generator_limited { 10 } else { 1 };
    let wall = Duration::from_secs(10);
    let used = ThreadUse {
        tid: 1,
        cpu: Duration::from_secs(cpu),
        wall,
        runqueue_wait: None,
        not_run: Duration::ZERO,
        unread: Unread::default(),
        unread_on_waking: Unread::default(),
    };
    Outcome {
        end: RunEnd::Complete,
        window: wall,
        total,
        in_flight_at_end: 0,
        target_rate: Some(100.0),
        max_in_flight: 10,
        seconds: Vec::new(),
        threads: vec![used],
        failure_messages: Vec::new(),
        latency_map: crate::latency_map::LatencyMap::default(),
    }
}

fn met(text: &str, outcome: &Outcome) -> Vec<ObjectiveStatus> {
    evaluate(&parse(text).unwrap(), outcome).into_iter().map(|judged| judged.met).collect()
}

#[test]
fn objectives_are_read_as_people_write_them() {
    for (text, normal) in [
        ("p99<5ms", "p99<5ms"),
        (" p99.9 <= 1.5 s ", "p999<=1.5s"),
        ("latency.median<250us", "p50<250us"),
        ("service.p99<5µs", "service.p99<5us"),
        ("lag<1ms", "lag.p99<1ms"),
        ("lag.max<=1ms", "lag.max<=1ms"),
        ("errors<0.1%", "errors<0.1%"),
        ("errors<=0", "errors<=0"),
        ("rate>=10000", "rate>=10000"),
        ("rate>=99%", "rate>=99%"),
    ] {
        assert_eq!(parse(text).map(|o| o[0].to_string()).as_deref(), Ok(normal), "{text}");
    }
    let several = parse("p99<5ms,errors<0.1%,rate>=10000").unwrap();
    assert_eq!(several.len(), 3);
    assert_eq!(several.iter().map(Objective::needs_target_rate).collect::<Vec<_>>(), [false; 3]);
    assert!(parse("rate>=99%").unwrap()[0].needs_target_rate());
}

#[test]
fn an_unjudgeable_objective_is_refused_with_a_reason() {
    for (text, words) in [
        ("", "is missing"),
        ("p99<5ms,", "is missing"),
        ("p99", "compares nothing"),
        ("p99=5ms", "compares nothing"),
        ("p98<5ms", "\"p98\" is not measured"),
        ("<5ms", "\"\" is not measured"),
        ("errors.p99<5ms", "is not measured"),
        ("p99<5", "us, ms or s"),
        ("p99<5m", "us, ms or s"),
        ("p99<5%", "us, ms or s"),
        ("p99<ms", "must be a number"),
        ("p99<1.2.3ms", "must be a number"),
        ("p99<-5ms", "needs a bound"),
        ("errors<5ms", "in %"),
        ("rate>=5k", "requests per second"),
        ("rate>=nan", "requests per second"),
    ] {
        let error = parse(text).map_err(|e| e.to_string()).unwrap_err();
        assert!(error.contains(words), "{text:?} should say {words:?}, says {error}");
    }
    let many = vec!["p99<5ms"; OBJECTIVES_MAX + 1].join(",");
    assert_eq!(parse(&many), Err(ObjectiveError::TooMany(OBJECTIVES_MAX + 1)));
}

#[test]
fn each_objective_is_judged_by_its_measurement() {
    use ObjectiveStatus::{Met, Missed};
    let run = outcome(0, false);
    assert_eq!(
        met("p50<600ms,p50<400ms,p99<=2s,max<1s,max<=1s,mean>=0.5s", &run),
        [Met, Missed, Met, Missed, Met, Met]
    );
    assert_eq!(met("service.p50<300ms,lag.p50<200ms", &run), [Met, Missed]);
    assert_eq!(met("rate>=100,rate>100,rate>=100%,rate<50%", &run), [Met, Missed, Met, Missed]);
    assert_eq!(met("errors<=0,errors<0.1%,errors>0", &run), [Met, Met, Missed]);
}

#[test]
fn time_outs_miss_upper_bounds_and_count_as_errors() {
    use ObjectiveStatus::{Met, Missed};
    let run = outcome(20, false);
    // Even beyond the time-out, because the true latencies are unknown.
    assert_eq!(
        met("p99<1s,p99<60s,p99>1s,p99>3s,p95<1s", &run),
        [Missed, Missed, Met, Missed, Met]
    );
    assert_eq!(met("errors<2%,errors<=2%,errors<20,errors<21", &run), [Missed, Met, Missed, Met]);
}

#[test]
fn unsent_requests_count_unless_the_run_was_broken_off() {
    let mut run = outcome(0, false);
    (run.total.counts.unsent, run.total.counts.sent) = (30, 970);
    assert_eq!(
        met("errors<=29,errors<=30,errors<3%,errors<=3%", &run),
        [
            ObjectiveStatus::Missed,
            ObjectiveStatus::Met,
            ObjectiveStatus::Missed,
            ObjectiveStatus::Met
        ]
    );
    run.end = RunEnd::Interrupted;
    assert_eq!(met("errors<=0", &run), [ObjectiveStatus::Met]);
}

/// Latencies are upper bounds then, and the rate is a lower one.
#[test]
fn a_generator_that_was_the_limit_proves_only_one_side() {
    use ObjectiveStatus::{Inconclusive, Met, Missed};
    let run = outcome(0, true);
    assert!(run.limit().is_generator());
    assert_eq!(met("p99<2s,p99<1ms,p50>1ms", &run), [Met, Inconclusive, Inconclusive]);
    assert_eq!(met("rate>=100,rate>=101,rate<200", &run), [Met, Inconclusive, Inconclusive]);
    assert_eq!(met("errors<=0,lag<1ms,lag<10s", &run), [Met, Missed, Met]);
}

/// A busy generator reads and sends late, but did not make the target send 503.
#[test]
fn a_generator_that_was_the_limit_excuses_only_what_it_can_cause() {
    use ObjectiveStatus::{Inconclusive, Met, Missed};
    let refused = |status: u16, n: u64, late_reads: bool| {
        let mut run = outcome(0, true);
        let busy = if late_reads { Duration::from_secs(10) } else { Duration::ZERO };
        run.threads[0].cpu = busy;
        run.total.own_lag.record_n(800_000_000, 100);
        run.total.latency.record_unbounded(1_000, n);
        run.total.service.record_unbounded(1_000, n);
        run.total.counts.scheduled += n;
        run.total.counts.errors.unexpected_status = n;
        run.total.counts.status.insert(status, n);
        run
    };
    let busy = refused(503, 20, true);
    assert!(busy.limit().delays_reading());
    assert_eq!(met("errors<=0%,errors<3%,p99<10s", &busy), [Missed, Met, Missed]);
    assert_eq!(met("p95<500ms,service.p50<1ms", &busy), [Inconclusive, Inconclusive]);
    let late = refused(503, 5, false);
    assert!(matches!(late.limit(), bottleneck::Bottleneck::OwnLag(_)));
    assert_eq!(
        met("service.p50<1ms,p50<1ms,p50<300ms,errors<=0", &late),
        [Missed, Missed, Inconclusive, Missed],
        "service times are the target's, and latencies contain them"
    );
}

#[test]
fn nothing_measured_meets_nothing() {
    let mut run = outcome(0, false);
    run.total = LoadStats::default();
    assert_eq!(met("p99<5ms,errors<5%,p99>0ms", &run), [ObjectiveStatus::Missed; 3]);
    assert_eq!(evaluate(&parse("p99<5ms").unwrap(), &run)[0].words(), "nothing was measured");
}

#[test]
fn misses_are_reported_with_their_size() {
    let words = |text: &str, timeouts| {
        evaluate(&parse(text).unwrap(), &outcome(timeouts, false))[0].words()
    };
    assert_eq!(words("max<800ms", 0), "1.000 s, 200.00 ms (25.0 %) too much");
    assert_eq!(words("rate>=125", 0), "100 requests/s, 25 requests/s (20.0 %) too little");
    assert_eq!(words("max<1s", 0), "1.000 s, just the bound");
    assert_eq!(words("max<80ms", 0), "1.000 s, 12.50 times the bound");
    assert_eq!(words("errors<=0", 2), "2, 2 too much");
    assert_eq!(words("errors<1%", 0), "0%");
    assert_eq!(
        words("max<1ms", 2),
        ">2.000 s: it falls among requests without the expected answer"
    );
}

#[test]
fn each_objective_states_its_number_of_requests() {
    let wanted = |text| parse(text).unwrap()[0].requests_wanted();
    assert_eq!(
        ["p50<5ms", "p99<5ms", "service.p999<5ms", "p9999<1s"].map(wanted),
        [200, 10_000, 100_000, 1_000_000],
        "100 beyond each"
    );
    assert_eq!(
        ["errors<1%", "errors<0.1%", "errors<0%", "errors<5"].map(wanted),
        [1_000, 10_000, 1_000, 1_000]
    );
    assert_eq!(
        ["mean<5ms", "max<5ms", "rate>=99%", "errors<0.0000001%"].map(wanted),
        [1_000, 1_000, 1_000, 1_000_000]
    );
}
