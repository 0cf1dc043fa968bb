//! `[source]`: which database, and how it is read and followed.

use std::path::PathBuf;
use std::time::Duration;

use hotrow_source::spec::CollectionSpec;
use hotrow_source::sqlite::config::Watch;
use hotrow_source::{postgres, sqlite};

use super::SourceConfig;
use super::problem::shown;
use super::reader::Section;
use super::resolve::{KIB, MIB, QUERY_KEYS_MAX, TIMEOUT, ms, s};

/// Longest name of a publication in bytes (PostgreSQL's NAMEDATALEN less one).
const PUBLICATION_BYTES_MAX: usize = 63;
/// What a bad URL is answered with, before anything of it is repeated.
const URL_FORMS: &str = "sqlite:shop.db or postgres://user@host/database";

/// `[source]` as read.
pub(super) struct Source {
    /// Missing when the URL was refused.
    engine: Option<Engine>,
    pub(super) reads_in_flight: usize,
    pub(super) query_keys: usize,
    pub(super) query_bytes: usize,
    read_timeout: Duration,
}

enum Engine {
    Sqlite { path: PathBuf, watch: Watch },
    Postgres(Postgres),
}

struct Postgres {
    url: String,
    feed_url: Option<String>,
    publication: String,
    connect_timeout: Duration,
    schema_poll: Duration,
}

pub(super) fn source(mut section: Section<'_>, max_batch: usize) -> Source {
    let engine = engine(&mut section);
    let merge = section.flag("merge", true);
    let reads_in_flight = section.count("reads_in_flight", 4, 1..=256);
    let query_keys = section.count("query_keys", 1_000, 1..=QUERY_KEYS_MAX);
    let query_bytes = section.size_in_memory("query_bytes", 8 * MIB, 64 * KIB..=1024 * MIB);
    let read_timeout = section.duration("read_timeout", s(2), ms(10)..=Duration::from_mins(10));
    if merge && query_keys < max_batch {
        section.refuse(
            "query_keys",
            format!(
                "must be at least limits.max_batch, for a batch is one query: {query_keys} is less than {max_batch}"
            ),
        );
    }
    section.finish();
    let query_keys = if merge { query_keys } else { 1 };
    Source { engine, reads_in_flight, query_keys, query_bytes, read_timeout }
}

/// Every key is read whatever the engine, so that all are known; those of the other engine are then refused.
fn engine(section: &mut Section<'_>) -> Option<Engine> {
    let url = section.text("url", "required", "sqlite: and a path, or a postgres: connection string");
    let watch = section.choice("watch", [("none", Watch::None), ("triggers", Watch::Triggers)]);
    let feed_url = section.text("feed_url", "url", "a postgres: connection string");
    let publication = section
        .text("publication", "\"hotrow\"", "1 to 63 bytes without NUL")
        .map_or_else(|| "hotrow".to_owned(), |text| text.value);
    let connect_timeout = section.duration("connect_timeout", s(5), TIMEOUT);
    let schema_poll = section.duration("schema_poll", s(1), ms(10)..=Duration::from_hours(1));
    let Some(url) = url else {
        if !section.has("url") {
            section.refuse("url", format!("is required; for instance {URL_FORMS}"));
        }
        return None;
    };
    let refuse_all = |names: &[&str], why: &str| {
        names.iter().filter(|name| section.has(name)).for_each(|name| section.refuse(name, why));
    };
    match scheme(&url.value) {
        Err(what) => {
            section.refuse("url", what);
            None
        }
        Ok(Scheme::Sqlite(rest)) => {
            let of_postgres = ["feed_url", "publication", "connect_timeout", "schema_poll"];
            refuse_all(&of_postgres, "is for postgres: databases; source.url names a file of SQLite");
            let path = sqlite_path(rest).map_err(|what| section.refuse("url", what)).ok()?;
            Some(Engine::Sqlite { path, watch })
        }
        Ok(Scheme::Postgres) => {
            refuse_all(&["watch"], "is for sqlite: databases; PostgreSQL is followed by its own change feed");
            if publication.is_empty() || publication.len() > PUBLICATION_BYTES_MAX || publication.contains('\0') {
                let what =
                    format!("must have 1 to {PUBLICATION_BYTES_MAX} bytes without NUL, not {}", shown(&publication));
                section.refuse("publication", what);
            }
            check_url(section, "url", &url.value);
            feed_url.iter().for_each(|text| check_url(section, "feed_url", &text.value));
            let feed_url = feed_url.map(|text| text.value);
            Some(Engine::Postgres(Postgres { url: url.value, feed_url, publication, connect_timeout, schema_poll }))
        }
    }
}

fn check_url(section: &Section<'_>, name: &str, url: &str) {
    if let Err(error) = postgres::config::check_url(url) {
        section.refuse(name, error);
    }
}

impl Source {
    /// Whether answers carry positions.
    pub(super) fn has_positions(&self) -> bool {
        !matches!(self.engine, Some(Engine::Sqlite { watch: Watch::None, .. }))
    }

    /// What the engine takes; `None` when the URL was refused.
    pub(super) fn with(self, collections: Vec<CollectionSpec>, max_staleness: Duration) -> Option<SourceConfig> {
        let Self { reads_in_flight, read_timeout, .. } = self;
        Some(match self.engine? {
            Engine::Sqlite { path, watch } => {
                SourceConfig::Sqlite(sqlite::config::Config { path, watch, reads_in_flight, read_timeout, collections })
            }
            Engine::Postgres(Postgres { url, feed_url, publication, connect_timeout, schema_poll }) => {
                SourceConfig::Postgres(postgres::config::Config {
                    url,
                    feed_url,
                    publication,
                    reads_in_flight,
                    read_timeout,
                    connect_timeout,
                    max_staleness,
                    schema_poll,
                    collections,
                })
            }
        })
    }
}

enum Scheme<'a> {
    /// With what follows the colon.
    Sqlite(&'a str),
    Postgres,
}

/// The URL may hold a password, so that no message repeats more than its scheme.
fn scheme(url: &str) -> Result<Scheme<'_>, String> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(format!("must begin with a scheme, for instance {URL_FORMS}; there is no colon in it"));
    };
    match scheme {
        "sqlite" => Ok(Scheme::Sqlite(rest)),
        "postgres" | "postgresql" => Ok(Scheme::Postgres),
        "mysql" | "mariadb" | "mongodb" | "mongodb+srv" => {
            Err(format!("{scheme}: is not in this build; it serves sqlite: and postgres:"))
        }
        _ => Err(format!("must be like {URL_FORMS}; the scheme {} is unknown", shown(scheme))),
    }
}

/// The file that `sqlite:FILE` names.
fn sqlite_path(rest: &str) -> Result<PathBuf, String> {
    // `sqlite:///var/shop.db` is how other tools write an absolute path.
    let path = match rest.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => return Err("has no host in it: write sqlite:relative.db or sqlite:/absolute.db".to_owned()),
        None => rest,
    };
    if path.is_empty() || path.ends_with('/') {
        return Err("must name a file after sqlite:, for instance sqlite:shop.db".to_owned());
    }
    if path == ":memory:" {
        return Err(":memory: cannot be shared with whoever writes it; name a file".to_owned());
    }
    if path.contains(['?', '#', '\0']) {
        return Err("must be sqlite: and a path alone; parameters (?, #) and NUL are not known here".to_owned());
    }
    Ok(PathBuf::from(path))
}
