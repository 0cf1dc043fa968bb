//! Plots of the result: capacity, latency, and CPU use, over the target rate or the number of
//! connections.

use hotrow_load::stats::CensoredNs;
use hotrow_measure::statistics::median;
use hotrow_report::numbers::number;
use hotrow_report::plot::{
    Axis, Band, Dot, Line, Lines, MarkedLines, Rule, RulePosition, Scale, Unit,
};
use hotrow_trial::capacity::{closed, usl};

use super::report::{ClosedResult, OpenResult, Report, SearchResult};
use super::step_result::StepResult;
use hotrow_load::format::counted;

/// Factor between latencies from which the scale is logarithmic.
const LINEAR_UP_TO: f64 = 20.0;
/// Points of the scalability law's curve.
const LAW_POINTS: usize = 60;
/// CPU share from which the rules call a machine full.
const FULL: f64 = 0.9;
/// Legend of hollow dots.
const NOT_KEPT: &str = "hollow: missed, or the generator was the limit";

/// Returns the plot from which the result is read.
pub(super) fn capacity(report: &Report) -> Option<MarkedLines> {
    match &report.result {
        SearchResult::Open(open) => rates(report, open),
        SearchResult::Closed(closed) => throughput(report, closed),
    }
}

pub(super) fn others(report: &Report) -> Vec<MarkedLines> {
    [latency(report), cpus(report)].into_iter().flatten().collect()
}

/// Plots answered over requested rate.
fn rates(report: &Report, open: &OpenResult) -> Option<MarkedLines> {
    let measured = Curve::of(report, "answered as expected", |step| Some(step.answered_rps));
    let most = measured.dots.iter().map(|(at, _)| at.0).fold(0.0, f64::max);
    let ideal =
        Line { label: "answered = target".to_owned(), points: vec![(0.0, 0.0), (most, most)] };
    let rules = interval(open).into_iter().collect();
    let title = "Capacity: answered over target rate";
    let rate = axis("requests/s", Scale::Linear, Unit::Number);
    let mut drawn = drawn(report, title, rate, vec![measured], rules)?;
    drawn.lines.lines.push(ideal);
    Some(drawn)
}

/// Returns the interval of the limit.
fn interval(open: &OpenResult) -> Option<Rule> {
    let low = open.found.kept?;
    let high = open.found.refuted;
    let low_rps = low.rate_rps;
    let Some(high) = high.filter(|high| !high.generator) else {
        let label = format!("kept: {}/s; the limit lies above", number(low_rps));
        return Some(Rule { label, at: RulePosition::X(low_rps) });
    };
    let firm = if low.firm && high.firm { "" } else { ", not confirmed" };
    let label = format!("the limit: {} to {}/s{firm}", number(low_rps), number(high.rate_rps));
    Some(Rule { label, at: RulePosition::Between(low_rps, high.rate_rps) })
}

/// Plots throughput over connections, with the scalability law.
fn throughput(report: &Report, closed: &ClosedResult) -> Option<MarkedLines> {
    let measured = Curve::of(report, "answered as expected (median of the rounds)", |step| {
        Some(step.answered_rps)
    });
    let knee = closed.knee.map(|(connections, rate)| Rule {
        label: format!("knee: {}/s from {}", number(rate), counted(connections, "connection")),
        at: RulePosition::X(connections as f64),
    });
    let rules = knee.into_iter().collect();
    let title = "Capacity: answered over connections";
    let rate = axis("requests/s", Scale::Linear, Unit::Number);
    let mut drawn = drawn(report, title, rate, vec![measured], rules)?;
    if let Some(fit) = &closed.fit {
        let at = law_points(closed);
        let points = at.iter().map(|n| (*n, fit.law.rate_rps(*n))).collect();
        drawn.lines.lines.push(Line { label: "scalability law, fitted".to_owned(), points });
        let ends = usl::band(&closed::points(&closed.levels), closed.seed, &at);
        let points = at.iter().zip(ends).map(|(n, (low, high))| (*n, low, high)).collect();
        let label = "95 % of its refits (too narrow with few rounds)".to_owned();
        drawn.bands.push(Band { curve: 1, label, points });
    }
    Some(drawn)
}

/// Returns points evenly spaced on the logarithmic axis, from one connection to the maximum.
fn law_points(closed: &ClosedResult) -> Vec<f64> {
    let most = closed.levels.iter().map(|level| level.connections).max().unwrap_or(1).max(1) as f64;
    (0..=LAW_POINTS).map(|i| most.powf(i as f64 / LAW_POINTS as f64)).collect()
}

