//! Validation of the command line and the configuration; returns a plan.

use std::time::Duration;

use hotrow_cli::described::{DescribedCollection, DescribedEmbed, DescribedSource};
use hotrow_cli::transport_args::TransportArgs;
use hotrow_transport::target::Url;
use hotrow_transport::tls::HttpVersion;
use hotrow_verify::database::{Database, Reference, Table, Tables};
use hotrow_verify::family::CHILDREN;
use hotrow_verify::http::Target;
use hotrow_verify::plan::{Plan, TARGETS_MAX};
use hotrow_verify::record_schema::{
    AliasSchema, CHILD_KEY, ChildOrder, EmbeddedSchema, RecordSchema,
};
use hotrow_verify::row::{KeyType, VERSION};

use super::args::VerifyArgs;
use super::plan_error::{PlanError, invalid_option};
use super::{configuration, redis};

pub(super) fn resolve(args: &VerifyArgs) -> Result<Plan, PlanError> {
    let described = configuration::read(&args.config)?;
    let (spec, source) = collection(args.collection.as_deref(), &described.sources)?;
    let url = args.database.as_ref().unwrap_or(&source.url);
    let database = Database::parse(url).map_err(|what| invalid_option("database", what))?;
    if args.admins.len() > args.urls.len() {
        let what =
            format!("there are {} of them for {} times --url", args.admins.len(), args.urls.len());
        return Err(invalid_option("admin", what));
    }
    let redis_urls = redis::as_http(&args.redis)?;
    let all = args.urls.iter().chain(&args.balancers).chain(&args.admins).chain(&redis_urls);
    args.transport.check(all)?;
    let instances = DataTargets { transport: &args.transport, headers: args.transport.headers()? };
    let redis = redis::Options {
        urls: &args.redis,
        instances: args.urls.len(),
        allow_stale: described.redis_allow_stale,
    };
    let key_type = key_type(spec)?;
    let is_optional = matches!(database, Database::Mongodb(_));
    let alias = alias(spec, is_optional)?;
    let embedded = embedded(spec)?;
    let reference =
        |column: &String, key_type| Some(Reference { column: column.clone(), key_type });
    let children = spec.embed.first().map(|embed| Table {
        name: embed.table.clone(),
        key: CHILD_KEY.to_owned(),
        key_type: KeyType::Integer,
        reference: reference(&embed.on, key_type),
    });
    let key = spec.key[0].clone();
    let records = Table {
        name: spec.table.clone(),
        key: key.clone(),
        key_type,
        reference: alias.as_ref().and_then(|alias| reference(&alias.column, KeyType::Text)),
    };
    let collection = spec.name.clone();
    Ok(Plan {
        database,
        tables: Tables { records, children },
        schema: RecordSchema {
            other: other(spec, source),
            collection,
            key,
            key_type,
            alias,
            embedded,
            keys: args.keys,
        },
        max_staleness: Duration::from_millis(described.max_staleness_ms),
        batch_ids_max: described.batch_ids_max,
        instances: instances.data("url", &args.urls)?,
        balancers: instances.data("balancer", &args.balancers)?,
        admins: targets("admin", &args.admins, &args.transport, HttpVersion::Http1)?,
        redis: redis.targets(&args.transport, &instances.headers)?,
        admin_token: described.admin_token,
        keys: args.keys,
        rate: args.rate,
        writers: args.writers,
        readers: args.readers,
        read_rate: args.read_rate,
        duration: args.duration,
        timeout: args.timeout.max(Duration::from_millis(1)),
        seed: args.seed,
        skip: args.skip.iter().map(|skipped| skipped.rule()).collect(),
        create: args.create,
        reuse_table: args.reuse_table,
        keep_going: args.keep_going,
    })
}

/// Returns the collection to verify, and the source that it is read from.
fn collection<'a>(
    wanted: Option<&str>,
    sources: &'a [DescribedSource],
) -> Result<(&'a DescribedCollection, &'a DescribedSource), PlanError> {
    let all: Vec<_> = sources
        .iter()
        .flat_map(|source| source.collections.iter().map(move |spec| (spec, source)))
        .collect();
    match (wanted, &all[..]) {
        (Some(name), _) => {
            all.iter().find(|(spec, _)| spec.name == name).copied().ok_or_else(|| {
                let names: Vec<&str> = all.iter().map(|(spec, _)| spec.name.as_str()).collect();
                invalid_option(
                    "collection",
                    format!("there is no {name} in the configuration, only {}", names.join(", ")),
                )
            })
        }
        (None, [only]) => Ok(*only),
        (None, _) => Err(invalid_option(
            "collection",
            "must be given, because the configuration has several".to_owned(),
        )),
    }
}

