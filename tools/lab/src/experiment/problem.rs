//! Problems of an experiment file, as messages for its author.

use std::fmt;

/// Most problems in one message; the rest is counted.
const PROBLEMS_SHOWN_MAX: usize = 50;

/// A problem of an experiment file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line in the file, from 1, if known.
    pub line: Option<usize>,
    /// Path of the key, such as `deployments[1].weights`; empty for the file as a whole.
    pub path: String,
    /// The rule, the value and the remedy.
    pub what: String,
}

/// Refusal of an experiment, with all problems found at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExperimentError {
    /// The file, as named by the user.
    pub file: String,
    /// At least one.
    pub problems: Vec<Problem>,
}

impl ExperimentError {
    /// Returns a refusal of the whole file.
    #[must_use]
    pub fn whole(file: &str, what: String) -> Self {
        Self {
            file: file.to_owned(),
            problems: vec![Problem { line: None, path: String::new(), what }],
        }
    }
}

impl fmt::Display for ExperimentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().take(PROBLEMS_SHOWN_MAX).enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", self.file)?;
            if let Some(line) = problem.line {
                write!(f, ":{line}")?;
            }
            if !problem.path.is_empty() {
                write!(f, ": {}", problem.path)?;
            }
            write!(f, ": {}", problem.what)?;
        }
        match self.problems.len().saturating_sub(PROBLEMS_SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "\n{}: and {more} more", self.file),
        }
    }
}

impl std::error::Error for ExperimentError {}
