//! What the terminal on standard error is, and what progress is shown there.

use std::io::{IsTerminal, stderr};

use clap::{Args, ValueEnum};
use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};

/// Smallest terminal on which a picture says more than lines, in columns and rows.
const SIZE_MIN: (u16, u16) = (20, 4);

/// What is shown on standard error meanwhile.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ProgressArgs {
    /// What to show on standard error meanwhile
    #[arg(long, value_name = "HOW", default_value = "auto")]
    progress: How,
    /// No progress on standard error, as --progress none
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// `--progress`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum How {
    /// A display on a terminal (lines where it cannot be drawn on), nothing elsewhere
    #[default]
    Auto,
    /// A display that is drawn anew four times a second
    Screen,
    /// A line a second, or a step
    Lines,
    /// Nothing
    None,
}

/// What was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Screen { colours: bool },
    Lines,
    Nothing,
}

/// What is known of standard error.
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
    /// Whether something that has no display of its own shall tell how it goes.
    pub(crate) fn in_lines(self) -> bool {
        !matches!(self.way(), Ok(Way::Nothing) | Err(_))
    }

    /// Whether that can be shown here.
    ///
    /// # Errors
    /// Why a display that was asked for cannot be had, in words.
    pub(crate) fn check(self) -> Result<(), String> {
        self.way().map(drop)
    }

    /// What to show here.
    ///
    /// # Errors
    /// Why a display that was asked for cannot be had, in words.
    pub(super) fn way(self) -> Result<Way, String> {
        let variable = |name| std::env::var(name).ok();
        let (term, no_color) = (variable("TERM"), variable("NO_COLOR"));
        let terminal = Terminal {
            is_terminal: stderr().is_terminal(),
            size: size(),
            term: term.as_deref(),
            no_color: no_color.as_deref(),
        };
        choose(if self.quiet { How::None } else { self.progress }, terminal)
    }
}

pub(super) fn choose(how: How, terminal: Terminal<'_>) -> Result<Way, String> {
    let screen = Way::Screen { colours: terminal.no_color.is_none_or(str::is_empty) };
    let fits = terminal.size.is_some_and(|(columns, rows)| columns >= SIZE_MIN.0 && rows >= SIZE_MIN.1);
    let knows_escapes = terminal.term.is_some_and(|term| !["", "dumb"].contains(&term));
    match how {
        How::None => Ok(Way::Nothing),
        How::Lines => Ok(Way::Lines),
        How::Auto if !terminal.is_terminal => Ok(Way::Nothing),
        How::Auto if fits && knows_escapes => Ok(screen),
        How::Auto => Ok(Way::Lines),
        How::Screen if !terminal.is_terminal => {
            Err("--progress screen: standard error is no terminal; lines goes everywhere".to_owned())
        }
        How::Screen if terminal.size.is_none() => {
            Err("--progress screen: the terminal does not tell its size; set it (stty rows 24 cols 80), or take lines"
                .to_owned())
        }
        How::Screen => Ok(screen),
    }
}

/// Columns and rows of the terminal on standard error; none when it is none, or does not tell.
pub(super) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stderr()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Whether the terminal is this process's to write to; one that runs in the background leaves it to the shell. Where that cannot
/// be told (the terminal is not the one that controls this process) it is.
pub(super) fn in_foreground() -> bool {
    tcgetpgrp(stderr()).map_or(true, |group| group == getpgrp())
}
