//! A frame as text and bars, fitted to the available room. Pure.

use hotrow_load::stats::CensoredNs;
use hotrow_report::numbers::{cores, number, percent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::layout::{self, Body, Panel};
use super::view::{Core, Machine, Progress, Search, StepRow, SuspectedLimit, Time, Tone, View};
use hotrow_load::format::{counted, duration, known};

/// Maximum width of the display, for readable lines.
pub(super) const WIDTH_MAX: u16 = 120;
/// Maximum height.
pub(super) const HEIGHT_MAX: u16 = 30;
/// Terminal size from which two columns are shown.
const COLUMNS_FROM: (u16, u16) = (76, 14);
const CURVE_ROWS: u16 = 3;
const CURVE_MAX: f64 = 1e12;
/// Most CPUs with a bar each; more have one character each.
const BARS_MAX: usize = 4;
const PROCESSES_MAX: usize = 4;
const EVIDENCE_MAX: usize = 2;

// Removal order with too little room: the highest first.
const TITLE: u8 = 20;
const PASSED: u8 = 30;
const SUSPICION: u8 = 40;
const EVIDENCE: u8 = 150;
const RATE: u8 = 10;
const CURVE: u8 = 200;
const TIMES: u8 = 110;
const TIMES_SHORT: u8 = 15;
const FAILURES: u8 = 50;
const NO_FAILURES: u8 = 160;
const GENERATOR: u8 = 120;
const CONNECTIONS: u8 = 140;
const MACHINE: u8 = 130;
const MACHINE_SHORT: u8 = 60;
const STEP: u8 = 25;
const SO_FAR: u8 = 16;
const BUDGET: u8 = 100;
const STEPS_HEAD: u8 = 90;
/// The latest step; earlier ones are removed first.
const STEPS: u8 = 70;

/// Returns the frame for a terminal of this size; at least one row where there is one.
pub(super) fn frame(view: &View, (width, height): (u16, u16)) -> Buffer {
    let width = width.min(WIDTH_MAX);
    let height = height.min(HEIGHT_MAX);
    let parts = if width >= COLUMNS_FROM.0 && height >= COLUMNS_FROM.1 {
        wide(view, width, height)
    } else {
        layout::fit(narrow(view, width), height)
    };
    let area = Rect::new(0, 0, width, layout::height(&parts).min(height));
    let mut buffer = Buffer::empty(area);
    layout::render(&parts, area, &mut buffer);
    buffer
}

fn narrow(view: &View, width: u16) -> Vec<Panel> {
    let mut parts = head(view, width);
    parts.push(Panel::new(RATE, vec![rate(view)]));
    parts.extend([curve(view), times(view), failures(view)]);
    parts.extend(machine(view, width));
    parts.push(generator(view));
    parts.push(connections(view));
    parts.extend(suspicion(view));
    parts.extend(view.search.iter().flat_map(|search| steps(search, width)));
    parts
}

fn wide(view: &View, width: u16, height: u16) -> Vec<Panel> {
    let half = width.saturating_sub(3) / 2;
    let left = vec![
        Panel::new(RATE, vec![rate(view)]),
        curve(view),
        Panel::blank(),
        times(view),
        failures(view),
    ];
    let mut right = machine(view, half);
    right.extend([Panel::blank(), generator(view), connections(view)]);
    let mut parts = head(view, width);
    parts.push(Panel::blank());
    let steps: Vec<Panel> = view.search.iter().flat_map(|search| steps(search, width)).collect();
    let others = layout::height(&parts) + layout::height(&suspicion(view)) + 2;
    // Some steps are more important than the last rows of the columns.
    let for_steps = u16::try_from(steps.len().min(4)).unwrap_or(0);
    let room = height.saturating_sub(others + for_steps);
    let left = layout::fit(left, room);
    let right = layout::fit(right, room);
    parts.push(Panel::of(0, Body::Columns { left, right }));
    parts.push(Panel::blank());
    parts.extend(suspicion(view));
    if !steps.is_empty() {
        parts.push(Panel::blank());
    }
    parts.extend(steps);
    layout::fit(parts, height)
}

/// Returns the target, the progress, and in a search the current step.
fn head(view: &View, width: u16) -> Vec<Panel> {
    let mut title = vec![Span::styled(view.title.clone(), bold())];
    let setting = format!("  {}", view.setting);
    if view.title.chars().count() + setting.chars().count() <= usize::from(width) {
        title.push(Span::styled(setting, quiet()));
    }
    let mut parts = vec![Panel::new(TITLE, vec![Line::from(title)])];
    if let Some(search) = &view.search {
        parts.push(Panel::new(SO_FAR, vec![Line::from(search.so_far.clone())]));
        parts.push(Panel::new(BUDGET, vec![passed(search.name, &search.budget, width)]));
        parts.push(Panel::new(
            STEP,
            vec![Line::from(vec![label("step"), Span::raw(search.step.clone())])],
        ));
    }
    let name = if view.search.is_some() { "" } else { "time" };
    parts.push(Panel::new(PASSED, vec![passed(name, &view.passed, width)]));
    parts
}

/// Returns a progress bar with its text.
fn passed(name: &str, passed: &Progress, width: u16) -> Line<'static> {
    let mut spans = vec![label(name)];
    if let Some(share) = passed.share {
        let room = usize::from(width).saturating_sub(LABEL + 2 + passed.words.chars().count());
        let room = room.min(40);
        spans.extend(bar(room, &[(share, '━', Style::new().fg(Color::Cyan))], '─'));
        spans.push(Span::raw("  "));
    }
    spans.push(Span::raw(passed.words.clone()));
    Line::from(spans)
}

