//! The log: lines on standard error, as text or JSON.

use std::io::IsTerminal;

use tracing_subscriber::filter::LevelFilter;

use crate::config::{Log, LogFormat, LogLevel};

/// Starts logging for the whole process. A second call changes nothing: the first subscriber stays.
pub fn start(log: Log) {
    let builder = tracing_subscriber::fmt().with_max_level(level(log.level)).with_writer(std::io::stderr);
    let started = match log.format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
    };
    if let Err(e) = started {
        tracing::debug!("logging runs already: {e}");
    }
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
