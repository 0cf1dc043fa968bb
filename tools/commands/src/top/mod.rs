//! `hotrow top`: one or several running instances in the terminal, a row for each and totals, from
//! their `/history` and `/status`.
//!
//! A thread per instance asks once per interval, so that one that hangs delays no other. Reading
//! order: `instance` (answers to numbers), `view` (rows, order, totals), `frame` (a frame or text),
//! `detail` (a frame of one collection), `keyboard`.

mod detail;
mod frame;
mod instance;
mod keyboard;
mod view;

use std::io::{self, IsTerminal, Write, stdout};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use clap::Args;
use hotrow_cli::Exit;
use hotrow_cli::output::{self, OutputError};
use hotrow_cli::signals::{Continued, OnAbort, stop_flag_with};
use hotrow_transport::credential::{self, CredentialError};
use hotrow_transport::target::{TargetError, Url};
use hotrow_transport::tls::{HttpVersion, Tls, TlsError};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::Widget;
use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};

use self::detail::CollectionFrame;
use self::frame::TopFrame;
use self::instance::{Collection, Instance, Numbers};
use self::keyboard::{Command, Keyboard};
use self::view::{Report, Row, SortKey, Totals, sort};
use crate::tui::painter::Painter;
use hotrow_cli::transport_args::TlsArgs;

/// The admin address when none is given.
const DEFAULT_URL: &str = "http://127.0.0.1:8081";
/// Most instances.
const INSTANCES_MAX: usize = 256;
/// Longest wait for a key.
const KEY_WAIT: Duration = Duration::from_millis(200);
/// Columns of `--once`.
const TEXT_COLUMNS: usize = 160;

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Admin addresses [default: http://127.0.0.1:8081]
    #[arg(value_name = "URL")]
    urls: Vec<String>,
    /// Print one snapshot as text and end; also where standard output is not a terminal
    #[arg(long)]
    once: bool,
    /// Print one snapshot as JSON and end
    #[arg(long, conflicts_with = "once")]
    json: bool,
    /// Order of the instances
    #[arg(long, value_name = "COLUMN", default_value = "given")]
    sort: SortKey,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive)]
    interval: Duration,
    /// Time for each answer
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = positive)]
    timeout: Duration,
    /// Send the token of this file, or of standard input (-), as Authorization: Bearer
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Options of HTTPS.
    #[command(flatten)]
    tls: TlsArgs,
}

fn positive(text: &str) -> Result<Duration, String> {
    let time = hotrow_cli::duration(text)?;
    if time.is_zero() { Err("must be longer than zero".to_owned()) } else { Ok(time) }
}

/// Reason why nothing can be shown.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// A URL is wrong.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The token cannot be read.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// TLS cannot be configured.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There are too many URLs.
    #[error("{0} URLs are too many; at most {INSTANCES_MAX} instances can be shown")]
    TooMany(usize),
    /// The system refuses a thread or a signal handler.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    /// The snapshot cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl TopError {
    /// Returns the exit status: 2 if the command line is wrong.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Target(_) | Self::TooMany(_) | Self::Credential(_) => Exit::Usage,
            Self::Tls(error) if error.is_usage() => Exit::Usage,
            Self::Tls(_) | Self::System(_) | Self::Output(_) => Exit::Failed,
        }
    }
}

/// Runs `hotrow top`. A snapshot in which no instance reports is a failure.
///
/// # Errors
/// Returns why nothing can be shown.
pub fn top(args: &TopArgs) -> Result<Exit, TopError> {
    let (names, instances) = instances(args)?;
    let (sender, reports) = channel();
    let is_live = !args.once && !args.json && stdout().is_terminal();
    let pause = is_live.then_some(args.interval);
    let with_keys = Arc::new(AtomicBool::new(false));
    for (index, instance) in instances.into_iter().enumerate() {
        let sender = sender.clone();
        let with_keys = with_keys.clone();
        let ask = move || ask(index, instance, pause, &with_keys, &sender);
        std::thread::Builder::new().name(format!("instance-{index}")).spawn(ask)?;
    }
    drop(sender);
    let rows: Vec<Row> =
        names.into_iter().map(|name| Row { name, report: Report::Awaited }).collect();
    let mut screen = Screen {
        failing_since: vec![None; rows.len()],
        selected: rows.first().map_or_else(String::new, |row| row.name.clone()),
        rows,
        sort: args.sort,
        is_reversed: false,
        opened: None,
        with_keys,
    };
    if is_live {
        screen.live(&reports)?;
        return Ok(Exit::Fine);
    }
    screen.snapshot(&reports, args)?;
    Ok(if screen.rows.iter().any(|row| row.numbers().is_some()) {
        Exit::Fine
    } else {
        Exit::Failed
    })
}

