//! Help of the programs: one screen for `-h`, and the reference, which is `--help` of each command.

use std::fs;
use std::process::Command;

use hotrow_cli::help::{COLUMNS, SCREEN_LINES_MAX};
use hotrow_testkit::harness::program;

/// Page of the documentation.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/commands.md");
/// Variable at which the page is written.
const RENEW_VARIABLE: &str = "HOTROW_RENEW_REFERENCE";
const BEGINNING: &str = "<!-- Generated from the programs:
HOTROW_RENEW_REFERENCE=1 cargo test -p hotrow --test it help:: -->

# Commands

What `--help` says. `COMMAND -h` explains a command on one screen.
";

/// Standard output of a command line.
fn output(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(program(words.next().expect("a program"))).args(words).output();
    let output = output.expect("the programs are built with the workspace");
    assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Returns a command with its `--help`, and all below it.
fn helps(command: &str) -> Vec<(String, String)> {
    let text = output(&format!("{command} --help"));
    let usage = text.find("\nUsage:").expect("a usage");
    let list = text[usage..].split("\nArguments:\n").next().unwrap_or_default();
    let list = list.split("\nOptions:\n").next().unwrap_or_default();
    let is_name = |name: &str| name.starts_with(|c: char| c.is_ascii_lowercase());
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names =
        names.filter_map(|line| line.split_whitespace().next()).filter(|name| is_name(name));
    // `hotrow lab` has the commands of `hotrow-lab`, of which `hotrow` starts some by their names.
    let is_new = |name: &&str| {
        let is_tool = hotrow_cli::TOOLS.iter().any(|(tool, _)| tool == name);
        !(command == "hotrow lab" && is_tool)
    };
    let inner = names.filter(is_new).flat_map(|name| helps(&format!("{command} {name}")));
    let inner: Vec<_> = inner.collect();
    [vec![(command.to_owned(), text)], inner].concat()
}

#[test]
fn a_screen_begins_with_an_example() {
    let helps = helps("hotrow");
    assert!(helps.len() > 25, "{helps:?}");
    for (command, complete) in &helps {
        let screen = output(&format!("{command} -h"));
        let rows = screen.lines().count();
        assert!(rows <= SCREEN_LINES_MAX, "{command} -h has {rows} lines:\n{screen}");
        let wide = |text: &str| text.lines().any(|line| line.chars().count() > COLUMNS);
        assert!(!wide(&screen) && !wide(complete), "{command}: {complete}");
        let complete = complete.split_whitespace().collect::<Vec<_>>().join(" ");
        let (before, options) = screen.split_once("\nUsage: ").expect("a usage");
        assert!(before.contains("\nExample"), "{command}: {screen}");
        // The same words in both.
        let is_option = |word: &&str| word.starts_with("--");
        for line in options.lines().filter(|line| line.starts_with("  ")) {
            let name = line.split_whitespace().find(is_option).unwrap_or_default();
            let (_, meaning) = line.trim().split_once("  ").unwrap_or_default();
            let meaning = meaning.split(" [default:").next().unwrap_or_default().trim();
            let meaning = meaning.split(" (see more").next().unwrap_or_default();
            let meaning = meaning.split(" [").next().unwrap_or_default();
            assert!(complete.contains(name) && complete.contains(meaning), "{command}: {line}");
        }
    }
}

#[cfg(feature = "hub")]
#[test]
fn the_reference_is_what_the_programs_say() {
    let mut page = BEGINNING.to_owned();
    for (command, help) in helps("hotrow") {
        let mut text = String::new();
        for line in help.lines() {
            // Sections that documents refer to.
            match line.strip_suffix(':').filter(|line| line.contains(" hotrow")) {
                Some(heading) => {
                    text = format!("{}\n```\n\n### {heading}\n\n```text\n", text.trim())
                }
                None => text.push_str(&format!("{}\n", line.trim_end())),
            }
        }
        page.push_str(&format!("\n## `{command}`\n\n```text\n{}\n```\n", text.trim()));
    }
    if std::env::var_os(RENEW_VARIABLE).is_some() {
        fs::write(PAGE, &page).expect("the page");
    }
    let is_current = fs::read_to_string(PAGE).is_ok_and(|committed| committed == page);
    assert!(is_current, "docs/reference/commands.md is not what the programs say: {BEGINNING}");
}
