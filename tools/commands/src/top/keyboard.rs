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
}

impl Command {
    /// Returns the command of a key.
    fn of(byte: u8) -> Option<Self> {
        match byte {
            b'q' | b'Q' => Some(Self::Quit),
            b's' | b'S' => Some(Self::NextSort),
            b'r' | b'R' => Some(Self::Reverse),
            _ => None,
        }
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
            Ok(count) => keys[..count].iter().find_map(|key| Command::of(*key)),
            Err(_) => None,
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.restorer()();
    }
}
