//! The live display of `hotrow load` and `hotrow capacity` on a terminal: drawn in place, four times a second, by a thread of its
//! own; it takes nothing from the keyboard, and Ctrl-C stays a signal.
//!
//! Reading order: this file, `terminal` (what is shown where), `feed` (what is heard), `view` (a picture as values), `parts` and
//! `layout` (a picture as text), `paint` (as bytes).

mod feed;
mod layout;
mod paint;
mod parts;
pub(crate) mod terminal;
pub(crate) mod view;

use std::io::{Write, stderr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use hotrow_diagnose::process;
use hotrow_lab::watch::{Latest, Watch};
use hotrow_load::outcome::Second;
use hotrow_load::record::Record;
use hotrow_load::run::Config;
use hotrow_measure::clock::Nanos;

use self::feed::{Feed, Run};
use self::paint::Painter;
use self::terminal::{ProgressArgs, Way};
use self::view::StepRow;
use crate::signals::Continued;

/// Time between two pictures.
const FRAME: Duration = Duration::from_millis(250);
const PROC: &str = "/proc";

/// Set for good when a thread panics: what is said of that must not be drawn over.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// What is shown on standard error while a load runs. Dropping it takes the display away.
pub(crate) struct Shown {
    lines: bool,
    screen: Option<Screen>,
}

struct Screen {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    feed: Mutex<Feed>,
    over: Mutex<bool>,
    changed: Condvar,
}

impl Shown {
    /// Begins to show a load of `title`.
    ///
    /// # Errors
    /// Why a display that was asked for cannot be had, in words.
    pub(crate) fn start(args: ProgressArgs, title: String, watch: &Watch) -> Result<Self, String> {
        let colours = match args.way()? {
            Way::Screen { colours } => colours,
            way => return Ok(Self { lines: way == Way::Lines, screen: None }),
        };
        stop_at_panics();
        let feed = Mutex::new(Feed::new(title, watch.local));
        let shared = Arc::new(Shared { feed, over: Mutex::new(false), changed: Condvar::new() });
        let (drawn, latest) = (shared.clone(), watch.latest.clone());
        let thread = Builder::new().name("display".to_owned()).spawn(move || draw(&drawn, &latest, colours));
        // Without a thread for the display the load can run all the same.
        let Ok(thread) = thread else { return Ok(Self { lines: true, screen: None }) };
        Ok(Self { lines: false, screen: Some(Screen { shared, thread: Some(thread) }) })
    }

    /// Whether lines are wanted, which whoever runs the load prints.
    pub(crate) fn lines(&self) -> bool {
        self.lines
    }

    /// Loads that follow are steps of one search that takes at most so long.
    pub(crate) fn search(&self, budget: Duration) {
        self.tell(|feed| feed.search(budget, Nanos::now()));
    }

    /// Loads that follow are tests of what was found, which take at most so long. `known`: what was measured before them.
    pub(crate) fn tests(&self, budget: Duration, known: impl FnOnce() -> String) {
        self.tell(|feed| feed.tests(budget, known(), Nanos::now()));
    }

    /// A test comes next.
    pub(crate) fn trial(&self, step: impl FnOnce() -> String, config: &Config) {
        self.tell(|feed| feed.trial(step(), Run::of(config, Nanos::now())));
    }

    /// A step of a search comes next: what for, and what is known before it.
    pub(crate) fn step(&self, step: impl FnOnce() -> String, so_far: impl FnOnce() -> String) {
        self.tell(|feed| feed.step(step(), so_far()));
    }

    /// A step is done.
    pub(crate) fn step_done(&self, row: impl FnOnce() -> StepRow) {
        self.tell(|feed| feed.step_done(row()));
    }

    /// A load begins.
    pub(crate) fn begins(&self, config: &Config) {
        self.tell(|feed| feed.begins(Run::of(config, Nanos::now())));
    }

    /// A second of it is over.
    pub(crate) fn second(&self, second: &Second, record: &Record) {
        self.tell(|feed| feed.second(second, record));
    }

    fn tell(&self, told: impl FnOnce(&mut Feed)) {
        if let Some(screen) = &self.screen {
            told(&mut locked(&screen.shared.feed));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        *locked(&self.shared.over) = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // Should it have panicked, there is nothing to take away any more.
            let _ = thread.join();
        }
    }
}

/// Draws until it is over, and takes the picture away.
fn draw(shared: &Shared, latest: &Latest, colours: bool) {
    let mut painter = Painter::new(colours);
    // Where it cannot be heard a picture may stand over what others wrote.
    let mut continued = Continued::listen().ok();
    loop {
        let over = shared.changed.wait_timeout_while(locked(&shared.over), FRAME, |over| !*over);
        let over = *over.unwrap_or_else(PoisonError::into_inner).0;
        if PANICKED.load(Ordering::Relaxed) {
            return;
        }
        let (now, in_foreground) = (Nanos::now(), terminal::in_foreground());
        // It was stopped (Ctrl-Z), and others have written to the terminal. A thread that was merely late has its picture still.
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
            let mut feed = locked(&shared.feed);
            if let Some(samples) = samples {
                feed.looked(samples, now, |pid| process::stat(Path::new(PROC), pid).ok().map(|stat| stat.name));
            }
            feed.view(now)
        };
        // One column is left free, for a full row may break; one row, for the cursor.
        let picture = parts::picture(&view, (columns.saturating_sub(1), rows.saturating_sub(1)));
        put(&painter.replace(&picture, columns));
    }
}

/// From now on a panic of any thread ends the display, so that what is said of it stands below the last picture.
fn stop_at_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICKED.store(true, Ordering::Relaxed);
            told(panic);
        }));
    });
}

/// Everything at once, so that nothing comes between. Nobody may be looking.
fn put(text: &str) {
    let _ = stderr().lock().write_all(text.as_bytes());
}

/// What a panic left is whole: each change is one assignment or one call that does not panic.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
