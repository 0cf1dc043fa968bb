//! Report of a run of the models: its document and its files.

mod pictures;
mod tables;

#[cfg(all(test, not(feature = "shuttle")))]
pub(super) use self::tables::{PUBLISHED, PublishedModel};

use std::path::Path;

use super::results::{FILE, Measured, Outcome, Results};
use super::work::Scale;
use super::{THREAD_PER_REQUEST, catalogue};
use hotrow_report::document::{Block, Document};
use hotrow_report::file::{WriteError, replace};
use hotrow_report::{html, markdown, numbers};
use hotrow_results::report_files::{HTML_FILE, MARKDOWN_FILE, ReportError, WrittenReport};

/// Writes `models.json`, `report.md` and `report.html` into a folder, creating it.
///
/// # Errors
/// Files that cannot be written.
pub fn write(dir: &Path, results: &Results) -> Result<WrittenReport, ReportError> {
    let unwritable = |error| ReportError::from(WriteError { path: dir.to_owned(), error });
    std::fs::create_dir_all(dir).map_err(unwritable)?;
    let json = serde_json::to_string_pretty(results).map_err(|error| unwritable(error.into()))?;
    replace(&dir.join(FILE), &(json + "\n"))?;
    let document = document(results);
    let (markdown, html) = (dir.join(MARKDOWN_FILE), dir.join(HTML_FILE));
    replace(&markdown, &markdown::render(&document))?;
    replace(&html, &html::render(&document))?;
    Ok(WrittenReport {
        markdown,
        html,
        answer: answer(results),
        busy: None,
        goals: Vec::new(),
        goals_missed: 0,
    })
}

/// Returns the whole report.
pub fn document(results: &Results) -> Document {
    let mut document = summary(results);
    let blocks = &mut document.blocks;
    let heading = |text: &str| Block::Heading(text.to_owned());
    blocks.extend(pictures::throughput(results));
    blocks.push(heading("Compared with the published figures"));
    blocks.push(Block::Text(BESIDE.to_owned()));
    blocks.push(Block::Table(tables::published(results)));
    blocks.push(heading("Cost"));
    blocks.push(Block::Table(tables::cost(results)));
    blocks.push(heading("Latency of a request"));
    blocks.push(Block::Table(tables::latency(results)));
    blocks.push(heading("Explanation"));
    let models = catalogue(results.cores);
    let mut last = None;
    for measured in &results.models {
        let reasons = models
            .iter()
            .find(|model| model.name() == measured.name)
            .map(|model| model.explanation());
        // Models of one kind share their reasons, which are printed once.
        let new = reasons.filter(|_| reasons != last);
        last = reasons;
        blocks.extend(why(results, measured, new));
    }
    blocks.push(heading("Method"));
    blocks.extend(method(results));
    document
}

/// Returns the answer and the main table, for a terminal.
pub fn summary(results: &Results) -> Document {
    let mut blocks = vec![
        Block::Question(format!(
            "How does each model of request processing handle {} requests, of which one in 500 \
             sleeps?",
            numbers::grouped(results.requests as f64)
        )),
        Block::Answer(answer(results)),
    ];
    blocks.extend(warnings(results).into_iter().map(Block::Warning));
    blocks.push(Block::Table(tables::main(results)));
    Document {
        title: "Models of request processing".to_owned(),
        subtitle: format!(
            "{}; {}, {} cores, {}",
            numbers::date(results.began_unix_s),
            results.host.cpu,
            results.cores,
            results.host.kernel
        ),
        blocks,
    }
}

const BESIDE: &str = "The published experiments ran on 4 cores with 8 hardware threads and was \
                      compiled without optimisation, so its requests per second are another \
                      machine's. Compare the ratio to the sequential model, which is mostly sleep \
                      on both.";

/// Returns the answer in one or two sentences.
fn answer(results: &Results) -> String {
    let finished = results.models.iter().filter(|measured| measured.throughput_tps.is_some());
    let best = finished.max_by(|a, b| {
        a.throughput_tps.unwrap_or_default().total_cmp(&b.throughput_tps.unwrap_or_default())
    });
    let Some(best) = best else { return "No model finished.".to_owned() };
    let requests = numbers::grouped(results.requests as f64);
    let wall = best.figures.as_ref().map_or(f64::NAN, |figures| figures.wall_s * 1e6);
    let mut answer = format!(
        "The fastest, {}, served {requests} requests in {}",
        best.name,
        numbers::micros(wall)
    );
    if let Some(ratio) = ratio(results, best).filter(|_| best.name != "sequential") {
        answer +=
            &format!(", {} times as many a second as one after the other", numbers::ratio(ratio));
    }
    let slow = results
        .models
        .iter()
        .find(|m| m.name == "batches-100")
        .and_then(|batches| ratio(results, batches));
    if let Some(slow) = slow.filter(|ratio| *ratio < 1.1) {
        answer += &format!("; batches of 100 threads reached {} times", numbers::ratio(slow));
    }
    answer += ".";
    let threads = results.models.iter().find(|measured| measured.name == THREAD_PER_REQUEST);
    match threads.map(|threads| &threads.outcome) {
        Some(Outcome::Died { started, .. }) => {
            answer += &format!(
                " A thread per request died at {} threads.",
                numbers::grouped(*started as f64)
            );
        }
        Some(Outcome::Refused { .. }) => {
            answer += " A thread per request was not started, because it could not finish."
        }
        _ => {}
    }
    answer
}

