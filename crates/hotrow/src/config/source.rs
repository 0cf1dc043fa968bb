//! `[source]`: which database, and how it is read and followed.

use std::path::PathBuf;
use std::time::Duration;

use hotrow_source::mongodb::config::JsonForm;
use hotrow_source::spec::{CollectionSpec, Follow};
use hotrow_source::sqlite::config::Watch;
use hotrow_source::{mongodb, mysql, postgres, sqlite};

use super::SourceConfig;
use super::collections::OfSource;
use super::problem::shown;
use super::reader::Section;
use super::resolve::{KIB, MIB, QUERY_KEYS_MAX, TIMEOUT, ms, s};

/// Longest name of a publication in bytes (PostgreSQL's NAMEDATALEN less one).
const PUBLICATION_BYTES_MAX: usize = 63;
/// What a bad URL is answered with, before anything of it is repeated.
const URL_FORMS: &str =
    "sqlite:shop.db, postgres://user@host/database, mysql://user@host/database or mongodb://host/database";
/// Keys of `[source]` that only some engines know, with what they are for.
const OF_ONE_ENGINE: [(&str, &[Scheme], &str); 7] = [
    ("watch", &[Scheme::Sqlite], "sqlite:"),
    ("feed_url", &SERVERS, "postgres:, mysql: and mongodb:"),
    ("publication", &[Scheme::Postgres], "postgres:"),
    ("server_id", &[Scheme::Mysql], "mysql:"),
    ("json", &[Scheme::Mongodb], "mongodb:"),
    ("connect_timeout", &SERVERS, "postgres:, mysql: and mongodb:"),
    ("schema_poll", &SERVERS, "postgres:, mysql: and mongodb:"),
];
const SERVERS: [Scheme; 3] = [Scheme::Postgres, Scheme::Mysql, Scheme::Mongodb];

/// `[source]` as read.
pub(super) struct Source {
    /// Missing when the URL was refused.
    engine: Option<Engine>,
    pub(super) follow: Follow,
    pub(super) reads_in_flight: usize,
    pub(super) query_keys: usize,
    pub(super) query_bytes: usize,
    read_timeout: Duration,
}

enum Engine {
    Sqlite { path: PathBuf, watch: Watch },
    Postgres { server: Server, publication: String },
    Mysql { server: Server, server_id: Option<u32> },
    Mongodb { server: Server, json: JsonForm },
}

/// What all databases that are reached over a network have in common.
struct Server {
    url: String,
    feed_url: Option<String>,
    connect_timeout: Duration,
    schema_poll: Duration,
}

pub(super) fn source(mut section: Section<'_>, max_batch: usize) -> Source {
    let follow = section.choice("feed", [("changes", Follow::Changes), ("none", Follow::Nothing)]);
    let engine = engine(&mut section, follow);
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
    Source { engine, follow, reads_in_flight, query_keys, query_bytes, read_timeout }
}

/// Every key is read whatever the engine, so that all are known; those of other engines are then refused.
fn engine(section: &mut Section<'_>, follow: Follow) -> Option<Engine> {
    let url = section.text("url", "required", "a path after sqlite:, or a connection string");
    let watch = section.choice("watch", [("none", Watch::None), ("triggers", Watch::Triggers)]);
    let feed_url = section.text("feed_url", "url", "a connection string").map(|text| text.value);
    let publication = section
        .text("publication", "\"hotrow\"", "1 to 63 bytes without NUL")
        .map_or_else(|| "hotrow".to_owned(), |text| text.value);
    let server_id = section.count_or("server_id", (0, "random"), 1..=u32::MAX as usize);
    let json = section.choice("json", [("plain", JsonForm::Plain), ("relaxed", JsonForm::RelaxedExtended)]);
    let connect_timeout = section.duration("connect_timeout", s(5), TIMEOUT);
    let schema_poll = section.duration("schema_poll", s(1), ms(10)..=Duration::from_hours(1));
    let Some(url) = url.map(|text| text.value) else {
        if !section.has("url") {
            section.refuse("url", format!("is required; for instance {URL_FORMS}"));
        }
        return None;
    };
    let (scheme, rest) = scheme(&url).map_err(|what| section.refuse("url", what)).ok()?;
    for (name, _, engines) in OF_ONE_ENGINE.iter().filter(|(_, known_to, _)| !known_to.contains(&scheme)) {
        if section.has(name) {
            section.refuse(name, format!("is for {engines} databases, and source.url names another"));
        }
    }
    let of_a_feed = ["watch", "feed_url", "publication", "server_id"];
    for name in of_a_feed.into_iter().filter(|name| follow == Follow::Nothing && section.has(name)) {
        section.refuse(name, "has no meaning with source.feed = \"none\"");
    }
    if scheme != Scheme::Sqlite {
        check_url(section, scheme, "url", &url);
        feed_url.iter().for_each(|feed_url| check_url(section, scheme, "feed_url", feed_url));
    }
    match scheme {
        Scheme::Sqlite => {
            let path = sqlite_path(rest).map_err(|what| section.refuse("url", what)).ok()?;
            Some(Engine::Sqlite { path, watch })
        }
        Scheme::Postgres => {
            if publication.is_empty() || publication.len() > PUBLICATION_BYTES_MAX || publication.contains('\0') {
                let what =
                    format!("must have 1 to {PUBLICATION_BYTES_MAX} bytes without NUL, not {}", shown(&publication));
                section.refuse("publication", what);
            }
            Some(Engine::Postgres { server: Server { url, feed_url, connect_timeout, schema_poll }, publication })
        }
        Scheme::Mysql => {
            let server_id = u32::try_from(server_id).ok().filter(|id| *id != 0);
            Some(Engine::Mysql { server: Server { url, feed_url, connect_timeout, schema_poll }, server_id })
        }
        Scheme::Mongodb => {
            Some(Engine::Mongodb { server: Server { url, feed_url, connect_timeout, schema_poll }, json })
        }
    }
}

