//! Reports: from what was measured to a page that a person wants to read.
//!
//! Reading order: [`compose`] (the report, part by part), `summary` (figures of each row), `answer` (the sentence), `sections`
//! and `labels` (which rows stand together, and what tells them apart), `rates`, `latency`, `tiers`, `verdict`, `limit` (the parts),
//! [`document`] and [`plot`] (what a report is made of), [`markdown`], [`html`], [`text`] and `svg` (how it is written); [`compare`]
//! (two runs).

mod answer;
pub mod compare;
pub mod compose;
pub mod document;
pub mod html;
mod labels;
pub mod latency;
mod limit;
pub mod markdown;
mod note;
pub mod numbers;
pub mod plot;
mod rates;
mod sections;
mod summary;
mod svg;
pub mod text;
mod tiers;
mod verdict;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::results::{self, Results};

/// Name of the Markdown report beside the results.
pub const MARKDOWN_FILE: &str = "report.md";
/// Name of the HTML report beside the results.
pub const HTML_FILE: &str = "report.html";
/// Results longer than this are none of ours, in bytes.
pub const RESULTS_BYTES_MAX: u64 = 256 << 20;

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The Markdown report.
    pub markdown: PathBuf,
    /// The HTML report.
    pub html: PathBuf,
    /// The answer: its first sentence is that of the report.
    pub answer: String,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The results cannot be read.
    #[error("{path} cannot be read: {why}; name the folder of a run, as `hotrow lab run` printed it")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// The file is too long.
    #[error("{0} is longer than {RESULTS_BYTES_MAX} bytes: it cannot be the results of an experiment")]
    TooLong(PathBuf),
    /// The file is something else.
    #[error("{path} is no {schema}: {why}", schema = results::SCHEMA)]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A report cannot be written.
    #[error("{path} cannot be written: {why}; the results are untouched, `hotrow lab report` writes it again")]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
}

/// Writes `report.md` and `report.html` beside the results of a run; a reader sees the old or the new report, never half of one.
///
/// # Errors
/// Results that cannot be read, and reports that cannot be written.
pub fn write(dir: &Path) -> Result<Written, ReportError> {
    let document = compose::document(&read(dir)?);
    let (markdown, html) = (dir.join(MARKDOWN_FILE), dir.join(HTML_FILE));
    replace(&markdown, &markdown::render(&document))?;
    replace(&html, &html::render(&document))?;
    let answer = document.blocks.iter().find_map(|block| match block {
        document::Block::Answer(text) => Some(text.clone()),
        _ => None,
    });
    Ok(Written { markdown, html, answer: answer.unwrap_or_default() })
}

/// Reads the results of a run from its folder.
///
/// # Errors
/// A file that is missing, too long, or of another schema.
pub fn read(dir: &Path) -> Result<Results, ReportError> {
    let path = dir.join(results::FILE);
    let unreadable = |why| ReportError::Unreadable { path: path.clone(), why };
    let malformed = |why| ReportError::Malformed { path: path.clone(), why };
    let mut text = String::new();
    let file = File::open(&path).map_err(unreadable)?;
    file.take(RESULTS_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > RESULTS_BYTES_MAX {
        return Err(ReportError::TooLong(path));
    }
    // The schema first: of another one, a missing field would tell less.
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| malformed(e.to_string()))?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(results::SCHEMA) => serde_json::from_value(value).map_err(|e| malformed(e.to_string())),
        Some(other) => Err(malformed(format!("its schema is {other:?}"))),
        None => Err(malformed("it has no schema".to_owned())),
    }
}

/// Writes a file whole or not at all.
///
/// # Errors
/// A folder that cannot be written, a full disk.
pub fn replace(path: &Path, text: &str) -> Result<(), ReportError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&new, path)).map_err(|why| {
        // Half a file is of no use; that it cannot be removed either changes nothing.
        let _ = fs::remove_file(&new);
        ReportError::Unwritable { path: path.to_owned(), why }
    })
}

#[cfg(test)]
mod tests;