/// Returns the throughput relative to the sequential model.
fn ratio(results: &Results, measured: &Measured) -> Option<f64> {
    let sequential =
        results.models.iter().find(|measured| measured.name == "sequential")?.throughput_tps?;
    Some(measured.throughput_tps? / sequential)
}

/// Returns warnings that precede the figures.
fn warnings(results: &Results) -> Vec<String> {
    let mut warnings = results.warnings.clone();
    if results.scale < Scale::FULL.get() {
        let share = numbers::percent(results.scale);
        warnings.push(format!(
            "The sleeps were {share} of the published ones: a quick run, whose ratios say little."
        ));
    }
    for measured in &results.models {
        let name = &measured.name;
        match &measured.outcome {
            Outcome::Finished | Outcome::Died { .. } | Outcome::Refused { .. } => {}
            Outcome::Lost { why } => warnings.push(format!("{name} has no result: {why}.")),
            Outcome::Wrong => {
                let checks = measured
                    .figures
                    .iter()
                    .flat_map(|figures| &figures.checks)
                    .filter(|check| !check.right);
                let wrong = checks.map(|check| {
                    format!("{} {} instead of {}", check.found, check.what, check.expected)
                });
                warnings.push(format!(
                    "{name} did not do its work: {}.",
                    wrong.collect::<Vec<_>>().join(", ")
                ));
            }
        }
    }
    warnings
}

/// Describes a model's end, its reasons and its first moments.
fn why(results: &Results, measured: &Measured, reasons: Option<[&str; 3]>) -> Vec<Block> {
    let mut blocks = vec![Block::Subheading(measured.name.clone())];
    match &measured.outcome {
        Outcome::Died { started, why, remedy, .. } => {
            let done = numbers::grouped(measured.done as f64);
            let started = numbers::grouped(*started as f64);
            blocks.push(Block::Text(format!(
                "It was refused a thread after {started} threads; {done} requests were done, and \
                 there is no throughput. {why}. Remedy: {remedy}.",
                why = capital(why)
            )));
        }
        Outcome::Refused { why, remedy, .. } => {
            blocks.push(Block::Text(format!("It was not started: {why}. Remedy: {remedy}.")));
        }
        Outcome::Finished | Outcome::Wrong | Outcome::Lost { .. } => {}
    }
    blocks.extend(reasons.map(|reasons| Block::Text(reasons.join(" "))));
    blocks.extend(pictures::timeline(results, measured));
    blocks
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn method(results: &Results) -> Vec<Block> {
    let fact = |name: &str, value: String| (name.to_owned(), value);
    vec![
        Block::List(METHOD.iter().map(|line| (*line).to_owned()).collect()),
        Block::Facts(vec![
            fact("Machine", format!("{}, {} cores", results.host.cpu, results.cores)),
            fact("Memory", numbers::bytes(results.host.memory_bytes as f64)),
            fact("Kernel", results.host.kernel.clone()),
            fact("Hotrow", results.version.clone()),
            fact("CPU time of a request", numbers::micros(results.request_cpu_us)),
        ]),
        Block::Code(results.command.clone()),
    ]
}

const METHOD: [&str; 5] = [
    "A request computes a root and a sine, writes the result, sleeps or yields by its id, copies a \
     text of 12,386 bytes and turns its 157 letters v.",
    "Each model ran once, in a process of its own, and every run was checked: each id once, all \
     sleeps, all yields, the sum of the results, every letter.",
    "A floor is what no run of that kind can beat: for threads that block, all sleep and work over \
     the threads; where sleep takes no thread, the last long sleep started in order; never less \
     than the work over the cores. Work counts with the CPU time of a request as it was measured \
     before.",
    "Queue is the time from being handed over to the first step; processing is from there to the \
     end, sleep included.",
    "System calls were counted in a second run with shorter sleeps, because counting slows the \
     run.",
];

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
