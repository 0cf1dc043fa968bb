//! `hotrow describe`: the resolved configuration for `hotrow-lab verify`, which knows no
//! configuration file. Hidden, because what it prints holds the secrets of the file.

use std::path::PathBuf;

use clap::Args;
use hotrow_cli::described::{Described, DescribedCollection, DescribedEmbed, DescribedSource};
use hotrow_cli::output::print_line;
use hotrow_source::spec::{CollectionConfig, EmbedConfig};

use crate::config::{Overrides, Resolved, SourceConfig};
use crate::init::auto::{self, AutoError};

/// Arguments of `describe`.
#[derive(Debug, Args)]
pub struct DescribeArgs {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Prints the configuration as one line of JSON.
///
/// # Errors
/// Returns what is wrong with the file, or with the catalogue that it refers to.
pub fn describe(args: &DescribeArgs) -> Result<(), AutoError> {
    let resolved = auto::load(&args.config, &Overrides::default(), None)?.resolved;
    let described = serde_json::to_string(&described(&resolved)).unwrap_or_default();
    print_line(std::io::stdout(), &described);
    Ok(())
}

fn described(resolved: &Resolved) -> Described {
    Described {
        sources: resolved.sources.iter().map(source).collect(),
        max_staleness_ms: resolved.cache.max_staleness.as_millis().try_into().unwrap_or(u64::MAX),
        batch_ids_max: resolved.server.limits.max_batch,
        admin_token: resolved.server.admin_token.clone(),
        redis_allow_stale: resolved
            .server
            .transport
            .redis
            .as_ref()
            .is_some_and(|redis| redis.allow_stale),
    }
}

fn source(source: &SourceConfig) -> DescribedSource {
    let url = match source {
        SourceConfig::Sqlite(source) => format!("sqlite:{}", source.path.display()),
        #[cfg(feature = "postgres")]
        SourceConfig::Postgres(source) => source.server.url.clone(),
        #[cfg(feature = "mysql")]
        SourceConfig::Mysql(source) => source.server.url.clone(),
        #[cfg(feature = "mongodb")]
        SourceConfig::Mongodb(source) => source.server.url.clone(),
    };
    let all = source.collections();
    let records = all.iter().filter(|collection| !collection.is_alias);
    DescribedSource { url, collections: records.map(|records| collection(records, all)).collect() }
}

fn collection(records: &CollectionConfig, all: &[CollectionConfig]) -> DescribedCollection {
    let path = format!("{}/by/", records.name);
    let alias = |other: &CollectionConfig| {
        Some((other.name.strip_prefix(&path)?.to_owned(), other.key.clone()))
    };
    DescribedCollection {
        name: records.name.clone(),
        table: records.table.clone(),
        key: records.key.clone(),
        key_types: records.key_types.iter().map(|name| name.word().to_owned()).collect(),
        aliases: all.iter().filter_map(alias).collect(),
        embed: records.embed.iter().map(embed).collect(),
    }
}

fn embed(embed: &EmbedConfig) -> DescribedEmbed {
    let order = embed.order_by.iter().map(|by| (by.column.clone(), by.is_descending));
    DescribedEmbed {
        name: embed.name.clone(),
        table: embed.table.clone(),
        on: embed.on.clone(),
        order_by: order.collect(),
        limit: embed.limit,
    }
}
