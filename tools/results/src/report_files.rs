//! Files of a report, and why there is none.

use std::io;
use std::path::PathBuf;

use hotrow_report::file::WriteError;

/// Name of the Markdown report beside the results.
pub const MARKDOWN_FILE: &str = "report.md";
/// Name of the HTML report beside the results.
pub const HTML_FILE: &str = "report.html";
/// Largest results file, in bytes.
pub const RESULTS_BYTES_MAX: u64 = 256 << 20;

/// Written reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenReport {
    /// The Markdown report.
    pub markdown: PathBuf,
    /// The HTML report.
    pub html: PathBuf,
    /// The answer; its first sentence is that of the report.
    pub answer: String,
    /// Warning that the machine could not give the deployment its CPU limits.
    pub busy: Option<String>,
    /// Each goal with what was measured, in a line.
    pub goals: Vec<String>,
    /// Number of goals that were missed.
    pub goals_missed: usize,
}

impl WrittenReport {
    /// Returns the text for a terminal: a warning if the machine was busy, the answer, the goals,
    /// the files.
    pub fn summary(&self) -> String {
        let busy = self.busy.as_ref().map(|busy| format!("Note: {busy}\n\n")).unwrap_or_default();
        let goals: String = self.goals.iter().map(|goal| format!("\n{goal}")).collect();
        let (answer, html, markdown) = (&self.answer, self.html.display(), self.markdown.display());
        format!("{busy}{answer}{goals}\n\n{html}\n{markdown}")
    }
}

/// Reason there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The results cannot be read.
    #[error(
        "{path} cannot be read: {why}; name the folder of a run, as `hotrow-lab run` printed it"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// The file is too large.
    #[error(
        "{0} is longer than {RESULTS_BYTES_MAX} bytes: it cannot be the results of an experiment"
    )]
    TooLong(PathBuf),
    /// The file has another format.
    #[error("{path} is not {schema}: {why}", schema = crate::SCHEMA)]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The problem.
        why: String,
    },
    /// A report cannot be written.
    #[error("{0}; the results are unchanged; run `hotrow-lab report` to write it again")]
    Unwritable(#[from] WriteError),
}
