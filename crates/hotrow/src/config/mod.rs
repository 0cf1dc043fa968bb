//! The configuration: one TOML file, parsed once into the settings of the subsystems.
//!
//! Reading order: here (the result), [`resolve`] (every key with its default and range), `listen`,
//! `admin`, `access`, `cors`, `source`, `collections`, `aliases`, `compression`, `follow`,
//! `purge`, `rate`, `limits`, `warm`, `access_log`, `trace`, `hub`, `reload`, `auto`, `reader`
//! (reading of a key), `problem` (messages), `units`, `expand`.
//!
//! All values are checked at start. All problems are reported at once, with file, line, path, rule
//! and value.
//!
//! Reference `configuration`: # Settings
//!
//! By table of the [file](configuration.md). *restart*: a [reload](rollout.md#reload) leaves the
//! key as it was at the start.

mod access;
mod access_log;
pub(crate) mod address;
mod admin;
mod aliases;
pub(crate) mod auto;
mod carriers;
mod collection_context;
mod collections;
mod compression;
mod cors;
mod embed;
mod expand;
mod follow;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod hub;
mod key_types;
mod limits;
mod listen;
mod names;
mod problem;
mod purge;
mod rate;
mod reader;
mod reload;
mod resolve;
mod scheme;
mod source;
mod trace;
mod units;
mod warm;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;

pub use hotrow_cli::problem::{ConfigError, Problem};
use hotrow_net::tls::files::Certificates;
use hotrow_source::spec::CollectionConfig;
#[cfg(feature = "postgres")]
use hotrow_source::spec::Follow;
use hotrow_types::key::CollectionId;
use toml::de::DeTable;

pub(crate) use collections::COLLECTIONS_MAX;
pub use expand::Env;
pub(crate) use names::{NAME_BYTES_MAX, name_is_valid};
pub use reader::{DefaultKeys, Known};
pub use reload::Reload;
#[cfg(feature = "failpoints")]
pub(crate) use units::parse_duration;

/// Largest configuration file in bytes; 1,000 collections with long lists of columns stay far
/// below.
pub(crate) const FILE_BYTES_MAX: u64 = 4 << 20;

/// A checked configuration with every default applied.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The HTTP side.
    pub server: hotrow_config::Config,
    /// The cache.
    pub cache: hotrow_cache::config::Config,
    /// Cache settings per collection, in the order of their `CollectionId`s: by name.
    pub collections: Vec<hotrow_cache::config::CollectionPolicy>,
    /// What the cache knows of each source, in the order of their `SourceId`s.
    pub cache_sources: Vec<hotrow_cache::config::SourceSettings>,
    /// The databases, in the same order; at least one.
    pub sources: Vec<SourceConfig>,
    /// The change hub, if changes come from one.
    #[cfg(feature = "hub")]
    pub hub: Option<hotrow_hub_nats::config::HubConfig>,
    /// Logging.
    pub log: Log,
    /// Reload of the file.
    pub reload: Reload,
    /// Collections without a key in the file.
    pub without_key: Vec<String>,
    /// Warnings for the log about settings that work but need attention.
    pub warnings: Vec<String>,
}

/// Settings of the source, by engine.
#[derive(Clone, Debug)]
pub enum SourceConfig {
    /// SQLite, in this process.
    Sqlite(hotrow_source_sqlite::config::Config),
    /// A PostgreSQL server.
    #[cfg(feature = "postgres")]
    Postgres(hotrow_source_postgres::config::Config),
    /// A MySQL or MariaDB server.
    #[cfg(feature = "mysql")]
    Mysql(hotrow_source_mysql::config::Config),
    /// A MongoDB deployment.
    #[cfg(feature = "mongodb")]
    Mongodb(hotrow_source_mongodb::config::Config),
}

/// Settings of the log on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// Least important level that is written.
    pub level: LogLevel,
    /// Form of a line.
    pub format: LogFormat,
}

/// Levels of the log, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Failures.
    Error,
    /// Conditions that need attention.
    Warn,
    /// Starts, stops and changes of state.
    Info,
    /// Events of single requests.
    Debug,
    /// All events.
    Trace,
}