fn instances(args: &TopArgs) -> Result<(Vec<String>, Vec<Instance>), TopError> {
    let mut names = args.urls.clone();
    if names.is_empty() {
        names.push(DEFAULT_URL.to_owned());
    }
    if names.len() > INSTANCES_MAX {
        return Err(TopError::TooMany(names.len()));
    }
    let headers = match &args.token_file {
        Some(path) => vec![credential::token_header(path)?],
        None => Vec::new(),
    };
    let options = args.tls.options(HttpVersion::Http1);
    let instance = |name: &String| {
        let url = Url::parse(name)?;
        let tls = url.secure.then(|| Tls::new(&url.host, &options)).transpose()?;
        Ok(Instance::new(url, headers.clone(), tls, args.timeout))
    };
    let made: Result<Vec<Instance>, TopError> = names.iter().map(instance).collect();
    let shown = |name: String| name.trim_start_matches("http://").trim_end_matches('/').to_owned();
    Ok((names.into_iter().map(shown).collect(), made?))
}

/// What an instance answered, with its place among the URLs.
type Answered = (usize, Result<Box<Numbers>, String>);

/// Asks an instance once, or again after each pause until its receiver is gone.
fn ask(
    index: usize,
    mut instance: Instance,
    pause: Option<Duration>,
    with_keys: &AtomicBool,
    sender: &Sender<Answered>,
) {
    loop {
        let report = instance.report(with_keys.load(Ordering::Relaxed));
        let report = report.map(Box::new).map_err(|error| error.to_string());
        if sender.send((index, report)).is_err() {
            return;
        }
        let Some(pause) = pause else { return };
        std::thread::sleep(pause);
    }
}

struct Screen {
    /// In the order of the URLs.
    rows: Vec<Row>,
    failing_since: Vec<Option<Instant>>,
    sort: SortKey,
    is_reversed: bool,
    /// Name of the selected instance.
    selected: String,
    /// Number of its collection that is shown instead of the table.
    opened: Option<usize>,
    /// Set while a collection is shown: hot keys are asked for too.
    with_keys: Arc<AtomicBool>,
}

impl Screen {
    fn take(&mut self, (index, report): Answered, now: Instant) {
        let (Some(row), Some(since)) =
            (self.rows.get_mut(index), self.failing_since.get_mut(index))
        else {
            return;
        };
        row.report = match report {
            Ok(numbers) => {
                *since = None;
                Report::Numbers(numbers)
            }
            Err(why) => {
                let for_s = now.duration_since(*since.get_or_insert(now)).as_secs();
                Report::Unreachable { for_s, why }
            }
        };
    }

    fn sorted(&self) -> Vec<Row> {
        let mut rows = self.rows.clone();
        sort(&mut rows, self.sort, self.is_reversed);
        rows
    }

    /// Waits for one answer of each instance and prints it.
    fn snapshot(&mut self, reports: &Receiver<Answered>, args: &TopArgs) -> Result<(), TopError> {
        // Name resolution has no time limit of its own; two requests and a connection have.
        let until = Instant::now() + args.timeout * 4;
        // Ends when all have answered, or when the time is over.
        let left = || until.saturating_duration_since(Instant::now());
        while let Ok(report) = reports.recv_timeout(left()) {
            self.take(report, Instant::now());
        }
        let rows = self.sorted();
        let totals = Totals::of(&rows);
        let text = if args.json {
            format!("{:#}", document(&rows, &totals))
        } else {
            let (sort, is_reversed) = (self.sort, self.is_reversed);
            TopFrame { rows: &rows, totals: &totals, sort, is_reversed, selected: None }
                .text(TEXT_COLUMNS)
        };
        Ok(output::print(stdout(), &text)?)
    }

