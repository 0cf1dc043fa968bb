//! `[sources.NAME]`, or `[source]` for the one named `default`: the database, and how it is read
//! and followed.
//!
//! Reference `configuration`: `[source]`
//!
//! The database. `[sources.NAME]` instead names it for metrics and `/status`, and there may be
//! [several](configuration.md#several-databases), up to 16; `[source]` is short for
//! `[sources.default]`.
//!
//! - `url`: [SQLite](sqlite.md), [PostgreSQL](postgres.md#connections), [MySQL,
//!   MariaDB](mysql.md#connection-string), [MongoDB](mongodb.md#setup).
//! - `feed`: `none`: [TTL alone](consistency.md#when-the-feed-is-behind); `cache.ttl` or
//!   the `ttl` of each collection must be set. Addresses of NATS servers, with commas between them:
//!   changes come from a [hub](hub.md); PostgreSQL, MariaDB, MySQL.
//! - `watch`: SQLite: [what a change makes stale](sqlite.md#setup).
//! - `feed_url`: Not SQLite: the same server for the feed, when `url` is a pooler or unprivileged.
//! - `read_urls`: PostgreSQL: [standbys](replicas.md) that answer reads, at most 16.
//! - `publication`: PostgreSQL: created if missing and permitted.
//! - `server_id`: MySQL, MariaDB: replica number, unique among replicas and instances.
//! - `json`: MongoDB: [form of values](mongodb.md#values).
//! - `connect_timeout`: Not SQLite: one host, with TLS and authentication.
//! - `schema_poll`: Not SQLite: maximum age of a table's shape; polled four times as often.
//! - `merge`: `false`: one query per key, to compare.
//! - `reads_in_flight`: Queries at once, of all collections: threads (SQLite) or connections.
//! - `query_keys`: Keys in one query. At least `limits.max_batch`, unless `merge = false`.
//! - `query_bytes`: Bytes of keys in one query.
//! - `slow_query`: Queries that take so long are [logged](logs.md#slow-queries), at most one line a
//!   second. `"0s"`: none.
//! - `strict_looks_per_s`: Looks at the log's end for [strict
//!   answers](consistency.md#strict-answers), of this instance.
//! - `read_timeout`: One query, waits for locks (SQLite) or a connection included.
#![cfg_attr(
    not(all(feature = "mongodb", feature = "mysql", feature = "postgres")),
    allow(
        dead_code,
        unused_variables,
        reason = "keys of an engine that the build lacks are known"
    )
)]

use std::path::PathBuf;
use std::time::Duration;

use hotrow_cache::config::{InvalidationMode, SourceSettings};
use hotrow_config::Source as ServedSource;
use hotrow_source::spec::{CollectionConfig, Follow, ServerConfig};
#[cfg(feature = "mongodb")]
use hotrow_source_mongodb::{self as mongodb, config::JsonForm};
#[cfg(feature = "mysql")]
use hotrow_source_mysql as mysql;
#[cfg(feature = "postgres")]
use hotrow_source_postgres as postgres;
use hotrow_source_sqlite::{self as sqlite, config::Watch};

use super::SourceConfig;
use super::collection_context::SourceTraits;
use super::hub::check_servers;
use super::names::check_name;
use super::reader::Section;
use super::scheme::{Scheme, URL_FORMS, scheme, sqlite_path};
use super::units::{KIB, MIB, QUERY_KEYS_MAX, TIMEOUT, ms, s};

/// Name of the source in `[source]`.
pub(super) const DEFAULT_NAME: &str = ServedSource::DEFAULT_NAME;
/// Longest name of a publication in bytes (PostgreSQL's NAMEDATALEN less one).
const PUBLICATION_BYTES_MAX: usize = 63;
/// Most standbys of one database.
const STANDBYS_MAX: usize = 16;
/// Keys of `[source]` for some engines only, with these engines in words.
const ENGINE_SPECIFIC_KEYS: [(&str, &[Scheme], &str); 8] = [
    ("watch", &[Scheme::Sqlite], "sqlite:"),
    ("feed_url", &SERVERS, "postgres:, mysql: and mongodb:"),
    ("read_urls", &[Scheme::Postgres], "postgres:"),
    ("publication", &[Scheme::Postgres], "postgres:"),
    ("server_id", &[Scheme::Mysql], "mysql:"),
    ("json", &[Scheme::Mongodb], "mongodb:"),
    ("connect_timeout", &SERVERS, "postgres:, mysql: and mongodb:"),
    ("schema_poll", &SERVERS, "postgres:, mysql: and mongodb:"),
];
/// Reason for which no other engine reads replicas.
const UNPROVEN: &str = ", where a read of a replica does not prove which of the delivered changes \
    it has seen";
