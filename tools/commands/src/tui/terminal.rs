//! The terminal on standard error, and the kind of progress shown there.

use std::io::{IsTerminal, stderr};

use clap::{Args, ValueEnum};
use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};

/// Smallest terminal for the display, in columns and rows.
const SIZE_MIN: (u16, u16) = (20, 4);

/// Options for progress on standard error.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ProgressArgs {
    /// Progress on standard error
    #[arg(long, value_name = "HOW", default_value = "auto")]
    progress: ProgressMode,
    /// No progress on standard error, as --progress none
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// `--progress`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressMode {
    /// The display on a terminal (lines where it cannot be drawn), nothing elsewhere
    #[default]
    Auto,
    /// A display updated four times a second
    Tui,
    /// A line per second, or per step
    Lines,
    /// Nothing
    None,
}

/// The chosen output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgressOutput {
    Tui { colours: bool },
    Lines,
    Nothing,
}

/// Properties of standard error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terminal<'a> {
    pub(super) is_terminal: bool,
    /// Columns and rows.
    pub(super) size: Option<(u16, u16)>,
    /// The environment's `TERM`.
    pub(super) term: Option<&'a str>,
    /// The environment's `NO_COLOR` (no-color.org).
    pub(super) no_color: Option<&'a str>,
}

impl ProgressArgs {
    /// Returns whether commands without a display should print progress lines.
    pub(crate) fn in_lines(self) -> bool {
        !matches!(self.output(), Ok(ProgressOutput::Nothing) | Err(_))
    }

    /// Checks that the requested output is possible here.
    /// # Errors
    /// Returns the reason when a requested display is not possible.
    pub(crate) fn check(self) -> Result<(), String> {
        self.output().map(drop)
    }

    /// Chooses the output.
    /// # Errors
    /// Returns the reason when a requested display is not possible.
    pub(super) fn output(self) -> Result<ProgressOutput, String> {
        let variable = |name| std::env::var(name).ok();
        let term = variable("TERM");
        let no_color = variable("NO_COLOR");
        let terminal = Terminal {
            is_terminal: stderr().is_terminal(),
            size: size(),
            term: term.as_deref(),
            no_color: no_color.as_deref(),
        };
        choose(if self.quiet { ProgressMode::None } else { self.progress }, terminal)
    }
}

pub(super) fn choose(how: ProgressMode, terminal: Terminal<'_>) -> Result<ProgressOutput, String> {
    let screen = ProgressOutput::Tui { colours: terminal.no_color.is_none_or(str::is_empty) };
    let fits =
        terminal.size.is_some_and(|(columns, rows)| columns >= SIZE_MIN.0 && rows >= SIZE_MIN.1);
    let knows_escapes = terminal.term.is_some_and(|term| !["", "dumb"].contains(&term));
    match how {
        ProgressMode::None => Ok(ProgressOutput::Nothing),
        ProgressMode::Lines => Ok(ProgressOutput::Lines),
        ProgressMode::Auto if !terminal.is_terminal => Ok(ProgressOutput::Nothing),
        ProgressMode::Auto if fits && knows_escapes => Ok(screen),
        ProgressMode::Auto => Ok(ProgressOutput::Lines),
        ProgressMode::Tui if !terminal.is_terminal => {
            Err("--progress tui: standard error is no terminal; use --progress lines".to_owned())
        }
        ProgressMode::Tui if terminal.size.is_none() => {
            Err("--progress tui: the terminal does not report its size; set it (stty rows 24 cols \
                80), or use --progress lines"
                .to_owned())
        }
        ProgressMode::Tui => Ok(screen),
    }
}

/// Returns columns and rows of the terminal on standard error; `None` without a terminal or a known
/// size.
pub(super) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stderr()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Returns whether this process may write to the terminal; a background process leaves it to the
/// shell. True when unknown (the terminal does not control this process).
pub(super) fn in_foreground() -> bool {
    tcgetpgrp(stderr()).map_or(true, |group| group == getpgrp())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCREEN: ProgressOutput = ProgressOutput::Tui { colours: true };

    fn terminal() -> Terminal<'static> {
        Terminal {
            is_terminal: true,
            size: Some((80, 24)),
            term: Some("xterm-256color"),
            no_color: None,
        }
    }

    #[test]
    fn a_display_is_for_terminals_that_can_show_one() {
        let auto = |terminal| choose(ProgressMode::Auto, terminal);
        assert_eq!(auto(terminal()), Ok(SCREEN));
        assert_eq!(
            auto(Terminal { is_terminal: false, size: None, ..terminal() }),
            Ok(ProgressOutput::Nothing)
        );
        for term in [None, Some(""), Some("dumb")] {
            assert_eq!(
                auto(Terminal { term, ..terminal() }),
                Ok(ProgressOutput::Lines),
                "{term:?}"
            );
        }
        for size in [None, Some((10, 24)), Some((80, 2))] {
            assert_eq!(
                auto(Terminal { size, ..terminal() }),
                Ok(ProgressOutput::Lines),
                "{size:?}"
            );
        }
    }

    #[test]
    fn a_requested_display_is_shown_or_refused() {
        let pipe = Terminal { is_terminal: false, size: None, ..terminal() };
        assert_eq!(choose(ProgressMode::Lines, pipe), Ok(ProgressOutput::Lines));
        assert_eq!(choose(ProgressMode::None, terminal()), Ok(ProgressOutput::Nothing));
        assert_eq!(
            choose(ProgressMode::Tui, Terminal { term: Some("dumb"), ..terminal() }),
            Ok(SCREEN)
        );
        assert!(choose(ProgressMode::Tui, pipe).is_err_and(|why| why.contains("no terminal")));
        assert!(
            choose(ProgressMode::Tui, Terminal { size: None, ..terminal() })
                .is_err_and(|why| why.contains("size"))
        );
    }

    #[test]
    fn no_color_counts_when_it_is_not_empty() {
        for (no_color, colours) in [(None, true), (Some(""), true), (Some("1"), false)] {
            assert_eq!(
                choose(ProgressMode::Auto, Terminal { no_color, ..terminal() }),
                Ok(ProgressOutput::Tui { colours })
            );
        }
    }
}