fn rate(view: &View) -> Line<'static> {
    let now = view.rate.last_rps.map_or_else(|| "–".to_owned(), number);
    let mut spans = vec![label("rate"), Span::styled(now, bold()), Span::raw(" answered/s")];
    if let Some(target) = view.rate.target_rps {
        spans.push(Span::styled(format!("  of {}", number(target)), quiet()));
    }
    Line::from(spans)
}

fn curve(view: &View) -> Panel {
    let values = view
        .rate
        .history_rps
        .iter()
        .map(|rate| rate.clamp(0.0, CURVE_MAX).round() as u64)
        .collect();
    Panel::of(CURVE, Body::Curve { values, rows: CURVE_ROWS })
}

/// Returns a table, or the last second's values on one line.
fn times(view: &View) -> Panel {
    let cell_text = |time: Option<CensoredNs>| time.map_or_else(|| "–".to_owned(), known);
    let row = |time: &Time| {
        let cells = format!("{:>12}{:>14}", cell_text(time.second), cell_text(time.overall));
        Line::from(vec![label(time.name), Span::raw(cells)])
    };
    let overall = if view.search.is_some() { "this step" } else { "overall" };
    let names = Span::styled(format!("{:>12}{overall:>14}", "last second"), quiet());
    let mut lines = vec![Line::from(vec![label("latency"), names])];
    lines.extend(view.times.iter().map(row));
    let short = view.times.iter().filter(|time| ["p50", "p99"].contains(&time.name));
    let short: Vec<String> =
        short.map(|time| format!("{} {}", time.name, cell_text(time.second))).collect();
    Panel::new(TIMES, lines)
        .or(TIMES_SHORT, vec![Line::from(vec![label("latency"), Span::raw(short.join("  "))])])
}

fn failures(view: &View) -> Panel {
    if view.failures.is_empty() {
        return Panel::new(NO_FAILURES, vec![Line::from(vec![label("failed"), Span::raw("none")])]);
    }
    let kinds: Vec<String> = view.failures.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
    let line = |words: String| Line::from(vec![label("failed"), Span::styled(words, bad())]);
    Panel::new(FAILURES, vec![line(kinds.join(", "))])
}

