//! What all tables of one file share: its text, its problems, and the keys that it may have.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use hotrow_cli::problem::Problem;

use super::super::expand::Env;

/// Most tables of which a message says that an unknown key belongs there.
const HOMES_MAX: usize = 3;

/// Key of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Path, with `NAME` for a collection's name.
    pub path: String,
    /// Default as written in the file; `required` or `none` where there is no value.
    pub default: String,
    /// Allowed values, in words.
    pub range: String,
}

/// Keys of collections by their names.
pub type DefaultKeys = BTreeMap<String, Vec<String>>;

/// State shared by all tables of one file.
pub(in super::super) struct Context<'a> {
    pub(in super::super) text: &'a str,
    pub(in super::super) env: &'a Env<'a>,
    pub(in super::super) problems: RefCell<Vec<Problem>>,
    pub(in super::super) known: RefCell<Vec<Known>>,
    /// Unknown keys and tables: number of the problem, `key` or `table`, and name.
    pub(in super::super) unknown: RefCell<Vec<(usize, &'static str, String)>>,
    /// Keys of collections that name none, as the catalogue has them.
    pub(in super::super) default_keys: DefaultKeys,
    /// Collections that name none.
    pub(in super::super) without_key: RefCell<Vec<String>>,
}

impl Context<'_> {
    /// Returns the problems, where an unknown name of one table may be known in another.
    pub(in super::super) fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        let known = self.known.into_inner();
        for (problem, kind, name) in self.unknown.into_inner() {
            let paths = known.iter().filter_map(|known| known.path.rsplit_once('.'));
            let home = |(table, key): (&str, &str)| match kind {
                "key" => (key == name).then(|| format!("[{table}]")),
                _ => table.strip_suffix(&format!(".{name}")).map(|home| format!("[{home}]")),
            };
            let homes: BTreeSet<String> = paths.filter_map(home).collect();
            if (1..=HOMES_MAX).contains(&homes.len()) {
                let homes: Vec<String> = homes.into_iter().collect();
                problems[problem].what =
                    format!("unknown {kind}; it belongs to {}", homes.join(" or "));
            }
        }
        problems
    }

    /// Records a problem; `at` is its byte offset in the file.
    pub(in super::super) fn refuse(&self, path: String, at: Option<usize>, what: String) {
        let line = at.map(|at| line_of(self.text, at));
        self.problems.borrow_mut().push(Problem { line, path, what });
    }
}

/// Returns the line of a byte offset, from 1.
pub(in super::super) fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|b| *b == b'\n').count()
}
