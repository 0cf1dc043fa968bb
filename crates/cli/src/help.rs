//! Command lines: help on one screen (`-h`) and complete (`--help`), and refusals with the rule and
//! an example.
//!
//! All texts are in the definition of a command line. `-h` shows the first paragraph of an
//! argument's comment. `after_help` begins with `Examples:`; what follows behind an empty line is
//! for `--help` and the manual page.

use std::error::Error as _;
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, Command, Error, FromArgMatches};

use crate::output::print_line;
use crate::{Exit, TOOLS};
use hotrow_types::names::nearest;

/// Most lines of `-h` in a terminal of [`COLUMNS`].
pub const SCREEN_LINES_MAX: usize = 30;
/// Columns of a screen.
pub const COLUMNS: usize = 100;

/// Values by kind, for options that no example has.
const VALUES: [(&str, &str); 6] = [
    ("<ADDR>", "127.0.0.1:8080"),
    ("<N>", "100"),
    ("<PID>", "4711"),
    ("<PORT>", "8080"),
    ("<R>", "1000"),
    ("<TIME>", "10s"),
];

/// A heading and the names of its commands.
pub type Group = (&'static str, &'static [&'static str]);

/// A program's command line.
#[derive(Debug)]
pub struct Program {
    /// The definition, with the texts of both forms of help.
    pub(crate) command: Command,
    groups: &'static [Group],
}

/// Returns the arguments of this process with `help COMMAND` and `version` as the options of the
/// same meaning.
pub fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    match arguments.get(1).and_then(|first| first.to_str()) {
        Some("help") => {
            arguments.remove(1);
            arguments.push("--help".into());
        }
        Some("version") if arguments.len() == 2 => arguments[1] = "--version".into(),
        _ => {}
    }
    arguments
}

impl Program {
    /// Takes over a definition; its commands are in these groups.
    pub fn new(command: Command, groups: &'static [Group]) -> Self {
        let mut command = command.disable_help_subcommand(true).mut_subcommands(|inner| {
            let tool = TOOLS.iter().find(|(name, _)| *name == inner.get_name());
            tool.map_or(inner.clone(), |(_, about)| inner.about(*about))
        });
        command.build();
        Self { command: with_help(command, groups), groups }
    }

    /// Parses arguments. Help, the version and refusals are printed.
    ///
    /// # Errors
    /// Returns the exit status where there is nothing to run.
    pub fn parse<P: FromArgMatches>(&self, arguments: &[OsString]) -> Result<P, Exit> {
        let matches = self.command.clone().try_get_matches_from(arguments);
        matches.and_then(|matches| P::from_arg_matches(&matches)).map_err(|error| {
            let mut command = &self.command;
            for argument in arguments.iter().skip(1).filter_map(|argument| argument.to_str()) {
                command = command.find_subcommand(argument).unwrap_or(command);
            }
            let is_complete = arguments.iter().any(|argument| argument == "--help");
            let (text, exit) = match error.kind() {
                ErrorKind::DisplayVersion => (error.to_string(), Exit::Fine),
                ErrorKind::DisplayHelp if is_complete => {
                    (wrapped(&command.clone().render_long_help().to_string()), Exit::Fine)
                }
                ErrorKind::DisplayHelp => (screen(command), Exit::Fine),
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                    (screen(command), Exit::Usage)
                }
                _ => (self.refusal(&error, command), Exit::Usage),
            };
            // Users type the name of the program that starts this one.
            let typed = TOOLS.iter().fold(text, |text, (tool, _)| {
                text.replace(&format!("hotrow-lab {tool}"), &format!("hotrow {tool}"))
            });
            match exit {
                Exit::Fine => print_line(std::io::stdout(), typed.trim_end()),
                _ => print_line(std::io::stderr(), typed.trim_end()),
            }
            exit
        })
    }

    /// Returns the message for a wrong command line: what, the rule, an example.
    fn refusal(&self, error: &Error, command: &Command) -> String {
        let of = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
        let argument = of(ContextKind::InvalidArg);
        let usage = command.clone().render_usage();
        let what = match error.kind() {
            ErrorKind::InvalidSubcommand => {
                let name = of(ContextKind::InvalidSubcommand);
                let known: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
                let groups = if command.get_name() == "hotrow" { self.groups } else { &[] };
                let line = |(heading, names): &Group| {
                    format!("\n  {:<10}{}", heading.to_lowercase(), names.join(", "))
                };
                let list: String = groups.iter().map(line).collect();
                format!("there is no command {name}{}{list}", suggestion(&nearest(&name, &known)))
            }
            ErrorKind::UnknownArgument if argument.starts_with('-') => {
                let near = options_near(command, &argument);
                let near: Vec<&str> = near.iter().map(String::as_str).collect();
                format!("there is no option {argument}{}", suggestion(&near))
            }
            ErrorKind::UnknownArgument => format!("{argument} is not expected here\n{usage}"),
            ErrorKind::MissingRequiredArgument => format!("{argument} is missing\n{usage}"),
            ErrorKind::ArgumentConflict => {
                format!("{argument} cannot be used with {}\n{usage}", of(ContextKind::PriorArg))
            }
            ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
                let option = argument.split(' ').next().unwrap_or_default();
                let example = example_of(command, option);
                match of(ContextKind::InvalidValue).as_str() {
                    "" => format!("{argument} needs a value{example}"),
                    // It may hold a password.
                    secret if secret.contains('@') => format!("{option}: {}{example}", rule(error)),
                    value => format!("{option} {value}: {}{example}", rule(error)),
                }
            }
            _ => {
                let text = error.to_string();
                text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
            }
        };
        let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
        format!("{name}: {what}\nHelp: {name} -h")
    }
}

