//! Keys of the terminal, read one by one. The terminal's mode is restored however the program ends:
//! when [`Keyboard`] is dropped, which a panic does too, and before a second signal ends the
//! process. Signals keep their keys (Ctrl-C, Ctrl-Z).

use std::io::{self, IsTerminal, stdin};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

/// What an operator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Quit,
    NextSort,
    Reverse,
    /// Opens a collection of the selected instance.
    Open,
    Back,
    /// The instance above and below.
    Up,
    Down,
    /// The collection before and after.
    Previous,
    Next,
}

impl Command {
    /// Returns the command of the first key that has one. Cursor keys are sequences that begin with
    /// that of Escape.
    fn of(keys: &[u8]) -> Option<Self> {
        Some(match keys {
            [] => return None,
            [b'q' | b'Q', ..] => Self::Quit,
            [b's' | b'S', ..] => Self::NextSort,
            [b'r' | b'R', ..] => Self::Reverse,
            [b'\n' | b'\r', ..] => Self::Open,
            [b'k', ..] | [0x1b, b'[' | b'O', b'A', ..] => Self::Up,
            [b'j', ..] | [0x1b, b'[' | b'O', b'B', ..] => Self::Down,
            [b'l' | b'\t', ..] | [0x1b, b'[' | b'O', b'C', ..] => Self::Next,
            [b'h', ..] | [0x1b, b'[' | b'O', b'D', ..] => Self::Previous,
            [0x1b, b'[' | b'O', ..] => return None,
            [0x1b | 0x7f, ..] => Self::Back,
            [_, rest @ ..] => return Self::of(rest),
        })
    }
}

/// The terminal on standard input, in a mode without lines and echo.
pub(super) struct Keyboard {
    saved: Termios,
}

impl Keyboard {
    /// Changes the mode; `None` without a terminal.
    pub(super) fn open() -> Option<Self> {
        if !stdin().is_terminal() {
            return None;
        }
        let keyboard = Self { saved: tcgetattr(stdin()).ok()? };
        keyboard.enter().ok()?;
        Some(keyboard)
    }

    /// Sets the mode, also after the shell has changed it (Ctrl-Z).
    pub(super) fn enter(&self) -> io::Result<()> {
        let mut mode = self.saved.clone();
        mode.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        mode.special_codes[SpecialCodeIndex::VMIN] = 0;
        mode.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(stdin(), OptionalActions::Now, &mode).map_err(io::Error::from)
    }

    /// Returns a function that restores the mode.
    pub(super) fn restorer(&self) -> impl Fn() + Send + Sync + 'static {
        let saved = self.saved.clone();
        move || _ = tcsetattr(stdin(), OptionalActions::Now, &saved)
    }

    /// Waits for a key for at most `time`; `None` if none came that means anything.
    pub(super) fn command(&self, time: Duration) -> Option<Command> {
        let input = stdin();
        let mut ready = [PollFd::new(&input, PollFlags::IN)];
        // At most a second, so that it fits.
        let time = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
        match poll(&mut ready, Some(&time)) {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
        let mut keys = [0; 16];
        match read(&input, &mut keys) {
            // The terminal is gone.
            Ok(0) | Err(Errno::IO) => Some(Command::Quit),
            Ok(count) => Command::of(&keys[..count]),
            Err(_) => None,
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.restorer()();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_keys_are_not_escape() {
        let keys: [&[u8]; 6] = [b"x\n", b"\x1b", b"\x1b[A", b"\x1bOB", b"\x1b[5~", b""];
        let [open, back, up, down] = [Command::Open, Command::Back, Command::Up, Command::Down];
        assert_eq!(
            keys.map(Command::of),
            [Some(open), Some(back), Some(up), Some(down), None, None]
        );
    }
}