const SERVERS: [Scheme; 3] = [Scheme::Postgres, Scheme::Mysql, Scheme::Mongodb];

pub(super) struct Source {
    /// `None` if the URL was refused.
    engine: Option<Engine>,
    pub(super) follow: Follow,
    /// Addresses of the change hub.
    pub(super) hub: Option<String>,
    reads_in_flight: usize,
    query_keys: usize,
    query_bytes: usize,
    read_timeout: Duration,
    /// Duration from which a query is slow; zero: none is.
    pub(super) slow_query: Duration,
    pub(super) strict_looks_per_s: u32,
}

enum Engine {
    Sqlite {
        path: PathBuf,
        watch: Watch,
    },
    #[cfg(feature = "postgres")]
    Postgres {
        server: Server,
        publication: String,
    },
    #[cfg(feature = "mysql")]
    Mysql {
        server: Server,
        server_id: Option<u32>,
    },
    #[cfg(feature = "mongodb")]
    Mongodb {
        server: Server,
        json: JsonForm,
    },
}

/// Settings of every database server.
struct Server {
    url: String,
    feed_url: Option<String>,
    read_urls: Vec<String>,
    connect_timeout: Duration,
    schema_poll: Duration,
}

/// Most sources of one process: each has threads, connections and a feed of its own.
pub(crate) const SOURCES_MAX: usize = 16;

/// Returns the tables of the sources with their names: at least one, which may be absent.
/// `[source]` is short for `[sources.default]`.
pub(super) fn named_sections<'a>(root: &mut Section<'a>) -> Vec<(String, Section<'a>)> {
    let unnamed = root.section("source");
    let mut sources = root.section("sources");
    let named = sources.sections();
    let count = named.len() + usize::from(unnamed.is_present());
    if count > SOURCES_MAX {
        sources.refuse_whole(&format!("there may be at most {SOURCES_MAX} sources, not {count}"));
    }
    if unnamed.is_present()
        && let Some((_, section)) = named.iter().find(|(name, _)| name == DEFAULT_NAME)
    {
        section.refuse_whole(
            "names the same source as [source], which is short for it; keep one of the two",
        );
    }
    for (name, section) in &named {
        check_name(section, "a source", name);
    }
    let has_unnamed = unnamed.is_present() || named.is_empty();
    let first = has_unnamed.then(|| (DEFAULT_NAME.to_owned(), unnamed));
    first.into_iter().chain(named).collect()
}

pub(super) fn source(mut section: Section<'_>, max_batch: usize) -> Source {
    let (follow, hub) = feed(&mut section);
    let engine = engine(&mut section, follow);
    let merge = section.flag("merge", true);
    let reads_in_flight = section.count("reads_in_flight", 4, 1..=256);
    let query_keys = section.count("query_keys", 1_000, 1..=QUERY_KEYS_MAX);
    let query_bytes = section.size_in_memory("query_bytes", 8 * MIB, 64 * KIB..=1024 * MIB);
    let read_timeout = section.duration("read_timeout", s(2), ms(10)..=Duration::from_mins(10));
    let slow_query = section.duration("slow_query", s(1), ms(0)..=Duration::from_mins(10));
    let looks = match engine {
        #[cfg(feature = "mongodb")]
        Some(Engine::Mongodb { .. }) => 50,
        _ => 1_000,
    };
    let looks = section.count_or("strict_looks_per_s", looks, "1000; MongoDB: 50", 1..=10_000);
    if merge && query_keys < max_batch {
        section.refuse(
            "query_keys",
            format!(
                "must be at least limits.max_batch, because a batch is one query: {query_keys} is \
                 less than {max_batch}"
            ),
        );
    }
    section.finish();
    let query_keys = if merge { query_keys } else { 1 };
    Source {
        engine,
        follow,
        hub,
        reads_in_flight,
        query_keys,
        query_bytes,
        read_timeout,
        slow_query,
        strict_looks_per_s: looks as u32,
    }
}

/// Reads where changes come from, and the addresses of the hub if it is one.
fn feed(section: &mut Section<'_>) -> (Follow, Option<String>) {
    let range = "\"changes\", \"none\" or addresses of NATS";
    let feed = section.text("feed", "\"changes\"", range).map(|text| text.value);
    match feed.as_deref() {
        None | Some("changes") => (Follow::Changes, None),
        Some("none") => (Follow::Nothing, None),
        Some(servers) => {
            if let Err(what) = check_servers(servers) {
                section.refuse("feed", what);
                return (Follow::Changes, None);
            }
            (Follow::Hub, feed)
        }
    }
}

