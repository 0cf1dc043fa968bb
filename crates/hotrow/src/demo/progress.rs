//! Progress bar on standard error, drawn if that is a terminal.

use std::io::{IsTerminal, Write};

const WIDTH: u64 = 30;

/// Progress of a piece of work; draws nothing into files and pipes.
pub(super) struct Bar {
    label: &'static str,
    terminal: Option<std::io::Stderr>,
}

impl Bar {
    pub(super) fn new(label: &'static str) -> Self {
        let stderr = std::io::stderr();
        Self { label, terminal: stderr.is_terminal().then_some(stderr) }
    }

    pub(super) fn show(&mut self, done: u32, of: u32) {
        if let Some(terminal) = &mut self.terminal {
            // A bar that cannot be drawn does not stop the work.
            let _ = write!(terminal, "\r{}", line(self.label, done, of));
        }
    }

    pub(super) fn clear(self) {
        if let Some(mut terminal) = self.terminal {
            let _ = write!(terminal, "\r\x1b[K");
        }
    }
}

fn line(label: &str, done: u32, of: u32) -> String {
    let done = u64::from(done.min(of));
    let of = u64::from(of.max(1));
    let full = (done * WIDTH / of) as usize;
    format!(
        "{label} [{}{}] {:3} %",
        "#".repeat(full),
        ".".repeat(WIDTH as usize - full),
        done * 100 / of
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        assert_eq!(line("x", 0, 10), format!("x [{}]   0 %", ".".repeat(30)));
        assert_eq!(line("x", 5, 10), format!("x [{}{}]  50 %", "#".repeat(15), ".".repeat(15)));
        assert_eq!(line("x", 11, 10), format!("x [{}] 100 %", "#".repeat(30)));
        assert_eq!(line("x", 0, 0), format!("x [{}]   0 %", ".".repeat(30)));
    }
}