/// Forms of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Readable text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Settings of the command line that override the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `--data`.
    pub data: Option<SocketAddr>,
    /// `--admin`.
    pub admin: Option<SocketAddr>,
    /// Keys of the collections that name none; `None`: the catalogue was not asked yet.
    pub keys: Option<DefaultKeys>,
}

impl SourceConfig {
    /// Returns the collections that are read from it.
    #[must_use]
    pub fn collections(&self) -> &[CollectionConfig] {
        match self {
            Self::Sqlite(source) => &source.collections,
            #[cfg(feature = "postgres")]
            Self::Postgres(source) => &source.server.collections,
            #[cfg(feature = "mysql")]
            Self::Mysql(source) => &source.server.collections,
            #[cfg(feature = "mongodb")]
            Self::Mongodb(source) => &source.server.collections,
        }
    }

    /// Lets opening it add nothing to the database.
    pub(crate) fn try_only(&mut self) {
        match self {
            Self::Sqlite(source) => source.is_trial = true,
            #[cfg(feature = "postgres")]
            Self::Postgres(source) => source.is_trial = true,
            #[cfg(feature = "mysql")]
            Self::Mysql(_) => {}
            #[cfg(feature = "mongodb")]
            Self::Mongodb(_) => {}
        }
    }

    /// Returns whether its changes come from a hub.
    pub fn follows_hub(&self) -> bool {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(source) => source.server.follow == Follow::Hub,
            #[cfg(feature = "mysql")]
            Self::Mysql(source) => source.server.follow == Follow::Hub,
            // The configuration has refused a hub for other engines.
            _ => false,
        }
    }
}

impl Resolved {
    /// Lets entries keep the ends of their members where a role is limited to columns. A file of
    /// grants may limit other collections later; their members are then searched for.
    fn keep_members(&mut self) {
        let roles = self.server.access.iter().flat_map(|access| &access.granted.roles);
        for (CollectionId(id), _) in roles.flat_map(|role| &role.columns) {
            if let Some(collection) = self.collections.get_mut(usize::from(*id)) {
                collection.has_views = true;
            }
        }
    }
}

/// Reads and checks a file, for a command that needs neither the database nor its collections.
/// [`crate::init::auto::load`] is for the others.
///
/// # Errors
/// Returns all problems of the file at once.
pub fn load_offline(path: &Path, overrides: &Overrides) -> Result<Resolved, ConfigError> {
    let file = path.display().to_string();
    let text = read_file(path)?;
    let env = |name: &str| std::env::var(name);
    let resolved = match auto::Auto::of(&text) {
        Some(auto) => auto.without_collections(&file, &env, overrides),
        None => parse(&text, &file, &env, overrides),
    }?;
    with_grants(resolved, path)
}

/// Reads the text of a file.
///
/// # Errors
/// It cannot be read, is too large, or is not text.
pub(crate) fn read_file(path: &Path) -> Result<String, ConfigError> {
    read(path).map_err(|what| ConfigError::whole(&path.display().to_string(), what))
}

/// Reads the file of grants, if the configuration names one. `path`: its own, for messages.
///
/// # Errors
/// The file cannot be read, or has a problem.
pub(crate) fn with_grants(mut resolved: Resolved, path: &Path) -> Result<Resolved, ConfigError> {
    access::read_grants(&mut resolved.server.access, path)?;
    resolved.keep_members();
    Ok(resolved)
}

