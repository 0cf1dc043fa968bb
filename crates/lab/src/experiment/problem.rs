//! What is wrong with an experiment, in words for the person who wrote it.

use std::fmt;

/// Most problems that one report lists; the rest is counted.
const PROBLEMS_SHOWN_MAX: usize = 50;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line in the file, from 1, where it is known.
    pub line: Option<usize>,
    /// Path of the key, such as `setups[1].weights`; empty when the file as a whole is meant.
    pub path: String,
    /// The rule, the value and what to do.
    pub what: String,
}

/// Why an experiment is refused: all problems that could be found at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExperimentError {
    /// The file as the user named it.
    pub file: String,
    /// At least one.
    pub problems: Vec<Problem>,
}

impl ExperimentError {
    /// A refusal of the file as a whole.
    #[must_use]
    pub fn whole(file: &str, what: String) -> Self {
        Self { file: file.to_owned(), problems: vec![Problem { line: None, path: String::new(), what }] }
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
