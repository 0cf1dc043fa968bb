//! The result as an HTML page.

mod plots;
mod tables;

use hotrow_load::outcome::{Outcome, RunEnd};
use hotrow_report::document::{Block, Document};
use hotrow_report::numbers::number;
use hotrow_trial::bottleneck_text;

use super::load_result::LoadResult;
use super::text::CONFIRM_OPTION;

/// Returns the page; `command` is the command line.
pub(super) fn page(result: &LoadResult<'_>, command: &str) -> String {
    let document = Document {
        title: format!("Load on {}", result.url),
        subtitle: format!("{}; hotrow {}", result.measured_on, env!("CARGO_PKG_VERSION")),
        blocks: blocks(result, command),
    };
    hotrow_report::html::render(&document)
}

fn blocks(result: &LoadResult<'_>, command: &str) -> Vec<Block> {
    let LoadResult { config, outcome, judged, diagnosed, .. } = *result;
    let heading = |words: &str| Block::Heading(words.to_owned());
    let mut blocks = vec![
        Block::Answer(answer(outcome)),
        Block::Text(bottleneck_text::sentence_beside(outcome, diagnosed.named())),
        Block::Facts(tables::facts(config, outcome)),
    ];
    blocks.extend(
        outcome
            .failure_messages
            .iter()
            .map(|(words, n)| Block::Warning(format!("{words} ({n} times)"))),
    );
    let limit = diagnosed.blocks(CONFIRM_OPTION);
    if !limit.is_empty() {
        blocks.push(heading("What limited it"));
        blocks.extend(limit);
    }
    if !judged.is_empty() {
        blocks.extend([heading("Objectives"), Block::Table(tables::objectives(judged))]);
    }
    blocks.extend([
        heading("Latency"),
        Block::Table(tables::times(outcome)),
        Block::Plot(plots::distribution(outcome)),
        Block::Table(tables::parts(&outcome.total)),
        heading("Over time"),
    ]);
    blocks.extend(plots::over_time(outcome).into_iter().map(Block::Plot));
    blocks.extend([heading("Command"), Block::Code(command.to_owned())]);
    blocks
}

fn answer(outcome: &Outcome) -> String {
    match outcome.end {
        RunEnd::TargetUnreachable | RunEnd::StoppedAnswering { .. } => {
            bottleneck_text::summary(outcome, None)
        }
        RunEnd::Complete | RunEnd::Interrupted => {
            let bound = if outcome.limit().is_generator() { "At least " } else { "" };
            format!("{bound}{} requests/s answered as expected.", number(outcome.throughput_rps()))
        }
    }
}

/// Replaces a secret value.
const HIDDEN: &str = "…";

/// Formats the command line for a shell. Values of headers and of `--db-url` are omitted: some are
/// secrets, and pages are shared.
pub(crate) fn command(arguments: impl Iterator<Item = String>) -> String {
    let mut words = Vec::new();
    let (mut is_header, mut is_url) = (false, false);
    for argument in arguments {
        let hidden = |header: &str| format!("{}: …", header.split(':').next().unwrap_or_default());
        let attached =
            ["--header=", "-H"].iter().find_map(|flag| Some((*flag, argument.strip_prefix(flag)?)));
        let word = match attached {
            _ if is_header => hidden(&argument),
            _ if is_url => HIDDEN.to_owned(),
            _ if argument.starts_with("--db-url=") => format!("--db-url={HIDDEN}"),
            Some((flag, header)) if !header.is_empty() => format!("{flag}{}", hidden(header)),
            _ => argument.clone(),
        };
        let is_value = is_header || is_url;
        is_header = !is_value && (argument == "-H" || argument == "--header");
        is_url = !is_value && argument == "--db-url";
        words.push(quoted(&word));
    }
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_repeated_but_contains_no_secret() {
        let formatted = |line: &[&str]| command(line.iter().map(|word| (*word).to_owned()));
        let line = [
            "load",
            "-H",
            "Cookie: a=b",
            "-HX: y",
            "--header=Authorization: Bearer t",
            "http://a/{id}?x='",
        ];
        let want =
            r"load -H 'Cookie: …' '-HX: …' '--header=Authorization: …' 'http://a/{id}?x='\'''";
        assert_eq!(formatted(&line), want);
        let url = "postgres://me:secret@db/shop";
        let attached = format!("--db-url={url}");
        let line = ["load", "--db-url", url, attached.as_str(), "-H", "--db-url", "http://a/"];
        let want = "load --db-url '…' '--db-url=…' -H '--db-url: …' http://a/";
        assert_eq!(formatted(&line), want);
        assert_eq!(formatted(&["--slo", "p99<5ms", ""]), "--slo 'p99<5ms' ''");
    }
}