/// Lays out the help of a command that is built, and of its commands.
fn with_help(mut command: Command, groups: &[Group]) -> Command {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (examples, more) = after.split_once("\n\n").unwrap_or((&after, ""));
    let template = format!(
        "{{about}}\n\n{{before-help}}{{usage-heading}} {{usage}}\n\n{}{{after-help}}",
        match groups {
            [] => "{all-args}".to_owned(),
            _ => format!("{}\nOptions:\n{{options}}", list(&command, groups)),
        }
    );
    command = command.mut_subcommands(|inner| with_help(inner, &[])).help_template(template);
    command = command.after_help(None).after_long_help(more.to_owned());
    command = command.before_long_help(examples.to_owned()).before_help(examples.to_owned());
    if fits(&command) {
        return command;
    }
    let first: Vec<&str> = examples.split("\n  hotrow").take(2).collect();
    command = command.before_help(first.join("\n  hotrow").replace("Examples", "Example"));
    if fits(&command) {
        return command;
    }
    let words: Vec<&str> = examples.split_whitespace().collect();
    let is_common = |argument: &Arg| {
        names(argument).iter().any(|name| words.contains(&name.as_str()))
            || argument.is_required_set()
            || matches!(argument.get_id().as_str(), "help" | "version")
    };
    command.mut_args(|argument| {
        let is_left_out = !argument.is_positional() && !is_common(&argument);
        argument.hide_short_help(is_left_out)
    })
}

/// Returns whether `-h` is one screen.
fn fits(command: &Command) -> bool {
    screen(command).lines().count() <= SCREEN_LINES_MAX
}

/// Returns the text of `-h`.
fn screen(command: &Command) -> String {
    wrapped(&command.clone().render_help().to_string())
}

