//! The display on a pseudo-terminal.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use super::{OK, command, server, small::Small};

/// Longer than each step of these tests.
const STEP_MAX: Duration = Duration::from_secs(60);

/// Escape sequences at the start and end of each frame.
const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";

/// A load generator with standard error on a terminal.
struct OnTerminal {
    child: Child,
    terminal: File,
    before: Termios,
    /// Everything written to the terminal.
    written: Vec<u8>,
}

impl OnTerminal {
    fn start((columns, rows): (u16, u16), term: &str, arguments: &[&str]) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a pseudo-terminal");
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("its other end");
        let name = ptsname(&terminal, Vec::new()).expect("its name");
        let side = open(&*name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
            .expect("its other end");
        let terminal = File::from(terminal);
        resize(&terminal, columns, rows);
        let before = tcgetattr(&terminal).expect("its modes");
        let mut command = command(arguments);
        command.env("TERM", term).env_remove("NO_COLOR").stdout(Stdio::piped()).stderr(side);
        let child = command.spawn().expect("it starts");
        Self { child, terminal, before, written: Vec::new() }
    }

    /// Reads until `enough` returns true for the text, or to the end. Returns false at the end.
    fn read_until(&mut self, enough: impl Fn(&str) -> bool) -> bool {
        let begun = Instant::now();
        let mut buffer = [0; 4096];
        loop {
            if enough(&String::from_utf8_lossy(&self.written)) {
                return true;
            }
            if !self.has_more(STEP_MAX.saturating_sub(begun.elapsed())) {
                // Dropping `self` ends the child.
                panic!("no further output: {}", String::from_utf8_lossy(&self.written));
            }
            match self.terminal.read(&mut buffer) {
                // An error means that the other side is closed.
                Ok(0) | Err(_) => return false,
                Ok(read) => self.written.extend_from_slice(&buffer[..read]),
            }
        }
    }

