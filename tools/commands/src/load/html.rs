//! The result as a document: an HTML page, and text for a terminal without its plots.

mod plots;
mod tables;

use hotrow_load::objective::ObjectiveStatus;
use hotrow_report::document::{Block, Document};
use hotrow_report::numbers::grouped;

use super::load_result::{CONFIRM_OPTION, LoadResult};

/// Returns the page; `command` is the command line.
pub(super) fn page(result: &LoadResult<'_>, command: &str) -> String {
    hotrow_report::html::render(&document(result, Some(command)))
}

/// Returns the document, whose first sentence is the result; with a command line, that of a page.
pub(super) fn document(result: &LoadResult<'_>, command: Option<&str>) -> Document {
    let version = env!("CARGO_PKG_VERSION");
    let target = format!("Load on {}", result.url);
    let subtitle = format!("{}; hotrow {version}", result.measured_on);
    let blocks = blocks(result, command);
    match command {
        Some(_) => {
            let answer = [Block::Answer(result.summary())].into_iter();
            Document { title: target, subtitle, blocks: answer.chain(blocks).collect() }
        }
        None => {
            let subtitle = format!("{target}; {subtitle}");
            Document { title: result.summary(), subtitle, blocks }
        }
    }
}

fn blocks(result: &LoadResult<'_>, command: Option<&str>) -> Vec<Block> {
    let LoadResult { outcome, judged, diagnosed, repeated, .. } = *result;
    let heading = |words: &str| Block::Heading(words.to_owned());
    let mut blocks = Vec::new();
    let details = Some(result.details()).filter(|details| !details.is_empty());
    blocks.extend(details.map(Block::Text));
    blocks.extend(repeated.map(|note| Block::Warning(note.to_owned())));
    blocks.push(Block::Facts(tables::facts(result)));
    blocks.extend(
        outcome
            .failure_messages
            .iter()
            .map(|(words, n)| Block::Warning(format!("{words} ({} times)", grouped(*n as f64)))),
    );
    if result.limit().is_some() {
        blocks.push(heading("What limited it"));
        blocks.extend(diagnosed.blocks(CONFIRM_OPTION));
    }
    if !judged.is_empty() {
        blocks.extend([heading("Objectives"), Block::Table(tables::objectives(judged))]);
    }
    if judged.iter().any(|one| one.met == ObjectiveStatus::Inconclusive) {
        let words = "inconclusive: the generator was the limit, so the target may be better";
        blocks.push(Block::Warning(words.to_owned()));
    }
    blocks.extend([
        heading("Latency"),
        Block::Table(tables::times(outcome)),
        Block::Plot(plots::distribution(outcome)),
        Block::Table(tables::parts(&outcome.total)),
    ]);
    if let Some(command) = command {
        blocks.push(heading("Over time"));
        blocks.extend(plots::over_time(outcome).into_iter().map(Block::Plot));
        blocks.extend([heading("Command"), Block::Code(command.to_owned())]);
    }
    blocks
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
