//! What an administrator has to run before `hotrow serve` can start: one block that can be pasted,
//! and its execution by `--apply`.

use std::io::{BufRead as _, IsTerminal as _};

use hotrow_cli::output::print_line;
use hotrow_source::discovery::{Discovered, Engine};

use super::error::{InitError, opened};
use crate::config::SourceConfig;

/// What an administrator has to run.
#[derive(Debug, Default)]
pub(super) struct Setup {
    /// Statements, and between them what no statement can do, as comments.
    pub(super) text: String,
    statements: Vec<String>,
}

impl Setup {
    /// Collects the remedies of what concerns the whole database. They are divided at their line
    /// breaks, but for those within a quoted name.
    pub(super) fn of(found: &Discovered) -> Self {
        let mut setup = Self::default();
        let comment = if found.engine == Engine::Mongodb { "// " } else { "-- " };
        for finding in &found.findings {
            let mut part = String::new();
            for line in finding.remedy.split('\n') {
                part.push_str(line);
                if ['"', '`'].iter().any(|quote| part.matches(*quote).count() % 2 == 1) {
                    part.push('\n');
                } else {
                    setup.add(std::mem::take(&mut part), comment);
                }
            }
        }
        setup
    }

    fn add(&mut self, part: String, comment: &str) {
        let word = part.split(' ').next().unwrap_or_default();
        let is_sql = part.ends_with(';') && word.len() > 2 && word.chars().all(char::is_uppercase);
        let is_statement = is_sql || part.starts_with("db.");
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(if is_statement { "" } else { comment });
        self.text.push_str(&part);
        self.statements.extend(is_statement.then_some(part));
    }

    /// Returns whether there is something to run.
    pub(super) fn has_statements(&self) -> bool {
        !self.statements.is_empty()
    }

    /// Shows the block and runs it as the account of `administrator`, once that is confirmed.
    ///
    /// # Errors
    /// It is not confirmed, or the database refuses it.
    pub(super) fn apply(
        &self,
        administrator: SourceConfig,
        is_confirmed: bool,
    ) -> Result<(), InitError> {
        print_line(std::io::stderr(), &self.text);
        if !is_confirmed {
            confirm()?;
        }
        let statements = self.statements.clone();
        match administrator {
            SourceConfig::Sqlite(config) => {
                opened(hotrow_source_sqlite::apply(&config, &statements))
            }
            #[cfg(feature = "postgres")]
            SourceConfig::Postgres(config) => {
                opened(hotrow_source_postgres::apply(&config, statements))
            }
            #[cfg(feature = "mysql")]
            SourceConfig::Mysql(config) => opened(hotrow_source_mysql::apply(&config, statements)),
            #[cfg(feature = "mongodb")]
            SourceConfig::Mongodb(_) => Err(InitError::NotApplied(
                "is not for MongoDB: run the lines in mongosh".to_owned(),
            )),
        }
    }
}

/// Asks on the terminal.
fn confirm() -> Result<(), InitError> {
    let refused = |what: &str| Err(InitError::NotApplied(what.to_owned()));
    let input = std::io::stdin();
    if !input.is_terminal() {
        return refused("asks before it writes, and standard input is no terminal; add --yes");
    }
    print_line(std::io::stderr(), "Run these statements now? [y/N]");
    let mut answer = String::new();
    match input.lock().read_line(&mut answer) {
        Ok(_) if matches!(answer.trim(), "y" | "Y" | "yes") => Ok(()),
        _ => refused("was not confirmed; nothing was changed"),
    }
}

#[cfg(test)]
mod tests {
    use hotrow_source::preflight::Finding;

    use super::*;

    #[test]
    fn only_whole_statements_are_run() {
        let of = |remedy: &str| {
            let findings = vec![Finding::new("", remedy)];
            let found = Discovered { findings, ..Discovered::default() };
            let Setup { text, statements } = Setup::of(&found);
            (text, statements)
        };
        let (text, statements) = of("ALTER SYSTEM SET a = 'b';\nthen restart the server");
        assert_eq!(text, "ALTER SYSTEM SET a = 'b';\n-- then restart the server");
        assert_eq!(statements, ["ALTER SYSTEM SET a = 'b';"]);
        let broken = "GRANT SELECT ON \"a\nb; DROP\n\" TO \"c\";";
        assert_eq!(of(broken), (broken.to_owned(), vec![broken.to_owned()]));
        assert!(of("or on MariaDB ALTER TABLE t;").1.is_empty());
        assert_eq!(of("db.createUser({})").1.len(), 1);
    }
}
