//! `collections = "auto"` in place of tables `[collections.NAME]`: the collections come from the
//! database's catalogue, which `init::auto` reads. This finds the setting, and reads what does not
//! depend on the collections.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::{ConfigError, Env, Overrides, Resolved, SourceConfig, context, resolve};

const KEY: &str = "collections";
const VALUE: &str = "auto";

/// A file that leaves its collections to the catalogue.
#[derive(Clone, Debug)]
pub(crate) struct Auto {
    /// The text with blanks in place of the setting, so that all lines keep their numbers.
    rest: String,
}

impl Auto {
    /// Returns `None` if the text has no such setting, or is not TOML.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let (table, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            return None;
        }
        let (key, value) = table.get_ref().iter().find(|(key, _)| key.get_ref() == KEY)?;
        let is_auto = matches!(value.get_ref(), DeValue::String(value) if value == VALUE);
        is_auto.then(|| Self { rest: blanked(text, key.span().start..value.span().end) })
    }

    /// Returns the text with these tables of collections behind it.
    pub(crate) fn with(&self, collections: &str) -> String {
        format!("{}\n{collections}", self.rest)
    }

    /// Returns the settings of the database, without collections.
    ///
    /// # Errors
    /// Returns the problems of the source.
    pub(crate) fn source(&self, file: &str, env: &Env<'_>) -> Result<SourceConfig, ConfigError> {
        let (table, _) = DeTable::parse_recoverable(&self.rest);
        let table = filtered(table.into_inner(), |key| matches!(key, "source" | "sources"));
        let ctx = context(&self.rest, env);
        let source = resolve::source_alone(&ctx, &table);
        let problems = ctx.into_problems();
        match source {
            Some(source) if problems.is_empty() => Ok(source),
            _ => Err(ConfigError::sorted(file, problems)),
        }
    }

    /// Returns the configuration with a collection that does not exist, and without the settings
    /// that name collections: for commands that need the addresses or the source, and must work
    /// without the database.
    ///
    /// # Errors
    /// Returns all problems of what is left.
    pub(super) fn without_collections(
        &self,
        file: &str,
        env: &Env<'_>,
        overrides: &Overrides,
    ) -> Result<Resolved, ConfigError> {
        // With several sources a collection would have to name one.
        self.source(file, env)?;
        let text = self.with("[collections.any]\n");
        super::parse_edited(&text, file, env, overrides, |table| {
            let mut table = filtered(table, |key| key != "access");
            let limits = table.iter_mut().find(|(key, _)| key.get_ref() == "limits");
            if let Some(DeValue::Table(limits)) = limits.map(|(_, value)| value.get_mut()) {
                *limits = filtered(std::mem::take(limits), |key| key != "rate");
            }
            table
        })
    }
}

/// Returns the keys of a table that are wanted.
fn filtered<'a>(table: DeTable<'a>, is_wanted: impl Fn(&str) -> bool) -> DeTable<'a> {
    table.into_iter().filter(|(key, _)| is_wanted(key.get_ref())).collect()
}

/// Replaces a part of a text, but no line break, with blanks of the same length.
fn blanked(text: &str, part: Range<usize>) -> String {
    let blank = |c: char| match c {
        '\n' | '\r' => c.to_string(),
        _ => " ".repeat(c.len_utf8()),
    };
    let (before, rest) = text.split_at(part.start);
    let (setting, after) = rest.split_at(part.end - part.start);
    format!("{before}{}{after}", setting.chars().map(blank).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# ä\ncollections = \"auto\" # all\n[source]\nurl = \"sqlite:a.db\"\n";

    fn nothing(_: &str) -> Result<String, std::env::VarError> {
        Err(std::env::VarError::NotPresent)
    }

    #[test]
    fn the_setting_gives_way_to_tables_and_lines_keep_their_numbers() {
        let auto = Auto::of(FILE).unwrap();
        let text = auto.with("[collections.a]\n");
        let blank = " ".repeat("collections = \"auto\"".len());
        assert!(text.starts_with(&format!("# ä\n{blank} # all\n[source]\n")), "{text}");
        let resolved =
            super::super::parse(&text, "f", &nothing, &Overrides::default()).expect("sound");
        assert_eq!(resolved.server.collections[0].name, "a");
        let wrong = format!("{FILE}[nonsense]\n");
        let text = Auto::of(&wrong).unwrap().with("[collections.a]\n");
        let error = super::super::parse(&text, "f", &nothing, &Overrides::default()).unwrap_err();
        assert_eq!(error.problems[0].line, Some(5), "{error}");
        for other in ["[collections.a]\n", "collections = \"all\"\n", "collections = \"auto\n", ""]
        {
            assert!(Auto::of(other).is_none(), "{other}");
        }
    }

    #[test]
    fn the_source_is_read_without_collections_and_its_problems_are_named() {
        let roles = "[access.roles.r]\ncollections = [\"orders\"]\n";
        let auto = Auto::of(&format!("{FILE}{roles}")).unwrap();
        assert!(matches!(auto.source("f", &nothing), Ok(SourceConfig::Sqlite(_))));
        let wrong = FILE.replace("sqlite:a.db", "oracle:a");
        let error = Auto::of(&wrong).unwrap().source("f", &nothing).unwrap_err();
        assert_eq!((&*error.problems[0].path, error.problems[0].line), ("source.url", Some(4)));
    }

    #[test]
    fn without_the_database_what_names_collections_is_left_out() {
        let naming = "[access.roles.r]\ncollections = [\"orders\"]\n\
            [limits.rate.all]\nper = \"ip\"\nrate = \"10/s\"\ncollections = [\"orders\"]\n\
            [admin]\ntoken = \"0123456789abcdef0123456789abcdef\"\n";
        let auto = Auto::of(&format!("{FILE}{naming}")).unwrap();
        let resolved = auto.without_collections("f", &nothing, &Overrides::default());
        assert!(resolved.unwrap().server.admin_token.is_some());
    }
}