fn generator(view: &View) -> Panel {
    let busiest = view.generator.busiest.map_or_else(|| "–".to_owned(), percent);
    let lag = view.generator.lag_p99_ns.map_or_else(|| "–".to_owned(), duration);
    let line = |name: &str, words: String| Line::from(vec![label(name), Span::raw(words)]);
    let lines = [
        ("generator", format!("busiest at {busiest} of a CPU")),
        ("", format!("late by {lag} (p99)")),
    ];
    Panel::new(GENERATOR, lines.into_iter().map(|(name, words)| line(name, words)).collect())
}

fn connections(view: &View) -> Panel {
    let connections = &view.connections;
    let busy = connections.busy.map_or_else(|| "–".to_owned(), |busy| format!("about {busy:.1}"));
    let mut words = format!("{busy} of {}", counted(connections.count, "connection"));
    if connections.reopened > 0 {
        words.push_str(&format!(", {} reopened", connections.reopened));
    }
    Panel::new(CONNECTIONS, vec![Line::from(vec![label("in use"), Span::raw(words)])])
}

/// Returns the CPUs by process.
fn machine(view: &View, width: u16) -> Vec<Panel> {
    let Some(machine) = &view.machine else { return Vec::new() };
    let mut lines = if machine.cores.len() <= BARS_MAX {
        bars(machine, width)
    } else {
        letters(machine, width)
    };
    let named = machine.processes.iter().take(PROCESSES_MAX);
    let mut rows: Vec<(String, f64)> =
        named.map(|process| (process.name.clone(), process.cores)).collect();
    let unnamed: f64 =
        machine.processes.iter().skip(PROCESSES_MAX).map(|process| process.cores).sum();
    rows.push(("everything else".to_owned(), machine.others_cores + unnamed));
    for (i, (name, used)) in rows.into_iter().enumerate() {
        let words = format!("{:>5}  {name}", cores(used));
        lines.push(Line::from(vec![label(if i == 0 { "CPUs of" } else { "" }), Span::raw(words)]));
    }
    vec![Panel::new(MACHINE, lines).or(MACHINE_SHORT, vec![total(machine)])]
}

/// Returns a bar per CPU, of lines: blocks of adjacent rows would merge into one.
fn bars(machine: &Machine, width: u16) -> Vec<Line<'static>> {
    let row = |(i, core): (usize, &Core)| {
        let words = format!("  {:>5}{}", percent(core.busy), stolen(core.steal));
        let room = usize::from(width).saturating_sub(LABEL + 22).clamp(4, 24);
        let parts = [
            (
                core.busy,
                '━',
                Style::new().fg(if core.busy >= 0.9 { Color::Yellow } else { Color::Green }),
            ),
            (core.steal, '╍', bad()),
        ];
        let mut spans = vec![label(&format!("CPU {i}"))];
        spans.extend(bar(room, &parts, '─'));
        spans.push(Span::raw(words));
        Line::from(spans)
    };
    machine.cores.iter().enumerate().map(row).collect()
}

/// Returns one character per CPU, as high as it is busy.
fn letters(machine: &Machine, width: u16) -> Vec<Line<'static>> {
    const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let letter = |core: &Core| {
        let at = ((core.busy + core.steal).clamp(0.0, 1.0) * 8.0).round() as usize;
        let style = if core.steal >= 0.1 { bad() } else { Style::new().fg(Color::Green) };
        Span::styled(HEIGHTS[at.min(8)].to_string(), style)
    };
    let room = usize::from(width).saturating_sub(LABEL).max(1);
    let rows = machine.cores.chunks(room).take(2);
    let mut lines = vec![total(machine)];
    lines.extend(rows.map(|row| {
        let mut spans = vec![label("")];
        spans.extend(row.iter().map(letter));
        Line::from(spans)
    }));
    lines
}

fn total(machine: &Machine) -> Line<'static> {
    let n = machine.cores.len().max(1) as f64;
    let mean = |of: fn(&Core) -> f64| machine.cores.iter().map(of).sum::<f64>() / n;
    let of = if machine.cores.len() == 1 {
        "1 CPU".to_owned()
    } else {
        format!("{} CPUs", machine.cores.len())
    };
    let words = format!(
        "{of}, {} busy{}",
        percent(mean(|core| core.busy)),
        stolen(mean(|core| core.steal))
    );
    Line::from(vec![label("machine"), Span::raw(words)])
}