    /// Draws until a key or a signal ends it.
    fn live(&mut self, reports: &Receiver<Answered>) -> Result<(), TopError> {
        let keyboard = Keyboard::open();
        let on_abort = match &keyboard {
            Some(keyboard) => OnAbort::act(keyboard.restorer()),
            None => OnAbort::default(),
        };
        let stop: &AtomicBool = &*stop_flag_with(on_abort)?;
        let mut continued = Continued::listen().ok();
        let has_colours = std::env::var("NO_COLOR").map_or(true, |value| value.is_empty());
        let mut painter = Painter::new(has_colours);
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            reports.try_iter().for_each(|report| self.take(report, now));
            if continued.as_mut().is_some_and(Continued::take) {
                painter.forget();
                if let Some(keyboard) = &keyboard {
                    // If it fails, keys need Enter; the display continues.
                    let _ = keyboard.enter();
                }
            }
            let (columns, height) = size();
            let drawn = painter.replace(&self.draw(columns, height, keyboard.is_some()), columns);
            if stdout().lock().write_all(drawn.as_bytes()).is_err() {
                return Ok(());
            }
            let _ = stdout().flush();
            let command = match &keyboard {
                Some(keyboard) => keyboard.command(KEY_WAIT),
                None => {
                    std::thread::sleep(KEY_WAIT);
                    None
                }
            };
            match command {
                Some(Command::Quit) => break,
                Some(command) => self.apply(command),
                None => {}
            }
        }
        Ok(())
    }

    fn apply(&mut self, command: Command) {
        let collections = self.collections().len();
        match (command, self.opened) {
            (Command::NextSort, None) => self.sort = self.sort.next(),
            (Command::Reverse, None) => self.is_reversed = !self.is_reversed,
            // Shown when the instance reports one.
            (Command::Open, None) => self.opened = Some(0),
            (Command::Up | Command::Down, None) => self.select(command == Command::Down),
            (Command::Open | Command::Back, Some(_)) => self.opened = None,
            (Command::Next | Command::Down, Some(at)) => {
                self.opened = Some((at + 1) % collections.max(1));
            }
            (Command::Previous | Command::Up, Some(at)) => {
                self.opened = Some(at.checked_sub(1).unwrap_or(collections.saturating_sub(1)));
            }
            _ => {}
        }
        self.with_keys.store(self.opened.is_some(), Ordering::Relaxed);
    }

    /// Selects the instance below or above the selected one.
    fn select(&mut self, below: bool) {
        let rows = self.sorted();
        let at = rows.iter().position(|row| row.name == self.selected).unwrap_or(0);
        let next = if below { at + 1 } else { at.saturating_sub(1) };
        if let Some(row) = rows.get(next) {
            self.selected.clone_from(&row.name);
        }
    }

    /// Returns the collections of the selected instance, the busiest first.
    fn collections(&self) -> Vec<&Collection> {
        let row = self.rows.iter().find(|row| row.name == self.selected);
        let numbers = row.and_then(Row::numbers);
        let mut found: Vec<_> = numbers.iter().flat_map(|own| &own.collections).collect();
        found.sort_by(|a, b| b.lookups().total_cmp(&a.lookups()));
        found
    }

    fn draw(&self, columns: u16, height: u16, has_keys: bool) -> Buffer {
        if let Some(detail) = self.detail() {
            return detail.draw(columns.saturating_sub(1), height.saturating_sub(1));
        }
        let rows = self.sorted();
        let totals = Totals::of(&rows);
        let (sort, is_reversed) = (self.sort, self.is_reversed);
        let selected = has_keys.then_some(self.selected.as_str());
        let frame = TopFrame { rows: &rows, totals: &totals, sort, is_reversed, selected };
        // Heading, totals and help; one row for the cursor, one column because a full row may wrap.
        let needed = u16::try_from(rows.len() + 3).unwrap_or(u16::MAX);
        let height = height.saturating_sub(1).min(needed);
        let area = Rect::new(0, 0, columns.saturating_sub(1), height);
        let mut buffer = Buffer::empty(area);
        frame.render(area, &mut buffer);
        buffer
    }
}

impl Screen {
    /// Returns the collection that is shown; `None` without one, or while its instance does not
    /// report.
    fn detail(&self) -> Option<CollectionFrame<'_>> {
        let number = self.opened?;
        let numbers = self.rows.iter().find(|row| row.name == self.selected)?.numbers()?;
        let collections = self.collections();
        let collection = *collections.get(number)?;
        let count = collections.len();
        Some(CollectionFrame { instance: &self.selected, numbers, collection, number, count })
    }
}

/// Returns columns and rows of the terminal on standard output; those of a small one if unknown.
fn size() -> (u16, u16) {
    match tcgetwinsize(stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => (80, 24),
    }
}

/// Returns the document of `--json`.
fn document(rows: &[Row], totals: &Totals) -> Value {
    let instance = |row: &Row| match &row.report {
        Report::Numbers(numbers) => json!({
            "instance": row.name,
            "reachable": true,
            "version": numbers.version,
            "uptime_s": numbers.uptime_s,
            "ready": numbers.unmet.is_empty(),
            "unmet": numbers.unmet,
            "requests_per_s": numbers.requests,
            "hit_ratio": numbers.hit_ratio(),
            "p99_us": numbers.p99_us,
            "staleness_ms": numbers.staleness_ms,
            "queries_per_s": numbers.queries,
            "refused_per_s": numbers.refused,
            "errors_per_s": numbers.errors,
            "connections": numbers.connections,
            "cpu_cores": numbers.cpu_cores,
            "memory_bytes": numbers.memory_bytes,
            "cache_bytes": numbers.cache_bytes,
            "cache_capacity_bytes": numbers.capacity_bytes,
        }),
        Report::Awaited => json!({
            "instance": row.name, "reachable": false, "why": "no answer in time",
        }),
        Report::Unreachable { why, .. } => json!({
            "instance": row.name, "reachable": false, "why": why,
        }),
    };
    json!({
        "instances": rows.iter().map(instance).collect::<Vec<_>>(),
        "totals": {
            "instances": totals.instances,
            "reporting": totals.reporting,
            "ready": totals.ready,
            "requests_per_s": totals.numbers.requests,
            "hit_ratio": totals.numbers.hit_ratio(),
            "p99_us_max": totals.numbers.p99_us,
            "staleness_ms_max": totals.numbers.staleness_ms,
            "queries_per_s": totals.numbers.queries,
            "refused_per_s": totals.numbers.refused,
            "errors_per_s": totals.numbers.errors,
            "connections": totals.numbers.connections,
            "cpu_cores": totals.numbers.cpu_cores,
            "memory_bytes": totals.numbers.memory_bytes,
        },
    })
}
