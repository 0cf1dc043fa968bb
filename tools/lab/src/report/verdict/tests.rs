use super::super::summary::Summary;
use super::super::tests::fixture;
use super::*;
use hotrow_results::{Measurement, Results};

const ROW: &str = "direct/date/6";

fn finding(class: &str, confidence: f64) -> Finding {
    Finding {
        class: class.to_owned(),
        description: format!("words of {class}"),
        confidence,
        ..Finding::default()
    }
}

/// Returns a row whose tiers show no bottleneck, with these findings by round; rates rise with the
/// rounds.
fn results(rounds: &[&[(&str, f64)]], change: impl Fn(&mut Measurement)) -> Results {
    let mut results = fixture::results(rounds.len() as u32);
    results.measurements.retain(|m| m.row == ROW);
    for (measurement, found) in results.measurements.iter_mut().zip(rounds) {
        for tier in &mut measurement.tiers {
            (tier.limit_cores, tier.throttled, tier.cpu_s) = (None, None, 0.5);
        }
        measurement.findings =
            found.iter().map(|(class, confidence)| finding(class, *confidence)).collect();
        measurement.load.as_mut().unwrap().rps = 100.0 + f64::from(measurement.round);
        change(measurement);
    }
    results
}

/// Returns short words, words, agreement, and class and confidence of the evidence.
fn verdict_of(results: &Results) -> (String, String, String, Option<(String, f64)>) {
    let summary = Summary::of(results);
    let verdict = of(summary.row(ROW).unwrap(), 2).unwrap();
    let seen = verdict.seen.map(|seen| (seen.class.clone(), seen.confidence));
    (verdict.short, verdict.words, verdict.agreement, seen)
}

#[test]
fn the_majority_wins_with_evidence_of_its_median_round() {
    let rounds: [&[(&str, f64)]; 5] = [
        &[("Proxy", 0.9), ("AllCpus", 0.6)],
        &[("AllCpus", 0.9)],
        &[("Proxy", 0.7)],
        &[("Proxy", 0.8)],
        &[("Disk", 0.99)],
    ];
    let (short, words, agreement, seen) = verdict_of(&results(&rounds, |_| {}));
    assert_eq!((short.as_str(), words.as_str()), ("the proxy", "words of Proxy"));
    assert_eq!(agreement, "3 of 5 rounds; else all CPUs, words of Disk, 80 % confidence");
    assert_eq!(seen, Some(("Proxy".to_owned(), 0.7)), "the third round has the median rate");
    // On a tie the higher confidence wins; an unknown class is named by its description.
    let (short, _, agreement, _) =
        verdict_of(&results(&[&[("New", 0.9)], &[("Proxy", 0.5)]], |_| {}));
    assert_eq!(
        (short.as_str(), agreement.as_str()),
        ("words of New", "1 of 2 rounds; else the proxy, 90 % confidence")
    );
}

#[test]
fn findings_do_not_override_cpu_time() {
    let one = |found: &[(&str, f64)], change: fn(&mut Measurement)| {
        verdict_of(&results(&[found], change))
    };
    let throttled: fn(&mut Measurement) = |m| m.tiers[0].throttled = Some(0.9);
    let (short, words, agreement, seen) = one(&[("Proxy", 0.9), ("Throttled", 0.8)], throttled);
    assert_eq!(
        (short.as_str(), agreement.as_str()),
        ("CPU limit of the service", "80 % confidence")
    );
    assert!(
        words.starts_with("the CPU limit of the service")
            && seen.is_some_and(|(class, _)| class == "Throttled")
    );
    let generator: fn(&mut Measurement) = |m| m.load.as_mut().unwrap().generator_limited = true;
    assert_eq!(one(&[("Throttled", 0.95), ("Generator", 0.9)], generator).0, "the generator");
    let (short, words, ..) =
        one(&[("Throttled", 0.95), ("AllCpus", 0.95), ("Generator", 0.4)], generator);
    let others = "the rate is a lower bound; deployment and generator used 0.20 of 2 cores, other \
                  processes the rest";
    assert!(short == "all CPUs" && words.ends_with(others), "{words}");
    // A backend behind a cache that is throttled in a short burst each second is not a bottleneck.
    let idle: fn(&mut Measurement) = |m| {
        (m.tiers[0].limit_cores, m.tiers[0].throttled, m.tiers[0].cpu_s) =
            (Some(0.2), Some(0.9), 0.01);
    };
    assert_eq!(one(&[("Throttled", 0.95), ("Proxy", 0.6)], idle).0, "the proxy");
    let full: fn(&mut Measurement) = |m| m.tiers[0].cpu_s = 9.0;
    let (short, words, ..) = one(&[("AllCpus", 0.9)], full);
    assert!(short == "all CPUs" && words.contains("1.90 of 2 cores"), "{words}");
    let mut kept = results(&[&[("OneThread", 0.9)]], |_| {});
    kept.rows.iter_mut().filter(|row| row.id == ROW).for_each(|row| row.rate = Some(100.0));
    let (short, _, agreement, seen) = verdict_of(&kept);
    assert_eq!((short.as_str(), agreement.as_str(), seen), ("nothing", "", None));
}

#[test]
fn rounds_of_one_class_agree_whatever_their_evidence() {
    let (short, _, agreement, _) =
        verdict_of(&results(&[&[("Throttled", 0.6)], &[("Throttled", 0.8)], &[]], |m| {
            m.tiers[0].throttled = (m.round > 0).then_some(0.9);
        }));
    assert_eq!(
        (short.as_str(), agreement.as_str()),
        ("CPU limit of the service", "3 of 3 rounds, 70 % confidence")
    );
}

#[test]
fn without_a_finding_cpu_time_decides() {
    // Findings of lower confidence than "none found" count as none.
    for found in
        [&[("NoneFound", 0.4)] as &[(&str, f64)], &[], &[("NoneFound", 0.9), ("Disk", 0.3)]]
    {
        let (short, words, agreement, seen) = verdict_of(&results(&[found], |_| {}));
        assert_eq!((short.as_str(), words.as_str()), ("not the CPU", "not the CPU (10 % in use)"));
        assert_eq!((agreement.as_str(), seen), ("", None));
    }
    let mut none = results(&[&[]], |_| {});
    none.measurements.clear();
    assert_eq!(of(Summary::of(&none).row(ROW).unwrap(), 2), None);
}
