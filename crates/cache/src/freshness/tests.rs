use super::*;
use crate::record::RecordParts;
use crate::testkit::{config, key, log, ms, parts};

const NOW: Nanos = ms(1_000_000);
const EPOCH: Epoch = Epoch { feed: 3, flush: 5 };

fn record(epoch: Epoch, read_at: Nanos, expires_at: Nanos) -> Record {
    let (key, version) = (key(1), log(1));
    let parts = parts(&key, Some(b"1"), &version);
    Record::new(&RecordParts { read_at, expires_at, epoch, ..parts })
}

/// Verdicts on an entry, first matching line: policy, feed, epoch of the entry, time since its read
/// (within `max_staleness` or not), expiry (`grace`: past the TTL and within
/// stale-while-revalidate).
const TABLE: &str = "
    refuse behind  *       *      *      Refuse
    *      *       flushed *      *      Flushed
    stale  behind  *       *      live   Serve(Stale)
    stale  behind  *       *      *      Read
    *      *       lost    *      *      Read
    bypass behind  same    young  live   Serve(Fresh)
    bypass behind  same    *      *      Read
    *      current same    *      live   Serve(Fresh)
    *      current same    *      grace  Serve(Expired)
    *      current same    *      past   Read
";

#[test]
fn every_verdict_has_its_case() {
    let lines: Vec<Vec<&str>> = TABLE
        .lines()
        .map(|l| l.split_whitespace().collect())
        .filter(|l: &Vec<_>| l.len() == 6)
        .collect();
    assert_eq!(lines.len(), 10);
    let mut used = vec![false; lines.len()];
    let policies =
        [("bypass", WhenStale::Bypass), ("stale", WhenStale::Stale), ("refuse", WhenStale::Refuse)];
    let feeds = [("current", 1000), ("behind", 1001)];
    let epochs = [
        ("same", EPOCH),
        ("lost", Epoch { feed: 4, ..EPOCH }),
        ("flushed", Epoch { flush: 4, ..EPOCH }),
    ];
    let ages = [("young", 1000), ("old", 1001)];
    let expiries = [("live", 1), ("grace", 0), ("grace", -99), ("past", -100)];
    let mut cases = 0;
    for (policy, when_stale) in policies {
        for (feed, staleness_ms) in feeds {
            for (epoch, entry_era) in epochs {
                for (age, since_read_ms) in ages {
                    for (expiry, left_ms) in expiries {
                        let config = Config {
                            when_stale,
                            stale_while_revalidate: Duration::from_millis(100),
                            ..config()
                        };
                        let read_at = NOW.before(Duration::from_millis(since_read_ms));
                        let expires_at = Nanos(NOW.0.saturating_add_signed(left_ms * 1_000_000));
                        let entry = record(entry_era, read_at, expires_at);
                        let got =
                            judge(&entry, EPOCH, Duration::from_millis(staleness_ms), NOW, &config);
                        let case = [policy, feed, epoch, age, expiry];
                        let fits = |line: &Vec<&str>| {
                            line.iter().zip(case).all(|(want, is)| *want == "*" || *want == is)
                        };
                        let line = lines.iter().position(fits).unwrap();
                        used[line] = true;
                        assert_eq!(format!("{got:?}"), lines[line][5], "{case:?}");
                        cases += 1;
                    }
                }
            }
        }
    }
    assert_eq!(cases, 3 * 2 * 3 * 2 * 4);
    assert!(used.iter().all(|&u| u), "a line that no case reaches");
}

#[test]
fn stale_if_error_serves_unflushed_entries_within_its_window() {
    let window = |ms| Config { stale_if_error: Duration::from_millis(ms), ..config() };
    let refusing = Config { when_stale: WhenStale::Refuse, ..window(100) };
    let cases = [
        ("before its TTL", window(100), EPOCH, 1, true),
        ("just within", window(100), EPOCH, -99, true),
        ("at the end", window(100), EPOCH, -100, false),
        ("switched off", window(0), EPOCH, 1, false),
        ("from before a gap", window(100), Epoch { feed: 2, ..EPOCH }, -99, true),
        ("flushed", window(100), Epoch { flush: 4, ..EPOCH }, 1, false),
        ("the policy refuses", refusing, EPOCH, 1, false),
    ];
    for (name, config, epoch, left_ms, want) in cases {
        let read_at = NOW.before(Duration::from_millis(200));
        let expires_at = Nanos(NOW.0.saturating_add_signed(left_ms * 1_000_000));
        let entry = record(epoch, read_at, expires_at);
        assert_eq!(may_serve_stale(&entry, EPOCH, NOW, &config), want, "{name}");
    }
}

#[test]
fn staleness_counts_from_the_probe() {
    let progress = Progress::new();
    assert_eq!(
        progress.staleness(NOW),
        NOW.since(Nanos::ZERO),
        "nothing is vouched for before the feed reports"
    );
    progress.advance(ms(999_500), None);
    assert_eq!(progress.staleness(NOW), Duration::from_millis(500));
    assert_eq!(progress.staleness(ms(999_000)), Duration::ZERO, "a clock read before the report");
}