fn latency(report: &Report) -> Option<MarkedLines> {
    let us = |value: Option<CensoredNs>| value.map(|value| value.ns() as f64 / 1e3);
    let curves = vec![
        Curve::of(report, "p50", move |step| us(step.p50)),
        Curve::of(report, "p99", move |step| us(step.p99)),
    ];
    let rules: Vec<Rule> = report.latency_bounds();
    let bounds = rules
        .iter()
        .filter_map(|rule| if let RulePosition::Y(us) = rule.at { Some(us) } else { None });
    let values =
        curves.iter().flat_map(|curve| curve.dots.iter().map(|(at, _)| at.1)).chain(bounds);
    let (least, most) = values
        .filter(|us| *us > 0.0)
        .fold((f64::MAX, 0.0_f64), |(l, m), us| (l.min(us), m.max(us)));
    let scale = if most > least * LINEAR_UP_TO { Scale::Log } else { Scale::Linear };
    drawn(report, "Latency", axis("latency", scale, Unit::Micros), curves, rules)
}

fn cpus(report: &Report) -> Option<MarkedLines> {
    let of_all = |step: &StepResult| Some(step.service_cpus? / step.cpus? as f64);
    let machine = if report.local { "all CPUs" } else { "all CPUs of the generator's machine" };
    let curves = vec![
        Curve::of(report, machine, |step| step.cpu_busy),
        Curve::of(report, "the service, of all CPUs", of_all),
        Curve::of(report, "the generator's busiest thread, of one CPU", |step| {
            Some(step.generator_share)
        }),
    ];
    let rules = vec![Rule {
        label: "90 %: from here on CPUs count as full".to_owned(),
        at: RulePosition::Y(FULL),
    }];
    drawn(report, "Use of CPUs", axis("share", Scale::Linear, Unit::Share), curves, rules)
}

/// Steps as dots, with a curve through the medians of equal loads.
struct Curve {
    label: String,
    /// Position of each step, and whether its rate was kept.
    dots: Vec<((f64, f64), bool)>,
}

impl Curve {
    fn of(report: &Report, label: &str, value: impl Fn(&StepResult) -> Option<f64>) -> Self {
        let x = |step: &StepResult| step.rate_rps.unwrap_or(step.connections as f64);
        let kept = |step: &StepResult| ["kept", "fine"].contains(&step.verdict);
        let dots =
            report.steps.iter().filter_map(|step| Some(((x(step), value(step)?), kept(step))));
        Self { label: label.to_owned(), dots: dots.collect() }
    }

    fn line(&self) -> Line {
        let mut positions: Vec<f64> = self.dots.iter().map(|(at, _)| at.0).collect();
        positions.sort_by(f64::total_cmp);
        positions.dedup();
        let point = |x: f64| {
            let values: Vec<f64> =
                self.dots.iter().filter(|(at, _)| at.0 == x).map(|(at, _)| at.1).collect();
            Some((x, median(&values)?))
        };
        Line {
            label: self.label.clone(),
            points: positions.into_iter().filter_map(point).collect(),
        }
    }
}

fn axis(name: &str, scale: Scale, unit: Unit) -> Axis {
    Axis { name: name.to_owned(), scale, unit }
}

/// Draws curves with their dots over the load; `None` without measurements.
fn drawn(
    report: &Report,
    title: &str,
    y: Axis,
    curves: Vec<Curve>,
    rules: Vec<Rule>,
) -> Option<MarkedLines> {
    let (over, over_scale) = match report.result {
        SearchResult::Open(_) => ("target requests/s", Scale::Linear),
        SearchResult::Closed(_) => ("connections", Scale::Log),
    };
    let curves: Vec<Curve> = curves.into_iter().filter(|curve| !curve.dots.is_empty()).collect();
    let dots = curves.iter().enumerate().flat_map(|(number, curve)| {
        curve.dots.iter().map(move |(at, kept)| Dot { curve: number, at: *at, hollow: !kept })
    });
    let dots = dots.collect();
    (!curves.is_empty()).then(|| MarkedLines {
        lines: Lines {
            title: title.to_owned(),
            description: format!(
                "{title}, over {over}: a dot for each step, and curves through their medians."
            ),
            x: axis(over, over_scale, Unit::Number),
            y,
            lines: curves.iter().map(Curve::line).collect(),
        },
        dots,
        hollow: Some(NOT_KEPT.to_owned()),
        bands: Vec::new(),
        rules,
    })
}