fn check_url(section: &Section<'_>, scheme: Scheme, name: &str, url: &str) {
    let checked = match scheme {
        Scheme::Sqlite => Ok(()),
        Scheme::Postgres => postgres::config::check_url(url).map_err(|error| error.to_string()),
        Scheme::Mysql => mysql::config::check_url(url).map_err(|error| error.to_string()),
        Scheme::Mongodb => mongodb::config::check_url(url).map_err(|error| error.to_string()),
    };
    if let Err(error) = checked {
        section.refuse(name, error);
    }
}

impl Source {
    /// What the rules for collections must know.
    pub(super) fn of_source(&self) -> OfSource {
        let is_listed = !matches!(self.engine, Some(Engine::Sqlite { watch: Watch::None, .. }));
        OfSource {
            has_positions: self.follow == Follow::Changes && is_listed,
            default_key: if matches!(self.engine, Some(Engine::Mongodb { .. })) { "_id" } else { "id" },
        }
    }

    /// What the engine takes; `None` when the URL was refused.
    pub(super) fn with(self, collections: Vec<CollectionSpec>, max_staleness: Duration) -> Option<SourceConfig> {
        let Self { follow, reads_in_flight, read_timeout, .. } = self;
        Some(match self.engine? {
            Engine::Sqlite { path, watch } => {
                // Without a feed nothing is added to the database; `Upkeep::TtlOnly` keeps the flushes away.
                let watch = if follow == Follow::Nothing { Watch::None } else { watch };
                SourceConfig::Sqlite(sqlite::config::Config { path, watch, reads_in_flight, read_timeout, collections })
            }
            Engine::Postgres { server: Server { url, feed_url, connect_timeout, schema_poll }, publication } => {
                SourceConfig::Postgres(postgres::config::Config {
                    url,
                    feed_url,
                    follow,
                    publication,
                    reads_in_flight,
                    read_timeout,
                    connect_timeout,
                    max_staleness,
                    schema_poll,
                    collections,
                })
            }
            Engine::Mysql { server: Server { url, feed_url, connect_timeout, schema_poll }, server_id } => {
                SourceConfig::Mysql(mysql::config::Config {
                    url,
                    feed_url,
                    follow,
                    server_id,
                    reads_in_flight,
                    read_timeout,
                    connect_timeout,
                    max_staleness,
                    schema_poll,
                    collections,
                })
            }
            Engine::Mongodb { server: Server { url, feed_url, connect_timeout, schema_poll }, json } => {
                SourceConfig::Mongodb(mongodb::config::Config {
                    url,
                    feed_url,
                    follow,
                    json,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Sqlite,
    Postgres,
    Mysql,
    Mongodb,
}

/// The database's kind and what follows the colon. The URL may hold a password, so that no message repeats more than its
/// scheme.
fn scheme(url: &str) -> Result<(Scheme, &str), String> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(format!("must begin with a scheme, for instance {URL_FORMS}; there is no colon in it"));
    };
    let known = match scheme {
        "sqlite" => Scheme::Sqlite,
        "postgres" | "postgresql" => Scheme::Postgres,
        "mysql" | "mariadb" => Scheme::Mysql,
        "mongodb" | "mongodb+srv" => Scheme::Mongodb,
        _ => return Err(format!("must be like {URL_FORMS}; the scheme {} is unknown", shown(scheme))),
    };
    Ok((known, rest))
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