fn stolen(steal: f64) -> String {
    if steal >= 0.005 { format!("  steal {}", percent(steal)) } else { String::new() }
}

fn suspicion(view: &View) -> Vec<Panel> {
    let Some(SuspectedLimit { words, confidence, evidence }) = &view.suspicion else {
        return Vec::new();
    };
    let sure = confidence
        .map_or_else(String::new, |confidence| format!(" ({} sure)", percent(confidence)));
    let style = if confidence.is_some() { Style::new().fg(Color::Yellow) } else { Style::new() };
    let line = Line::from(vec![
        label("suspicion"),
        Span::styled(words.clone(), style),
        Span::styled(sure, quiet()),
    ]);
    let mut parts = vec![Panel::new(SUSPICION, vec![line])];
    for words in evidence.iter().take(EVIDENCE_MAX) {
        parts.push(Panel::new(
            EVIDENCE,
            vec![Line::from(vec![label(""), Span::styled(words.clone(), quiet())])],
        ));
    }
    parts
}

/// Returns the completed steps, one panel each: the earliest are removed first.
fn steps(search: &Search, width: u16) -> Vec<Panel> {
    if search.steps.is_empty() {
        return Vec::new();
    }
    let head = format!(
        "{:>12}  {:<11} {:<9} {:>10}  {:>9}  suspicion",
        "target", "step", "verdict", "answered/s", "p99"
    );
    let mut parts = vec![Panel::new(STEPS_HEAD, vec![Line::styled(head, quiet())])];
    let first = search.steps.len().saturating_sub(usize::from(HEIGHT_MAX));
    let kept = &search.steps[first..];
    for (i, step) in kept.iter().enumerate() {
        let age = u8::try_from(kept.len() - 1 - i).unwrap_or(u8::MAX);
        // Older steps rank before the head and the columns' details, the latest after them.
        let rank = if age == 0 { STEPS } else { u8::MAX - 40 + age.min(39) };
        parts.push(Panel::new(rank, vec![step_row(step, width)]));
    }
    parts
}

fn step_row(step: &StepRow, width: u16) -> Line<'static> {
    let p99 = step.p99.map_or_else(|| "–".to_owned(), known);
    let style = match step.tone {
        Tone::Neutral => Style::new(),
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Bad => bad(),
    };
    let verdict = Span::styled(format!("{:<9}", step.verdict), style);
    if width < COLUMNS_FROM.0 {
        let words = format!(" p99 {p99}");
        return Line::from(vec![
            Span::raw(format!("{:>12} ", step.target)),
            verdict,
            Span::raw(words),
        ]);
    }
    Line::from(vec![
        Span::raw(format!("{:>12}  {:<11} ", step.target, step.purpose)),
        verdict,
        Span::raw(format!(" {:>10}  {p99:>9}  ", number(step.answered_rps))),
        Span::styled(step.suspicion.clone(), quiet()),
    ])
}

const LABEL: usize = 10;

fn label(name: &str) -> Span<'static> {
    Span::styled(format!("{name:<LABEL$}"), quiet())
}

/// Returns a bar of characters: its shares one after the other, the rest filled with `rest`.
fn bar(width: usize, shares: &[(f64, char, Style)], rest: char) -> Vec<Span<'static>> {
    let mut used = 0;
    let mut sum = 0.0;
    let mut spans = Vec::new();
    for (share, letter, style) in shares {
        sum += share.clamp(0.0, 1.0);
        let end = ((sum * width as f64).round() as usize).min(width);
        let letters: String = std::iter::repeat_n(*letter, end.saturating_sub(used)).collect();
        spans.push(Span::styled(letters, *style));
        used = used.max(end);
    }
    spans.push(Span::styled(std::iter::repeat_n(rest, width - used).collect::<String>(), quiet()));
    spans
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn quiet() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn bad() -> Style {
    Style::new().fg(Color::Red)
}
