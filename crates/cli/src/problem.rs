//! Problems of a file that users write, described for its author.

use std::fmt;

/// Most problems that one report lists; the others are counted.
const PROBLEMS_SHOWN_MAX: usize = 50;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line in the file, from 1; `None` for a missing key.
    pub line: Option<usize>,
    /// Path of the key, such as `deployments[1].weights`; empty if the file as a whole is meant.
    pub path: String,
    /// The rule, the value and what to do.
    pub what: String,
}

/// Refusal of a file, with all problems that could be found at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// File, as named by the user.
    pub file: String,
    /// Problems in the order of the file; at least one.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    /// Creates a refusal of the file as a whole.
    #[must_use]
    pub fn whole(file: &str, what: String) -> Self {
        Self {
            file: file.to_owned(),
            problems: vec![Problem { line: None, path: String::new(), what }],
        }
    }

    /// Creates a refusal with its problems in the order of the file, missing keys last.
    #[must_use]
    pub fn sorted(file: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|p| p.line.unwrap_or(usize::MAX));
        Self { file: file.to_owned(), problems }
    }
}

impl fmt::Display for ConfigError {
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

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_bounded() {
        let problem = Problem { line: Some(1), path: "a.b".to_owned(), what: "wrong".to_owned() };
        let text = ConfigError::sorted("f.toml", vec![problem; PROBLEMS_SHOWN_MAX + 7]).to_string();
        assert_eq!(text.lines().count(), PROBLEMS_SHOWN_MAX + 1);
        assert!(
            text.starts_with("f.toml:1: a.b: wrong\n") && text.ends_with("and 7 more"),
            "{text}"
        );
    }
}
