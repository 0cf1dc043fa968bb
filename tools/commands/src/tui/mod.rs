//! The live terminal display of `hotrow load` and `hotrow capacity`: drawn in place, four times a
//! second, on its own thread. It reads no keys, and Ctrl-C stays a signal.
//!
//! Reading order: this file, `terminal` (choice of the output), `display_state` (collected data),
//! `view` (a frame as values), `widgets` and `layout` (a frame as text), `painter` (as bytes).

mod display_state;
pub(crate) mod layout;
pub(crate) mod painter;
pub(crate) mod terminal;
pub(crate) mod view;
mod widgets;

use std::io::{Write, stderr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use hotrow_diagnose::process;
use hotrow_load::outcome::Second;
use hotrow_load::run::Config;
use hotrow_load::stats::LoadStats;
use hotrow_measure::clock::Nanos;
use hotrow_trial::observe::{LatestSecond, Observer};

use self::display_state::{DisplayState, Run};
use self::painter::Painter;
use self::terminal::{ProgressArgs, ProgressOutput};
use self::view::StepRow;
use hotrow_cli::signals::Continued;

const FRAME: Duration = Duration::from_millis(250);
const PROC: &str = "/proc";

/// Set permanently when a thread panics: the display must not overwrite the message.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// The progress output on standard error during a load. Dropping it removes the display.
pub(crate) struct ProgressDisplay {
    lines: bool,
    screen: Option<Tui>,
}

struct Tui {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<DisplayState>,
    over: Mutex<bool>,
    changed: Condvar,
}

impl ProgressDisplay {
    /// Begins to show a load of `title`.
    /// # Errors
    /// Returns the reason when a requested display is not possible.
    pub(crate) fn start(
        args: ProgressArgs,
        title: String,
        watch: &Observer,
    ) -> Result<Self, String> {
        let colours = match args.output()? {
            ProgressOutput::Tui { colours } => colours,
            output => return Ok(Self { lines: output == ProgressOutput::Lines, screen: None }),
        };
        stop_at_panics();
        let state = Mutex::new(DisplayState::new(title, watch.local));
        let shared = Arc::new(Shared { state, over: Mutex::new(false), changed: Condvar::new() });
        let drawn = shared.clone();
        let latest = watch.latest.clone();
        let thread =
            Builder::new().name("display".to_owned()).spawn(move || draw(&drawn, &latest, colours));
        // The load can run without a display thread.
        let Ok(thread) = thread else { return Ok(Self { lines: true, screen: None }) };
        Ok(Self { lines: false, screen: Some(Tui { shared, thread: Some(thread) }) })
    }

    /// Returns whether progress is shown as lines, which the caller prints.
    pub(crate) fn lines(&self) -> bool {
        self.lines
    }

    /// Begins a search with this maximum time: the following loads are its steps.
    pub(crate) fn search(&self, budget: Duration) {
        self.with_state(|state| state.search(budget, Nanos::now()));
    }

    /// Begins tests of findings with this maximum time: the following loads are the tests. `known`:
    /// the knowledge before them.
    pub(crate) fn tests(&self, budget: Duration, known: impl FnOnce() -> String) {
        self.with_state(|state| state.tests(budget, known(), Nanos::now()));
    }

    pub(crate) fn trial(&self, step: impl FnOnce() -> String, config: &Config) {
        self.with_state(|state| state.trial(step(), Run::of(config, Nanos::now())));
    }

    /// Begins a step of a search: its purpose, and the knowledge before it.
    pub(crate) fn step(&self, step: impl FnOnce() -> String, so_far: impl FnOnce() -> String) {
        self.with_state(|state| state.step(step(), so_far()));
    }

    pub(crate) fn step_done(&self, row: impl FnOnce() -> StepRow) {
        self.with_state(|state| state.step_done(row()));
    }

    pub(crate) fn begins(&self, config: &Config) {
        self.with_state(|state| state.begins(Run::of(config, Nanos::now())));
    }

    /// Adds a completed second of it.
    pub(crate) fn second(&self, second: &Second, record: &LoadStats) {
        self.with_state(|state| state.second(second, record));
    }

    fn with_state(&self, update: impl FnOnce(&mut DisplayState)) {
        if let Some(screen) = &self.screen {
            update(&mut locked(&screen.shared.state));
        }
    }
}

impl Drop for Tui {
    fn drop(&mut self) {
        *locked(&self.shared.over) = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // After a panic there is nothing left to remove.
            let _ = thread.join();
        }
    }
}

/// Draws until the end, then removes the frame.
fn draw(shared: &Shared, latest: &LatestSecond, colours: bool) {
    let mut painter = Painter::new(colours);
    // Without this signal handler a frame may overwrite the output of other programs.
    let mut continued = Continued::listen().ok();
    loop {
        let over = shared.changed.wait_timeout_while(locked(&shared.over), FRAME, |over| !*over);
        let over = *over.unwrap_or_else(PoisonError::into_inner).0;
        if PANICKED.load(Ordering::Relaxed) {
            return;
        }
        let now = Nanos::now();
        let in_foreground = terminal::in_foreground();
        // The process was stopped (Ctrl-Z), and others wrote to the terminal. After a mere delay
        // the frame is still there.
        if continued.as_mut().is_some_and(Continued::take) || !in_foreground {
            painter.forget();
        }
        let Some((columns, rows)) = terminal::size() else { return };
        if over {
            put(&painter.erase(columns));
            return;
        }
        if !in_foreground {
            continue;
        }
        let samples = locked(latest).take();
        let view = {
            let mut state = locked(&shared.state);
            if let Some(samples) = samples {
                state.sampled(samples, now, |pid| {
                    process::stat(Path::new(PROC), pid).ok().map(|stat| stat.name)
                });
            }
            state.view(now)
        };
        // One column stays free, because a full row may wrap; one row, for the cursor.
        let frame = widgets::frame(&view, (columns.saturating_sub(1), rows.saturating_sub(1)));
        put(&painter.replace(&frame, columns));
    }
}

/// Ends the display at any thread's panic, so that the message appears below the last frame.
fn stop_at_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICKED.store(true, Ordering::Relaxed);
            previous_hook(panic);
        }));
    });
}

/// Writes everything in one call, so that no other output interleaves; errors are ignored.
fn put(text: &str) {
    let _ = stderr().lock().write_all(text.as_bytes());
}

/// Locks the state, also after a panic: each change is one assignment or one call that does not
/// panic, so the state is consistent.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    mod display_state;
    mod frames;
    mod painter;
    mod terminal;
}
