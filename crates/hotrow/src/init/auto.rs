//! Loading of a configuration file, whose collections may come from the database's catalogue:
//! `collections = "auto"` serves what `hotrow init` would write into the file.

use std::path::Path;
use std::time::Duration;

use hotrow_source::discovery::{Discovered, Request};
use hotrow_source::preflight::PreflightErrors;

use super::error::opened;
use super::{InitError, TABLES_MAX, discover, document, refuse};
use crate::config::auto::Auto;
use crate::config::{self, ConfigError, DefaultKeys, Env, Overrides, Resolved, SourceConfig};

/// Time to list the tables, and again to check them.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Most tables that a message names.
const NAMED_MAX: usize = 10;

/// A checked configuration, and the text that says it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub resolved: Resolved,
    /// Its text, with all collections.
    pub text: String,
    /// The text of the file.
    pub file_text: String,
    /// Tables of the collections, if they came from the catalogue.
    pub collections: Option<String>,
    /// Tables that are not served, each with its first reason.
    pub left_out: Vec<String>,
    /// Settings of the command line, with the keys that the catalogue has.
    pub overrides: Overrides,
}

/// Reason why a file gives no configuration.
#[derive(Debug, thiserror::Error)]
pub enum AutoError {
    /// The file is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The database's catalogue gives no collections now. Another start may succeed.
    #[error("{file}: {what}")]
    Catalogue {
        /// File, as named by the user.
        file: String,
        /// The reason.
        what: String,
        /// Nothing answered.
        is_unreachable: bool,
    },
}

/// Reads and checks a file. `collections` are those of an earlier look at the catalogue: with them
/// the database is not asked again.
///
/// # Errors
/// Returns all problems of the file at once, or the reason why the catalogue gives no collections.
pub fn load(
    path: &Path,
    overrides: &Overrides,
    collections: Option<&str>,
) -> Result<Loaded, AutoError> {
    let file = path.display().to_string();
    let env = |name: &str| std::env::var(name);
    let loaded = load_text(config::read_file(path)?, &file, &env, overrides, collections)?;
    let mut resolved = config::with_grants(loaded.resolved, path)?;
    resolved.warnings.extend(named(&loaded.left_out).map(|why| {
        format!("collections = \"auto\" leaves tables out, hotrow init shows all reasons: {why}")
    }));
    Ok(Loaded { resolved, ..loaded })
}

/// Does the same for a text without a file of grants; `file` is its name in messages.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_text(
    file_text: String,
    file: &str,
    env: &Env<'_>,
    overrides: &Overrides,
    collections: Option<&str>,
) -> Result<Loaded, AutoError> {
    let (mut is_cut, mut left_out) = (false, Vec::new());
    let (text, collections) = match (Auto::of(&file_text), collections) {
        (None, _) => (file_text.clone(), None),
        (Some(auto), Some(known)) => (auto.with(known), Some(known.to_owned())),
        (Some(auto), None) => {
            let (found, text) = from_catalogue(&auto, file, env, overrides)?;
            (is_cut, left_out) = (found.is_cut, refused_tables(&found));
            (auto.with(&text), Some(text))
        }
    };
    let mut overrides = overrides.clone();
    let mut resolved = config::parse(&text, file, env, &overrides)?;
    if overrides.keys.is_none() {
        overrides.keys = Some(default_keys(&resolved, file)?);
        resolved = config::parse(&text, file, env, &overrides)?;
    }
    if is_cut {
        let what = "collections = \"auto\": only the first";
        resolved.warnings.push(format!("{what} {TABLES_MAX} tables are considered"));
    }
    Ok(Loaded { resolved, text, file_text, collections, left_out, overrides })
}

/// Asks the databases for the keys of the collections that name none.
fn default_keys(resolved: &Resolved, file: &str) -> Result<DefaultKeys, AutoError> {
    let mut keys = DefaultKeys::new();
    let mut findings = Vec::new();
    for (source, named) in resolved.sources.iter().zip(&resolved.server.sources) {
        let names = &resolved.without_key;
        if !source.collections().iter().any(|spec| names.contains(&spec.name)) {
            continue;
        }
        let found = match source {
            SourceConfig::Sqlite(config) => {
                opened(hotrow_source_sqlite::default_keys(config, names))
            }
            #[cfg(feature = "postgres")]
            SourceConfig::Postgres(config) => {
                opened(hotrow_source_postgres::default_keys(config, names))
            }
            #[cfg(feature = "mysql")]
            SourceConfig::Mysql(config) => opened(hotrow_source_mysql::default_keys(config, names)),
            // The key is the `_id`.
            #[cfg(feature = "mongodb")]
            SourceConfig::Mongodb(_) => continue,
        };
        let found = found.map_err(|error| match resolved.sources.len() {
            1 => AutoError::of(file, "", &error),
            _ => AutoError::of(file, &format!("source {}: ", named.name), &error),
        })?;
        keys.extend(found.keys);
        findings.extend(found.findings);
    }
    match findings.is_empty() {
        true => Ok(keys),
        false => {
            let what = format!("the key is not evident; to fix:{}", PreflightErrors(findings));
            Err(AutoError::Catalogue { file: file.to_owned(), what, is_unreachable: false })
        }
    }
}

impl AutoError {
    fn of(file: &str, source: &str, error: &InitError) -> Self {
        let is_unreachable = matches!(error, InitError::Unreachable(_));
        Self::Catalogue { file: file.to_owned(), what: format!("{source}{error}"), is_unreachable }
    }
}

/// Returns what was found, and a table for each collection that the account may read and that can
/// be served.
fn from_catalogue(
    auto: &Auto,
    file: &str,
    env: &Env<'_>,
    overrides: &Overrides,
) -> Result<(Discovered, String), AutoError> {
    let refusal = |what: String| AutoError::Catalogue {
        file: file.to_owned(),
        what: format!("collections = \"auto\": {what}"),
        is_unreachable: false,
    };
    let source = auto.source(file, env)?;
    let request = Request {
        schemas: Vec::new(),
        tables: Vec::new(),
        tables_max: TABLES_MAX,
        timeout: TIMEOUT,
        is_for_setup: false,
        role: None,
    };
    let mut found = discover(source, &request).map_err(|error| AutoError::of(file, "", &error))?;
    loop {
        let served: Vec<_> =
            found.tables.iter().filter(|table| table.findings.is_empty()).collect();
        if served.is_empty() {
            let refused = named(&refused_tables(&found));
            let why = refused.unwrap_or_else(|| "the account sees none".to_owned());
            return Err(refusal(format!("no table can be served: {why}")));
        }
        let text = document::collections(&served);
        match config::parse(&auto.with(&text), file, env, overrides) {
            // Each round refuses at least one table more, so the loop ends.
            Err(error) if refuse(&mut found, &error) => {}
            // Other problems are not of the collections, and are reported with the whole.
            _ => return Ok((found, text)),
        }
    }
}

/// Returns the tables that are not served, each with its first reason.
fn refused_tables(found: &Discovered) -> Vec<String> {
    let refused = found.tables.iter().filter_map(|table| Some((table, table.findings.first()?)));
    refused.map(|(table, why)| format!("{} ({})", table.config.name, why.problem)).collect()
}

/// Names the first of the tables; `None` if there are none.
fn named(tables: &[String]) -> Option<String> {
    let more = match tables.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let first = &tables[..tables.len().min(NAMED_MAX)];
    (!tables.is_empty()).then(|| format!("{}{more}", first.join("; ")))
}