/// Reads the keys of all engines, so that all are known, and refuses those of other engines than
/// the URL's.
fn engine(section: &mut Section<'_>, follow: Follow) -> Option<Engine> {
    let url = section.text("url", "required", "a path after sqlite:, or a connection string");
    let watch = section.choice("watch", [("none", Watch::None), ("triggers", Watch::Triggers)]);
    let feed_url = section.text("feed_url", "url", "a connection string").map(|text| text.value);
    let read_urls = section.texts("read_urls", "none", "connection strings").unwrap_or_default();
    let publication = section
        .text("publication", "\"hotrow\"", "1 to 63 bytes without NUL")
        .map_or_else(|| "hotrow".to_owned(), |text| text.value);
    let server_id = section.count_or("server_id", 0, "random", 1..=u32::MAX as usize);
    let is_relaxed = section.choice("json", [("plain", false), ("relaxed", true)]);
    let connect_timeout = section.duration("connect_timeout", s(5), TIMEOUT);
    let schema_poll = section.duration("schema_poll", s(1), ms(10)..=Duration::from_hours(1));
    let Some(url) = url.map(|text| text.value) else {
        if !section.has("url") {
            section.refuse("url", format!("is required; for instance {URL_FORMS}"));
        }
        return None;
    };
    let (scheme, rest) = scheme(&url).map_err(|what| section.refuse("url", what)).ok()?;
    if let Some(feature) = scheme.missing_feature() {
        section.refuse(
            "url",
            format!(
                "names a database that this build of Hotrow cannot read; \
                 build it with --features {feature}"
            ),
        );
        return None;
    }
    for (name, _, engines) in
        ENGINE_SPECIFIC_KEYS.iter().filter(|(_, known_to, _)| !known_to.contains(&scheme))
    {
        if section.has(name) {
            let reason = if *name == "read_urls" { UNPROVEN } else { "" };
            let what = format!("is for {engines} databases, and url names another{reason}");
            section.refuse(name, what);
        }
    }
    let of_a_feed = ["watch", "feed_url", "read_urls", "publication", "server_id"];
    for name in of_a_feed.into_iter().filter(|name| follow == Follow::Nothing && section.has(name))
    {
        section.refuse(name, "has no meaning with source.feed = \"none\"");
    }
    if follow == Follow::Hub && section.has("read_urls") {
        let what = "is not supported with a change hub yet: its messages do not say where in the \
                    log a commit is, so that no standby could prove what it has seen";
        section.refuse("read_urls", what);
    }
    if follow == Follow::Hub
        && let Some(what) = scheme.no_hub()
    {
        section.refuse("feed", what);
    }
    if scheme != Scheme::Sqlite {
        check_url(section, scheme, "url", &url);
        feed_url.iter().for_each(|feed_url| check_url(section, scheme, "feed_url", feed_url));
        read_urls.iter().for_each(|url| check_url(section, scheme, "read_urls", url));
        if read_urls.len() > STANDBYS_MAX {
            let what =
                format!("must name at most {STANDBYS_MAX} standbys, not {}", read_urls.len());
            section.refuse("read_urls", what);
        }
    }
    match scheme {
        Scheme::Sqlite => {
            let path = sqlite_path(rest).map_err(|what| section.refuse("url", what)).ok()?;
            Some(Engine::Sqlite { path, watch })
        }
        #[cfg(feature = "postgres")]
        Scheme::Postgres => {
            if publication.is_empty()
                || publication.len() > PUBLICATION_BYTES_MAX
                || publication.contains('\0')
            {
                let what = format!(
                    "must have 1 to {PUBLICATION_BYTES_MAX} bytes without NUL, not {}",
                    super::problem::shown(&publication)
                );
                section.refuse("publication", what);
            }
            Some(Engine::Postgres {
                server: Server { url, feed_url, read_urls, connect_timeout, schema_poll },
                publication,
            })
        }
        #[cfg(feature = "mysql")]
        Scheme::Mysql => {
            let server_id = u32::try_from(server_id).ok().filter(|id| *id != 0);
            Some(Engine::Mysql {
                server: Server { url, feed_url, read_urls, connect_timeout, schema_poll },
                server_id,
            })
        }
        #[cfg(feature = "mongodb")]
        Scheme::Mongodb => Some(Engine::Mongodb {
            server: Server { url, feed_url, read_urls, connect_timeout, schema_poll },
            json: if is_relaxed { JsonForm::RelaxedExtended } else { JsonForm::Plain },
        }),
        #[cfg(not(all(feature = "mongodb", feature = "mysql", feature = "postgres")))]
        _ => None,
    }
}

