//! `hotrow serve URL`: the tables of a database without a configuration file.
//!
//! It is `collections = "auto"` with the connection string of the command line, and writes nothing
//! to the database unless `--triggers` asks for it.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use hotrow_cli::output::print_line;

use crate::config::{ConfigError, Overrides, Resolved, SourceConfig};
use crate::demo;
use crate::init::InitError;
use crate::init::auto::{self, AutoError, Loaded};
use crate::init::origin::{ConnectionString, Origin};
use crate::serve::{self, Addresses, Host, ServeError};

/// Name of the configuration in messages.
const FILE: &str = "(no file)";
/// Most collections, and most tables that are left out, that the screen lists.
const LISTED_MAX: usize = 20;

/// Arguments of `serve` with a connection string.
#[derive(Debug, Args)]
pub struct UrlArgs {
    /// Without a feed: answers may be this old, and no grants for changes are needed
    #[arg(long, value_name = "TIME", requires = "url", conflicts_with_all = ["config", "demo"])]
    #[arg(value_parser = hotrow_cli::duration)]
    ttl: Option<Duration>,
    /// SQLite: add a log of changes and its triggers to the database, so that a change makes only
    /// its record stale
    #[arg(long, requires = "url", conflicts_with_all = ["config", "demo", "ttl"])]
    triggers: bool,
}

/// Reason why a database is not served.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// The connection string is wrong, or no table can be served.
    #[error("hotrow serve: {0}")]
    Database(InitError),
    /// `--triggers` with another database than SQLite.
    #[error("--triggers is for SQLite; other databases have a log of changes")]
    Triggers,
    /// An argument does not fit the others.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Serving could not start or could not continue.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Serves every table that the account may read.
///
/// # Errors
/// Returns the cause if serving could not start or could not continue.
pub(crate) fn run(
    url: &ConnectionString,
    args: &UrlArgs,
    overrides: &Overrides,
    host: Host,
) -> Result<(), UrlError> {
    let env = |name: &str| std::env::var(name);
    let origin = Origin::read(url, None, &env).map_err(UrlError::Database)?;
    let source = origin.source().map_err(UrlError::Database)?;
    origin.warn_of_exposure("serve", "");
    let is_sqlite = matches!(source, SourceConfig::Sqlite(_));
    if args.triggers && !is_sqlite {
        return Err(UrlError::Triggers);
    }
    let text = configuration(&origin.setting(), is_sqlite, args);
    let environment = origin.environment();
    let Loaded { resolved, left_out, .. } =
        auto::load_text(text, FILE, &environment, overrides, None).map_err(
            |error| match error {
                AutoError::Catalogue { what, .. } => UrlError::Database(InitError::Database(what)),
                AutoError::Config(error) => UrlError::Config(error),
            },
        )?;
    let resolved = without_writes(resolved);
    let paths: Vec<String> = resolved.sources.iter().flat_map(paths).collect();
    let hint = (is_sqlite && !args.triggers && args.ttl.is_none()).then_some(
        "Any change makes every entry stale; with --triggers only those that changed, for which a \
         log of changes is added to the database.",
    );
    let mut is_ready = false;
    let served = serve::run(resolved, None, host, |at| {
        is_ready = true;
        let from = origin.shown();
        print_line(std::io::stdout(), &screen(at, &paths, &left_out, hint, &from));
    });
    served.map_err(|error| match error {
        ServeError::Subsystem(why) if !is_ready && !is_sqlite && args.ttl.is_none() => {
            let text = "without its changes the database can be served with --ttl 5s: answers may \
                        then be that old";
            ServeError::Subsystem(format!("{why}\n{text}"))
        }
        other => other,
    })?;
    Ok(())
}

/// Returns the configuration with which nothing is added to a database.
#[cfg_attr(not(feature = "postgres"), allow(unused_mut, reason = "no other database is changed"))]
fn without_writes(mut resolved: Resolved) -> Resolved {
    #[cfg(feature = "postgres")]
    for source in &mut resolved.sources {
        if let SourceConfig::Postgres(source) = source {
            source.completes_publication = false;
        }
    }
    resolved
}

/// Returns the configuration for a connection string in TOML.
fn configuration(url: &str, is_sqlite: bool, args: &UrlArgs) -> String {
    // Nothing balances requests to it, so nothing must see first that it stops.
    let limits = "[limits]\ndrain_delay = \"0s\"\n";
    let mut text = format!("collections = \"auto\"\n{limits}[source]\nurl = {url}\n");
    match args.ttl {
        Some(ttl) => {
            _ = write!(text, "feed = \"none\"\n[cache]\nttl = \"{}ms\"\n", ttl.as_millis());
        }
        None if is_sqlite => {
            let watch = if args.triggers { "triggers" } else { "none" };
            _ = writeln!(text, "watch = \"{watch}\"");
        }
        None => {}
    }
    text
}

/// Returns the path of each collection: `/orders/{id}`.
fn paths(source: &SourceConfig) -> impl Iterator<Item = String> + '_ {
    source.collections().iter().map(|collection| {
        let key: Vec<String> = collection.key.iter().map(|name| format!("{{{name}}}")).collect();
        format!("/{}/{}", collection.name, key.join(","))
    })
}

/// Returns what is served and what to try.
fn screen(
    at: Addresses,
    paths: &[String],
    left_out: &[String],
    hint: Option<&str>,
    from: &str,
) -> String {
    let (data, admin) = (demo::reachable(at.data), demo::reachable(at.admin));
    let noun = if paths.len() == 1 { "collection" } else { "collections" };
    let mut text = format!("Serving {} {noun} until Ctrl-C:\n", paths.len());
    list(&mut text, paths, |path| format!("  http://{data}{path}\n"));
    if !left_out.is_empty() {
        text.push_str("Left out, with the first reason (`hotrow init` shows all):\n");
        list(&mut text, left_out, |table| format!("  {table}\n"));
    }
    text.extend(hint.iter().flat_map(|hint| [hint, "\n"]));
    _ = write!(
        text,
        "Live page: http://{admin}/\nDescription for clients: http://{admin}/openapi.html\n\
         In a terminal: hotrow top http://{admin}\n\
         To keep it as a file: hotrow init --from {from} --output hotrow.toml"
    );
    text
}

fn list(text: &mut String, items: &[String], line: impl Fn(&String) -> String) {
    text.extend(items.iter().take(LISTED_MAX).map(line));
    if let Some(more) = items.len().checked_sub(LISTED_MAX).filter(|more| *more > 0) {
        _ = writeln!(text, "  and {more} more");
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn the_screen_says_what_is_served_and_what_is_not() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let addresses = Addresses { data: at(1), admin: at(2), redis: None };
        let paths: Vec<String> = (0..23).map(|i| format!("/c{i}/{{id}}")).collect();
        let left_out = ["log (it has no key)".to_owned()];
        let text = screen(addresses, &paths, &left_out, Some("Hint."), "sqlite:a.db");
        for part in [
            "Serving 23 collections until Ctrl-C:\n  http://127.0.0.1:1/c0/{id}\n",
            "/c19/{id}\n  and 3 more\n",
            "  log (it has no key)\nHint.\nLive page: http://127.0.0.1:2/\n",
            "hotrow init --from sqlite:a.db --output hotrow.toml",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("/c20/"), "{text}");
    }
}