/// Checks the files that a configuration names: the certificates of `[listen.tls]` and of
/// `[admin.tls]`, the header fields of `[trace]`, and the secrets of `[purge]`. Returns the
/// certificates with the names of their tables.
///
/// # Errors
/// Returns the problem of a file that is missing or malformed, or does not fit the others.
pub fn check_files(
    resolved: &Resolved,
    path: &Path,
) -> Result<Vec<(&'static str, Certificates)>, ConfigError> {
    let hotrow_config::Config { transport, admin_transport, .. } = &resolved.server;
    let configured = [("listen.tls", &transport.tls), ("admin.tls", &admin_transport.tls)];
    let (mut certificates, mut problems) = (Vec::new(), Vec::new());
    for (table, tls) in configured {
        match tls.as_ref().map(hotrow_net::tls::files::check) {
            Some(Ok(found)) => certificates.push((table, found)),
            Some(Err(error)) => {
                let (path, what) = (table.to_owned(), error.to_string());
                problems.push(Problem { line: None, path, what });
            }
            None => {}
        }
    }
    if let Some(trace) = &resolved.server.observability.trace
        && let Err(error) = hotrow_telemetry::traces::check_headers(trace)
    {
        let (path, what) = ("trace".to_owned(), error.to_string());
        problems.push(Problem { line: None, path, what });
    }
    if let Err(error) = hotrow_changes::purge::check_secrets(&resolved.server.purge.targets) {
        let (path, what) = ("purge.targets".to_owned(), error.to_string());
        problems.push(Problem { line: None, path, what });
    }
    match problems.is_empty() {
        true => Ok(certificates),
        false => Err(ConfigError::sorted(&path.display().to_string(), problems)),
    }
}

/// Checks the text of a file; `file` is its name in messages.
///
/// # Errors
/// Returns all problems of the text at once.
pub fn parse(
    text: &str,
    file: &str,
    env: &Env<'_>,
    overrides: &Overrides,
) -> Result<Resolved, ConfigError> {
    parse_edited(text, file, env, overrides, |table| table)
}

/// Does the same after an edit of the parsed text.
fn parse_edited(
    text: &str,
    file: &str,
    env: &Env<'_>,
    overrides: &Overrides,
    edit: impl for<'a> FnOnce(DeTable<'a>) -> DeTable<'a>,
) -> Result<Resolved, ConfigError> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let syntax = |e: &toml::de::Error| Problem {
            line: e.span().map(|span| reader::line_of(text, span.start)),
            path: String::new(),
            what: format!("this is not TOML: {}", e.message().trim()),
        };
        return Err(ConfigError::sorted(file, errors.iter().map(syntax).collect()));
    }
    let table = edit(table.into_inner());
    let mut ctx = context(text, env);
    ctx.default_keys = overrides.keys.clone().unwrap_or_default();
    let resolved = resolve::resolve(&ctx, &table, overrides);
    let without_key = ctx.without_key.take();
    let problems = ctx.into_problems();
    match resolved {
        Some(mut resolved) if problems.is_empty() => {
            resolved.keep_members();
            resolved.without_key = without_key;
            Ok(resolved)
        }
        _ => Err(ConfigError::sorted(file, problems)),
    }
}

/// Returns every key that a file may set, as recorded by the reader. `NAME` is a placeholder for
/// the name of a collection or a rule.
pub fn known_keys() -> Vec<Known> {
    let text = "[collections.any.by.any]\n[collections.any.embed.any]\n[limits.rate.any]\n\
        [access.roles.any.columns.any]\n[access.keys.any]\n[access.certificates.any]\n\
        [purge.targets.any]";
    let (table, _) = DeTable::parse_recoverable(text);
    let ctx = context(text, &|_| Err(std::env::VarError::NotPresent));
    // The problems (no source.url) do not matter here: every key is read anyway.
    let _ = resolve::resolve(&ctx, table.get_ref(), &Overrides::default());
    ctx.known.into_inner()
}

fn context<'a>(text: &'a str, env: &'a Env<'a>) -> reader::Context<'a> {
    reader::Context {
        text,
        env,
        problems: RefCell::default(),
        known: RefCell::default(),
        unknown: RefCell::default(),
        default_keys: DefaultKeys::default(),
        without_key: RefCell::default(),
    }
}

fn read(path: &Path) -> Result<String, String> {
    let cannot =
        |e: std::io::Error| format!("cannot be read: {e}; name an existing file with --config");
    let file = std::fs::File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!(
            "is larger than {}; is it the right file?",
            units::format_size(FILE_BYTES_MAX)
        ));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text; is it the right file?".to_owned())
}
