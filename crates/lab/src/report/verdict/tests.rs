use super::super::summary::Summary;
use super::super::tests::fixture;
use super::*;
use crate::results::{Measurement, Results};

const ROW: &str = "direct/date/6";

fn finding(class: &str, confidence: f64) -> Finding {
    Finding { class: class.to_owned(), words: format!("words of {class}"), confidence, ..Finding::default() }
}

/// A row whose tiers say nothing, with these findings, round by round; rates rise with the rounds.
fn results(rounds: &[&[(&str, f64)]], change: impl Fn(&mut Measurement)) -> Results {
    let mut results = fixture::results(rounds.len() as u32);
    results.measurements.retain(|m| m.row == ROW);
    for (measurement, found) in results.measurements.iter_mut().zip(rounds) {
        for tier in &mut measurement.tiers {
            (tier.limit_cores, tier.throttled, tier.cpu_s) = (None, None, 0.5);
        }
        measurement.findings = found.iter().map(|(class, confidence)| finding(class, *confidence)).collect();
        measurement.load.as_mut().unwrap().rps = 100.0 + f64::from(measurement.round);
        change(measurement);
    }
    results
}

/// Short words, words, how it stands, and class and confidence of what it was seen by.
fn told(results: &Results) -> (String, String, String, Option<(String, f64)>) {
    let summary = Summary::of(results);
    let verdict = of(summary.row(ROW).unwrap(), 2).unwrap();
    let seen = verdict.seen.map(|seen| (seen.class.clone(), seen.confidence));
    (verdict.short, verdict.words, verdict.standing, seen)
}

#[test]
fn the_class_of_most_rounds_wins_and_its_middle_round_speaks() {
    let rounds: [&[(&str, f64)]; 5] = [
        &[("Proxy", 0.9), ("AllCpus", 0.6)],
        &[("AllCpus", 0.9)],
        &[("Proxy", 0.7)],
        &[("Proxy", 0.8)],
        &[("Disk", 0.99)],
    ];
    let (short, words, standing, seen) = told(&results(&rounds, |_| {}));
    assert_eq!((short.as_str(), words.as_str()), ("the proxy", "words of Proxy"));
    assert_eq!(standing, "3 of 5 rounds; else all CPUs, words of Disk, 80 % sure");
    assert_eq!(seen, Some(("Proxy".to_owned(), 0.7)), "the third round has the middle rate");
    // Between as many rounds, the surer ones; a class of another version is told by its own words.
    let (short, _, standing, _) = told(&results(&[&[("New", 0.9)], &[("Proxy", 0.5)]], |_| {}));
    assert_eq!((short.as_str(), standing.as_str()), ("words of New", "1 of 2 rounds; else the proxy, 90 % sure"));
}

#[test]
fn what_cpu_time_proves_is_not_contradicted() {
    let one = |found: &[(&str, f64)], change: fn(&mut Measurement)| told(&results(&[found], change));
    let throttled: fn(&mut Measurement) = |m| m.tiers[0].throttled = Some(0.9);
    let (short, words, standing, seen) = one(&[("Proxy", 0.9), ("Throttled", 0.8)], throttled);
    assert_eq!((short.as_str(), standing.as_str()), ("CPU limit of the service", "80 % sure"));
    assert!(words.starts_with("the CPU limit of the service") && seen.is_some_and(|(class, _)| class == "Throttled"));
    let generator: fn(&mut Measurement) = |m| m.load.as_mut().unwrap().generator_limited = true;
    assert_eq!(one(&[("Throttled", 0.95), ("Generator", 0.9)], generator).0, "the generator");
    let (short, words, ..) = one(&[("Throttled", 0.95), ("AllCpus", 0.95), ("Generator", 0.4)], generator);
    let others = "the rate is a lower bound; set-up and generator used 0.20 of 2 cores, something else the rest";
    assert!(short == "all CPUs" && words.ends_with(others), "{words}");
    // A backend behind a cache that works for a moment each second and is held up in it limits nobody.
    let idle: fn(&mut Measurement) = |m| {
        (m.tiers[0].limit_cores, m.tiers[0].throttled, m.tiers[0].cpu_s) = (Some(0.2), Some(0.9), 0.01);
    };
    assert_eq!(one(&[("Throttled", 0.95), ("Proxy", 0.6)], idle).0, "the proxy");
    let full: fn(&mut Measurement) = |m| m.tiers[0].cpu_s = 9.0;
    let (short, words, ..) = one(&[("AllCpus", 0.9)], full);
    assert!(short == "all CPUs" && words.contains("1.90 of 2 cores"), "{words}");
    let mut kept = results(&[&[("OneThread", 0.9)]], |_| {});
    kept.rows.iter_mut().filter(|row| row.id == ROW).for_each(|row| row.rate = Some(100.0));
    let (short, _, standing, seen) = told(&kept);
    assert_eq!((short.as_str(), standing.as_str(), seen), ("nothing", "", None));
}

#[test]
fn rounds_of_one_class_agree_however_they_know_it() {
    let (short, _, standing, _) = told(&results(&[&[("Throttled", 0.6)], &[("Throttled", 0.8)], &[]], |m| {
        m.tiers[0].throttled = (m.round > 0).then_some(0.9);
    }));
    assert_eq!((short.as_str(), standing.as_str()), ("CPU limit of the service", "3 of 3 rounds, 70 % sure"));
}

#[test]
fn without_a_finding_cpu_time_tells() {
    // What is less sure than that nothing limits does not, either.
    for found in [&[("NoneFound", 0.4)] as &[(&str, f64)], &[], &[("NoneFound", 0.9), ("Disk", 0.3)]] {
        let (short, words, standing, seen) = told(&results(&[found], |_| {}));
        assert_eq!((short.as_str(), words.as_str()), ("not the CPU", "not the CPU (10 % in use)"));
        assert_eq!((standing.as_str(), seen), ("", None));
    }
    let mut none = results(&[&[]], |_| {});
    none.measurements.clear();
    assert_eq!(of(Summary::of(&none).row(ROW).unwrap(), 2), None);
}
