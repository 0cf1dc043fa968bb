//! The log: lines on standard error, as text or JSON, through [`crate::log_writer`].

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal, Write};
use std::panic::PanicHookInfo;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hotrow_supervisor::Supervisor;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, reload};

use crate::config::{Log, LogFormat, LogLevel};
use crate::log_writer::LogWriter;

/// Longest wait at the end of the process for log lines to be written.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// The process's writer, once logging has started.
static WRITER: OnceLock<LogWriter> = OnceLock::new();

/// Its level.
static FILTER: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Starts logging for the whole process, panics included. A second call changes nothing: the first
/// subscriber stays. Lines that cannot be written are counted in `dropped_total`.
///
/// # Errors
/// Fails if the system has no thread or file descriptor left.
pub fn start(log: Log, supervisor: &Supervisor, dropped_total: Arc<AtomicU64>) -> io::Result<()> {
    if WRITER.get().is_some() {
        tracing::debug!("logging runs already");
        return Ok(());
    }
    let writer = LogWriter::to_stderr(supervisor, dropped_total)?;
    let (filter, filter_handle) = reload::Layer::new(level(log.level));
    let filtered = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer()
        // Its internal errors would go directly to standard error, and panic if that fails.
        .log_internal_errors(false)
        .with_writer(writer.clone());
    let started = match log.format {
        LogFormat::Text => filtered.with(layer.with_ansi(io::stderr().is_terminal())).try_init(),
        LogFormat::Json => {
            let json = layer.json().flatten_event(true);
            filtered.with(json.with_current_span(false).with_span_list(false)).try_init()
        }
    };
    match started {
        Ok(()) => {
            // Only the first subscriber reaches this line.
            _ = WRITER.set(writer);
            _ = FILTER.set(filter_handle);
            std::panic::set_hook(Box::new(log_panic));
        }
        Err(error) => tracing::debug!("logging runs already: {error}"),
    }
    Ok(())
}

/// Changes the level of the process's log.
pub fn set_level(to: LogLevel) {
    let Some(filter) = FILTER.get() else { return };
    if let Err(error) = filter.reload(level(to)) {
        tracing::error!(%error, "the level of the log was not changed");
    }
}

/// Waits until all lines are written, at most `FLUSH_TIME_MAX`: standard error may be blocked.
pub fn flush() {
    if let Some(writer) = WRITER.get() {
        writer.flush(FLUSH_TIME_MAX);
    }
}

/// Writes the process's last line to standard error, after the log if logging has started.
pub fn last_line(line: &str) {
    match WRITER.get() {
        Some(writer) => {
            // A `LogWriter` never fails.
            _ = writeln!(writer.clone(), "{line}");
            flush();
        }
        None => hotrow_cli::output::print_line(io::stderr(), line),
    }
}

/// Logs one line for each panic. The standard hook would write to standard error directly and block
/// with it.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let message = panic.payload_as_str().unwrap_or("no message");
    let location = panic.location().map(ToString::to_string);
    let backtrace = Backtrace::capture();
    let backtrace =
        (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(
        thread = thread.name(),
        location,
        message,
        backtrace,
        "a thread panicked; this is a bug in Hotrow, please report it"
    );
}

fn level(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