/// Breaks lines at [`COLUMNS`]. Further lines begin where the text does, behind a term.
fn wrapped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let begin = line.len() - line.trim_start().len();
        let term = line[begin..].find("  ").map_or(0, |end| begin + end);
        let column = line.len() - line[term..].trim_start().len();
        let mut rest = line.to_owned();
        while let Some((end, _)) = rest.char_indices().nth(COLUMNS)
            && let Some(space) = rest[..end].rfind(' ').filter(|space| *space > column)
        {
            out.push_str(&format!("{}\n", rest[..space].trim_end()));
            rest = format!("{:column$}{}", "", &rest[space + 1..]);
        }
        out.push_str(&rest);
        out.push('\n');
    }
    out
}

/// Returns the commands by group.
fn list(command: &Command, groups: &[Group]) -> String {
    let line = |name: &&str| {
        let about = command.find_subcommand(name).and_then(Command::get_about);
        about.map_or(String::new(), |about| format!("  {name:<20}{about}\n"))
    };
    let group = |(heading, names): &Group| {
        format!("{heading}:\n{}", names.iter().map(line).collect::<String>())
    };
    groups.iter().map(group).collect()
}

/// Returns the names of an option: `--long` and `-s`.
fn names(argument: &Arg) -> Vec<String> {
    let long = argument.get_long().map(|long| format!("--{long}"));
    let short = argument.get_short().map(|short| format!("-{short}"));
    long.into_iter().chain(short).collect()
}

/// Returns the options similar to an unknown one, or that begin as it does.
fn options_near(command: &Command, unknown: &str) -> Vec<String> {
    let visible = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let known: Vec<String> =
        visible.filter_map(|argument| names(argument).into_iter().next()).collect();
    let words: Vec<&str> = known.iter().map(String::as_str).collect();
    let near = nearest(unknown, &words);
    let letters = unknown.trim_start_matches('-');
    let begins = |option: &&String| option[1..].trim_start_matches('-').starts_with(letters);
    match near.is_empty() {
        true => known.iter().filter(begins).cloned().collect(),
        false => near.into_iter().map(str::to_owned).collect(),
    }
}

/// Returns how to write an option with its value: as in the command's examples, or its default.
fn example_of(command: &Command, option: &str) -> String {
    let found =
        command.get_arguments().find(|argument| names(argument).iter().any(|n| n == option));
    let Some(argument) = found else { return String::new() };
    let examples = command.get_before_long_help().map(ToString::to_string).unwrap_or_default();
    let words: Vec<&str> = examples.split_whitespace().collect();
    let used = words.windows(2).find(|pair| names(argument).iter().any(|name| name == pair[0]));
    let usual = argument.get_default_values().first().map(|value| value.to_string_lossy());
    let of_kind = VALUES.iter().find(|(kind, _)| argument.to_string().ends_with(kind));
    match (used, usual.as_deref().or(of_kind.map(|(_, value)| *value))) {
        (Some(pair), _) => format!("; for example {}", pair.join(" ")),
        (None, Some(value)) => format!("; for example {option} {value}"),
        (None, None) => String::new(),
    }
}

fn suggestion(names: &[&str]) -> String {
    if names.is_empty() { String::new() } else { format!("; did you mean {}?", names.join(" or ")) }
}

/// Returns what a value must be.
fn rule(error: &Error) -> String {
    let accepted = error.get(ContextKind::ValidValue).map(ToString::to_string);
    if let Some(values) = accepted.filter(|values| !values.is_empty()) {
        return format!("must be one of {values}");
    }
    let source = error.source();
    let text = source.map(ToString::to_string).unwrap_or_default();
    if let Some(error) = source.and_then(|source| source.downcast_ref::<ParseIntError>()) {
        let rule = match error.kind() {
            IntErrorKind::Zero => "must be a whole number of at least 1",
            IntErrorKind::PosOverflow => "must be a smaller number",
            _ => "must be a whole number",
        };
        return rule.to_owned();
    }
    if source.is_some_and(|source| source.is::<ParseFloatError>()) {
        return "must be a number".to_owned();
    }
    match text.split_once(" is not in ") {
        Some((_, bounds)) => {
            format!("must be a whole number from {}", bounds.replace("..=", " to "))
        }
        None => text,
    }
}