fn check_url(section: &Section<'_>, scheme: Scheme, name: &str, url: &str) {
    let checked: Result<(), String> = match scheme {
        Scheme::Sqlite => Ok(()),
        #[cfg(feature = "postgres")]
        Scheme::Postgres => postgres::config::check_url(url).map_err(|error| error.to_string()),
        #[cfg(feature = "mysql")]
        Scheme::Mysql => mysql::config::check_url(url).map_err(|error| error.to_string()),
        #[cfg(feature = "mongodb")]
        Scheme::Mongodb => mongodb::config::check_url(url).map_err(|error| error.to_string()),
        #[cfg(not(all(feature = "mongodb", feature = "mysql", feature = "postgres")))]
        _ => Ok(()),
    };
    if let Err(error) = checked {
        section.refuse(name, error);
    }
}

impl Source {
    /// Returns the properties that the rules for collections depend on.
    pub(super) fn source_traits<'a>(
        &self,
        name: &'a str,
        stale_by: Option<&'static str>,
    ) -> SourceTraits<'a> {
        let is_listed = !matches!(self.engine, Some(Engine::Sqlite { watch: Watch::None, .. }));
        SourceTraits {
            name,
            stale_by,
            lacks_embedding: match self.engine {
                #[cfg(feature = "mongodb")]
                Some(Engine::Mongodb { .. }) => Some(
                    "is not supported for MongoDB; serve the children as a collection of their own",
                ),
                _ => None,
            },
            has_positions: self.follow != Follow::Nothing && is_listed,
            is_behind_hub: self.follow == Follow::Hub,
            default_key: match self.engine {
                #[cfg(feature = "mongodb")]
                Some(Engine::Mongodb { .. }) => Some("_id"),
                _ => None,
            },
        }
    }

    /// Returns whether relays of its database may share a replication slot.
    pub(super) fn has_slots(&self) -> bool {
        match self.engine {
            #[cfg(feature = "postgres")]
            Some(Engine::Postgres { .. }) => true,
            _ => false,
        }
    }

    /// Returns the settings of its reads and of its feed for the cache.
    pub(super) fn cache_settings(&self) -> SourceSettings {
        SourceSettings {
            invalidation_mode: match self.follow {
                Follow::Changes | Follow::Hub => InvalidationMode::Feed,
                Follow::Nothing => InvalidationMode::TtlOnly,
            },
            reads_in_flight: self.reads_in_flight,
            query_keys: self.query_keys,
            query_bytes: self.query_bytes,
        }
    }

    /// Builds the engine's settings; `None` if the URL was refused.
    pub(super) fn with(
        self,
        collections: Vec<CollectionConfig>,
        max_staleness: Duration,
    ) -> Option<SourceConfig> {
        let Self { follow, reads_in_flight, read_timeout, .. } = self;
        let of_server = |server: Server, collections| ServerConfig {
            url: server.url,
            feed_url: server.feed_url,
            read_urls: server.read_urls,
            follow,
            reads_in_flight,
            read_timeout,
            connect_timeout: server.connect_timeout,
            max_staleness,
            schema_poll: server.schema_poll,
            collections,
        };
        Some(match self.engine? {
            Engine::Sqlite { path, watch } => {
                // Without a feed nothing is added to the database.
                let watch = if follow == Follow::Nothing { Watch::None } else { watch };
                SourceConfig::Sqlite(sqlite::config::Config {
                    path,
                    watch,
                    is_trial: false,
                    reads_in_flight,
                    read_timeout,
                    collections,
                })
            }
            #[cfg(feature = "postgres")]
            Engine::Postgres { server, publication } => {
                SourceConfig::Postgres(postgres::config::Config {
                    server: of_server(server, collections),
                    publication,
                    // Of a relay only, which sets it.
                    completes_publication: true,
                    is_trial: false,
                    slot: None,
                })
            }
            #[cfg(feature = "mysql")]
            Engine::Mysql { server, server_id } => SourceConfig::Mysql(mysql::config::Config {
                server: of_server(server, collections),
                server_id,
                resume_rules: mysql::resume_rules::ResumeRules::default(),
                embedded_rules: mysql::embedded_rules::EmbeddedRules::default(),
            }),
            #[cfg(feature = "mongodb")]
            Engine::Mongodb { server, json } => SourceConfig::Mongodb(mongodb::config::Config {
                server: of_server(server, collections),
                json,
            }),
        })
    }
}