/// Returns another collection that serves the same rows of the same source alone, for snapshots.
fn other(spec: &DescribedCollection, source: &DescribedSource) -> Option<String> {
    let is_plain = |one: &DescribedCollection| one.aliases.is_empty() && one.embed.is_empty();
    let same = |one: &DescribedCollection| {
        let DescribedCollection { table, key, key_types, .. } = spec;
        (&one.table, &one.key, &one.key_types) == (table, key, key_types)
    };
    let mut others = source.collections.iter().filter(|one| one.name != spec.name);
    let other = others.find(|one| is_plain(spec) && is_plain(one) && same(one));
    other.map(|one| one.name.clone())
}

fn unfit<T>(spec: &DescribedCollection, what: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError::Collection { name: spec.name.clone(), what: what.into() })
}

fn key_type(spec: &DescribedCollection) -> Result<KeyType, PlanError> {
    if spec.key.len() != 1 {
        return unfit(spec, "must have one key column, an integer or a text, to be verified");
    }
    match spec.key_types.first().map(String::as_str) {
        None | Some("integer") => Ok(KeyType::Integer),
        Some("text") => Ok(KeyType::Text),
        Some(_) => {
            unfit(spec, "must have an integer or a text as its key (key_type) to be verified")
        }
    }
}

/// Returns the alias of a collection. `is_optional`: a record without a value lacks its member.
fn alias(spec: &DescribedCollection, is_optional: bool) -> Result<Option<AliasSchema>, PlanError> {
    match spec.aliases.as_slice() {
        [] => Ok(None),
        [(name, columns)] if columns.len() == 1 => {
            let (name, column) = (name.clone(), columns[0].clone());
            Ok(Some(AliasSchema { name, column, is_optional }))
        }
        _ => unfit(spec, "may have one alias, of one text column, to be verified"),
    }
}

/// Returns the embedded member of a collection.
fn embedded(spec: &DescribedCollection) -> Result<Option<EmbeddedSchema>, PlanError> {
    let embed = match spec.embed.as_slice() {
        [] => return Ok(None),
        [embed] => embed,
        _ => return unfit(spec, "may have one embedded member to be verified"),
    };
    let DescribedEmbed { name, on, order_by, limit, .. } = embed;
    if *limit < CHILDREN {
        let what = format!("must embed at least {CHILDREN} children (limit) to be verified, not");
        return unfit(spec, format!("{what} {limit}"));
    }
    let mut order = Vec::new();
    for (column, is_descending) in order_by {
        let is_by_version = column == VERSION;
        if !is_by_version && column != CHILD_KEY {
            let what = format!("must order children by {CHILD_KEY} or {VERSION} to be verified,");
            return unfit(spec, format!("{what} not by {column}"));
        }
        order.push(ChildOrder { is_by_version, is_descending: *is_descending });
    }
    Ok(Some(EmbeddedSchema { member: name.clone(), on: on.clone(), order }))
}

/// What requests to the data API have in common. The admin API gets none of it but TLS: it has a
/// token of its own.
struct DataTargets<'a> {
    transport: &'a TransportArgs,
    headers: Vec<(String, String)>,
}

impl DataTargets<'_> {
    fn data(&self, option: &'static str, urls: &[String]) -> Result<Vec<Target>, PlanError> {
        let version = self.transport.version();
        let add_headers = |target: Target| {
            target
                .with_version(version)
                .with_headers(&self.headers)
                .map_err(|what| invalid_option("header", what))
        };
        targets(option, urls, self.transport, version)?.into_iter().map(add_headers).collect()
    }
}

fn targets(
    option: &'static str,
    urls: &[String],
    transport: &TransportArgs,
    version: HttpVersion,
) -> Result<Vec<Target>, PlanError> {
    if urls.len() > TARGETS_MAX {
        return Err(invalid_option(option, format!("may be given at most {TARGETS_MAX} times")));
    }
    let target = |text: &String| {
        let url = Url::parse(text).map_err(|what| invalid_option(option, what.to_string()))?;
        let tls = transport.tls(&url, version)?;
        Target::new(text, &url, tls)
            .map_err(|what| invalid_option(option, format!("{text} {what}")))
    };
    urls.iter().map(target).collect()
}
