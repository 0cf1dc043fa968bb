//! From the command line and the configuration to a plan.

use std::time::Duration;

use hotrow_source::spec::{CollectionSpec, KeyTypeName};
use hotrow_verify::database::{Database, Table};
use hotrow_verify::http::Target;
use hotrow_verify::plan::{Plan, TARGETS_MAX};
use hotrow_verify::row::KeyType;

use super::args::VerifyArgs;
use crate::config::{self, ConfigError, Overrides, Resolved, SourceConfig};

/// Why the command line and the configuration make no plan.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A value of the command line.
    #[error("--{option}: {what}")]
    Option {
        /// Which.
        option: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// The collection cannot be used.
    #[error("the collection {name} {what}")]
    Collection {
        /// Its name.
        name: String,
        /// Why.
        what: String,
    },
}

pub(super) fn resolve(args: &VerifyArgs) -> Result<Plan, Refused> {
    let resolved = config::load(&args.config, &Overrides::default())?;
    let (database, collections) = source(&resolved);
    let database = match &args.database {
        Some(url) => Database::parse(url).map_err(|what| refused("database", what))?,
        None => database,
    };
    let spec = collection(args.collection.as_deref(), collections)?;
    if args.admins.len() > args.urls.len() {
        let what = format!("there are {} of them for {} times --url", args.admins.len(), args.urls.len());
        return Err(refused("admin", what));
    }
    Ok(Plan {
        database,
        table: table(spec)?,
        collection: spec.name.clone(),
        max_staleness: resolved.cache.max_staleness,
        batch_ids_max: resolved.server.limits.max_batch,
        instances: targets("url", &args.urls)?,
        balancers: targets("balancer", &args.balancers)?,
        admins: targets("admin", &args.admins)?,
        admin_token: resolved.server.admin_token.clone(),
        keys: args.keys,
        rate: args.rate,
        writers: args.writers,
        readers: args.readers,
        duration: args.duration,
        timeout: args.timeout.max(Duration::from_millis(1)),
        seed: args.seed,
        create: args.create,
        adopt: args.adopt,
        keep_going: args.keep_going,
    })
}

/// The database of the configuration, as the checker knows databases, and what is served of it.
fn source(resolved: &Resolved) -> (Database, &[CollectionSpec]) {
    match &resolved.source {
        SourceConfig::Sqlite(source) => (Database::Sqlite(source.path.clone()), &source.collections),
        SourceConfig::Postgres(source) => (Database::Postgres(source.url.clone()), &source.collections),
        SourceConfig::Mysql(source) => (Database::Mysql(source.url.clone()), &source.collections),
        SourceConfig::Mongodb(source) => (Database::Mongodb(source.url.clone()), &source.collections),
    }
}

fn collection<'a>(wanted: Option<&str>, all: &'a [CollectionSpec]) -> Result<&'a CollectionSpec, Refused> {
    match (wanted, all) {
        (Some(name), _) => all.iter().find(|spec| spec.name == name).ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|spec| spec.name.as_str()).collect();
            refused("collection", format!("there is no {name} in the configuration, only {}", names.join(", ")))
        }),
        (None, [only]) => Ok(only),
        (None, _) => Err(refused("collection", "must be given, for the configuration has several".to_owned())),
    }
}

fn table(spec: &CollectionSpec) -> Result<Table, Refused> {
    let wrong = |what: &str| Err(Refused::Collection { name: spec.name.clone(), what: what.to_owned() });
    let [key] = spec.key.as_slice() else {
        return wrong("must have one key column, an integer or a text, to be verified");
    };
    let key_type = match spec.key_types.first() {
        None | Some(KeyTypeName::Integer) => KeyType::Integer,
        Some(KeyTypeName::Text) => KeyType::Text,
        Some(_) => return wrong("must have an integer or a text as its key (key_type) to be verified"),
    };
    Ok(Table { name: spec.table.clone(), key: key.clone(), key_type })
}

fn targets(option: &'static str, urls: &[String]) -> Result<Vec<Target>, Refused> {
    if urls.len() > TARGETS_MAX {
        return Err(refused(option, format!("may be given at most {TARGETS_MAX} times")));
    }
    urls.iter().map(|url| Target::parse(url).map_err(|what| refused(option, format!("{url} {what}")))).collect()
}

fn refused(option: &'static str, what: String) -> Refused {
    Refused::Option { option, what }
}