    /// Returns true if there is something to read, or the end, within this time.
    fn has_more(&self, time_left: Duration) -> bool {
        let begun = Instant::now();
        loop {
            let left = Timespec::try_from(time_left.saturating_sub(begun.elapsed()))
                .expect("a short time");
            match poll(&mut [PollFd::new(&self.terminal, PollFlags::IN)], Some(&left)) {
                Ok(ready) => return ready > 0,
                Err(Errno::INTR) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Returns all output until the end, the exit status, and standard output. Asserts that the
    /// terminal's modes are unchanged.
    fn end(mut self) -> (String, Option<i32>, String) {
        self.read_until(|_| false);
        let after = tcgetattr(&self.terminal).expect("its modes");
        assert_eq!(
            format!("{after:?}"),
            format!("{:?}", self.before),
            "the terminal's modes differ"
        );
        let mut out = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut out).expect("UTF-8");
        let status = self.child.wait().expect("it ends").code();
        let written = String::from_utf8(std::mem::take(&mut self.written)).expect("UTF-8");
        assert!(!written.contains("panicked"), "{written}");
        if written.contains(BEGIN) {
            assert!(is_erased(&written), "{written:?}");
        }
        // These would have to be undone, or query the terminal.
        for bad in ["\x1b[?1049", "\x1b[?25", "\x1b[6n", "\x1b[2J"] {
            assert!(!written.contains(bad), "{bad:?} in {written:?}");
        }
        (written, status, out)
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // Still running only if a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns true if the last output moves to the start of the last frame and erases from there on.
fn is_erased(written: &str) -> bool {
    let last = written
        .strip_suffix(&format!("\x1b[J{END}"))
        .and_then(|rest| Some(rest.rsplit_once(BEGIN)?.1));
    let up = last.and_then(|last| last.strip_prefix("\r\x1b[")?.strip_suffix('A'));
    up.is_some_and(|up| up.parse::<u16>().is_ok())
}

/// Returns true if a frame replaces the one before.
fn replaces_previous(frame: &str) -> bool {
    let moved = frame.split_once(BEGIN).and_then(|(_, rest)| rest.strip_prefix("\r\x1b["));
    moved.is_some_and(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with('A'))
}

fn resize(terminal: &File, ws_col: u16, ws_row: u16) {
    let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("its size");
}

fn url() -> String {
    format!("http://{}/", server(OK).0)
}

#[test]
fn a_terminal_shows_progress_that_is_erased_at_the_end() {
    let url = url();
    let running = OnTerminal::start((100, 30), "xterm", &["-c2", "-t1", "-d3s", &url]);
    let (written, status, out) = running.end();
    assert_eq!(status, Some(0), "{written} {out}");
    assert!(out.contains("requests/s as expected"), "the report is on standard output: {out}");
    let mut terminal = Small::new(100, 30);
    let mut seen = Vec::new();
    for frame in written.split_inclusive(END) {
        terminal.write(frame);
        seen.push(terminal.screen());
    }
    for part in
        ["hotrow load http", "left", "answered/s", "last second", "generator", "suspicion", "CPU"]
    {
        assert!(seen.iter().any(|screen| screen.contains(part)), "{part} was not shown: {seen:#?}");
    }
    assert_eq!(terminal.screen(), "", "the frame is erased before the report");
}

#[test]
fn an_interruption_erases_the_frame() {
    let url = url();
    let mut running = OnTerminal::start((80, 24), "xterm", &["-c2", "-t1", "-d60s", &url]);
    assert!(running.read_until(|text| text.contains("answered/s")));
    resize(&running.terminal, 30, 6);
    resize(&running.terminal, 80, 24);
    kill_process(Pid::from_child(&running.child), Signal::INT).expect("it runs");
    let (written, status, out) = running.end();
    assert_eq!(status, Some(130), "{written}");
    assert!(out.contains("Interrupted") && is_erased(&written), "{written:?}");
}

/// The process is stopped and resumed, while other programs may write to the terminal.
#[test]
fn output_of_others_during_a_stop_is_not_overwritten() {
    let whole = |frame: &&str| frame.ends_with(END);
    let fresh = |text: &str| {
        text.split_inclusive(END).filter(whole).filter(|frame| !replaces_previous(frame)).count()
    };
    let url = url();
    let mut running = OnTerminal::start((80, 24), "xterm", &["-c2", "-t1", "-d60s", &url]);
    // A frame may arrive in parts.
    assert!(running.read_until(|text| text.contains("answered/s") && fresh(text) > 0));
    assert_eq!(
        fresh(&String::from_utf8_lossy(&running.written)),
        1,
        "each frame but the first replaces another"
    );
    kill_process(Pid::from_child(&running.child), Signal::STOP).expect("it runs");
    kill_process(Pid::from_child(&running.child), Signal::CONT).expect("it is stopped");
    assert!(
        running.read_until(|text| fresh(text) == 2),
        "the next frame overwrites the output of others"
    );
    kill_process(Pid::from_child(&running.child), Signal::INT).expect("it runs");
    assert_eq!(running.end().1, Some(130));
}

#[test]
fn a_terminal_may_be_resized_during_a_run() {
    let url = url();
    let mut running = OnTerminal::start((120, 40), "xterm", &["-c2", "-t1", "-d4s", &url]);
    for (columns, rows) in [(40, 8), (1, 1), (500, 100), (20, 2), (80, 24)] {
        let before = running.written.len();
        resize(&running.terminal, columns, rows);
        running.read_until(|text| text.len() > before + 20);
    }
    let (written, status, _) = running.end();
    assert_eq!(status, Some(0), "{written}");
}

#[test]
fn a_dumb_terminal_gets_lines_and_quiet_runs_print_nothing() {
    let url = url();
    let (written, status, _) =
        OnTerminal::start((80, 24), "dumb", &["-c1", "-t1", "-d2s", &url]).end();
    assert!(
        status == Some(0) && written.contains("1 s") && !written.contains('\x1b'),
        "{written:?}"
    );
    for quiet in [&["-q"][..], &["--progress", "none"]] {
        let arguments = [&["-c1", "-t1", "-d300ms", &url], quiet].concat();
        let (written, status, _) = OnTerminal::start((80, 24), "xterm", &arguments).end();
        assert_eq!((status, written.as_str()), (Some(0), ""));
    }
}

#[test]
fn a_full_screen_display_without_a_terminal_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let earlier = folder.path().join("of an earlier run");
    std::fs::write(&earlier, "figures").expect("it is written");
    let csv = earlier.to_str().expect("UTF-8");
    for (refused, words) in
        [(["--progress", "tui"], "no terminal"), (["--pid", "4294967295"], "no such process")]
    {
        let (status, _, err) =
            super::load(&[&refused[..], &["--csv", csv, "-d1s", &url()]].concat());
        assert!(status == Some(2) && err.contains(words), "{status:?} {err}");
        assert_eq!(
            std::fs::read_to_string(&earlier).expect("it is there"),
            "figures",
            "a refused run must not truncate its files"
        );
    }
    let (status, _, err) = super::load(&["--progress", "lines", "-c1", "-t1", "-d1s", &url()]);
    assert!(status == Some(0) && err.contains("answers  p50"), "{status:?} {err}");
}
