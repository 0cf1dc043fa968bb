use super::*;
use crate::record::{Draft, Sight};
use crate::testkit::{config, key, log, ms};

const NOW: Nanos = ms(1_000_000);
const ERA: Era = Era { loss: 3, flush: 5 };

fn record(era: Era, read_at: Nanos, expires_at: Nanos) -> Record {
    let (key, version) = (key(1), log(1));
    Record::new(&Draft {
        key: &key,
        body: Some(b"1"),
        read_at,
        expires_at,
        version: &version,
        position: None,
        sight: Sight::Whole,
        era,
    })
}

/// What an entry is worth, first line that fits: policy, feed, era of the entry, time since it was read (within
/// `max_staleness` or not), expiry (`grace`: past the TTL and within stale-while-revalidate).
const TABLE: &str = "
    refuse behind  *       *      *      Refuse
    *      *       flushed *      *      Gone
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
fn every_case_of_the_verdict() {
    let lines: Vec<Vec<&str>> =
        TABLE.lines().map(|l| l.split_whitespace().collect()).filter(|l: &Vec<_>| l.len() == 6).collect();
    assert_eq!(lines.len(), 10);
    let mut used = vec![false; lines.len()];
    let policies = [("bypass", WhenStale::Bypass), ("stale", WhenStale::Stale), ("refuse", WhenStale::Refuse)];
    let feeds = [("current", 1000), ("behind", 1001)];
    let eras = [("same", ERA), ("lost", Era { loss: 4, ..ERA }), ("flushed", Era { flush: 4, ..ERA })];
    let ages = [("young", 1000), ("old", 1001)];
    let expiries = [("live", 1), ("grace", 0), ("grace", -99), ("past", -100)];
    let mut cases = 0;
    for (policy, when_stale) in policies {
        for (feed, staleness_ms) in feeds {
            for (era, entry_era) in eras {
                for (age, since_read_ms) in ages {
                    for (expiry, left_ms) in expiries {
                        let config =
                            Config { when_stale, stale_while_revalidate: Duration::from_millis(100), ..config() };
                        let read_at = NOW.before(Duration::from_millis(since_read_ms));
                        let expires_at = Nanos(NOW.0.saturating_add_signed(left_ms * 1_000_000));
                        let entry = record(entry_era, read_at, expires_at);
                        let got = judge(&entry, ERA, Duration::from_millis(staleness_ms), NOW, &config);
                        let case = [policy, feed, era, age, expiry];
                        let fits =
                            |line: &Vec<&str>| line.iter().zip(case).all(|(want, is)| *want == "*" || *want == is);
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
fn an_entry_stands_in_only_unflushed_and_within_its_window() {
    let window = |ms| Config { stale_if_error: Duration::from_millis(ms), ..config() };
    let refusing = Config { when_stale: WhenStale::Refuse, ..window(100) };
    let cases = [
        ("before its TTL", window(100), ERA, 1, true),
        ("just within", window(100), ERA, -99, true),
        ("at the end", window(100), ERA, -100, false),
        ("switched off", window(0), ERA, 1, false),
        ("of before a loss", window(100), Era { loss: 2, ..ERA }, -99, true),
        ("flushed", window(100), Era { flush: 4, ..ERA }, 1, false),
        ("the policy refuses", refusing, ERA, 1, false),
    ];
    for (name, config, era, left_ms, want) in cases {
        let entry = record(era, NOW, Nanos(NOW.0.saturating_add_signed(left_ms * 1_000_000)));
        assert_eq!(stands_in(&entry, ERA, NOW, &config), want, "{name}");
    }
}

#[test]
fn staleness_counts_from_the_probe() {
    let progress = Progress::new();
    assert_eq!(progress.staleness(NOW), NOW.since(Nanos::ZERO), "nothing is vouched for before the feed reports");
    progress.advance(ms(999_500), None);
    assert_eq!(progress.staleness(NOW), Duration::from_millis(500));
    assert_eq!(progress.staleness(ms(999_000)), Duration::ZERO, "a clock read before the report");
}
