//! Discovery of a database's collections for a first configuration. No catalogue declares their
//! keys and fields: they are those of a sample of the documents, which the file must say.

use std::sync::Arc;

use hotrow_source::background::Background;
use hotrow_source::discovery::{
    self, Configure, Discovered, Engine, ListedColumn, ListedTable, Request,
};
use hotrow_source::preflight;
use hotrow_supervisor::Supervisor;
use hotrow_types::key::KEY_PARTS_MAX;
use mongodb::Database;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Error;

use super::config::{Config, Follow};
use super::error::Finding;
use super::indexes;
use super::inspect;
use super::keys::KeyShape;
use super::target::Target;
use super::{OpenError, check_feed, error, feed, server};

/// Lists the collections of a database, and checks each with the settings that `configure` chooses.
/// The collections of `config` are not used. Blocks for up to the connection time-out and the
/// request's time limit.
///
/// # Errors
/// The deployment cannot be reached, or the collections cannot be listed.
pub fn discover(
    config: Config,
    request: &Request,
    configure: &Configure<'_>,
) -> Result<Discovered, OpenError> {
    let (target, for_feed) = preflight::targets(&config.server, Target::parse)?;
    let background = Background::start("mongodb", &Supervisor::default())?;
    let limit = config.server.connect_timeout.saturating_add(request.timeout);
    let settings = feed::settings(&config);
    let asked = request.clone();
    let (database, listed) = background.run(async move {
        let listing = async {
            let database = feed::connect(&target, "hotrow init", settings).await?;
            let listed = list(&database, &asked).await?;
            Ok::<_, Error>((database, listed))
        };
        let listing = async { listing.await.map_err(|e| error::open_error(&e)) };
        preflight::within(limit, listing).await
    })?;
    let (tables, is_cut) = listed;
    let mut configs = configure(&tables);
    let name = format!("MongoDB, database {}", database.name());
    let mut config = config;
    config.server.collections.clone_from(&configs);
    let config = Arc::new(config);
    let checks = async move {
        let checks = check(&database, &config, &for_feed);
        checks.await.map_err(|e| error::open_error(&e))
    };
    let (shapes, findings) = background.run(preflight::within(limit, checks))?;
    let mut of_tables = Vec::with_capacity(shapes.len());
    for (spec, shape) in configs.iter_mut().zip(shapes) {
        of_tables.push(shape.map_or_else(
            |findings| findings,
            |shape| {
                spec.key_types = match shape {
                    KeyShape::Plain(ty) => vec![ty],
                    KeyShape::Document(fields) => fields.into_iter().map(|(_, ty)| ty).collect(),
                };
                Vec::new()
            },
        ));
    }
    let unknown = request.unknown(&tables);
    Ok(Discovered {
        engine: Engine::Mongodb,
        database: name,
        tables: discovery::joined(tables, configs, of_tables),
        is_cut,
        findings,
        unknown,
        lacks_positions: None,
    })
}

/// Lists the collections that the request selects, and whether there are more.
async fn list(database: &Database, request: &Request) -> Result<(Vec<ListedTable>, bool), Error> {
    let command = doc! { "listCollections": 1, "cursor": { "batchSize": i32::MAX } };
    let answer = database.run_command(command).await?;
    let batch = answer.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let mut found: Vec<(String, String)> = Vec::new();
    for entry in batch.into_iter().flatten().filter_map(Bson::as_document) {
        if let (Ok(name), Ok(kind)) = (entry.get_str("name"), entry.get_str("type"))
            && !name.starts_with("system.")
            && request.selects(database.name(), name)
        {
            found.push((name.to_owned(), kind.to_owned()));
        }
    }
    found.sort();
    let is_cut = found.len() > request.tables_max;
    found.truncate(request.tables_max);
    let mut tables = Vec::with_capacity(found.len());
    for (name, kind) in found {
        let is_collection = kind == "collection";
        let mut listed = ListedTable { table: name.clone(), name, kind, ..ListedTable::default() };
        if is_collection {
            let documents = inspect::sampled(database, &listed.name, None).await?;
            let count = database.run_command(doc! { "count": &listed.name }).await?;
            listed.rows = count.get_i32("n").ok().and_then(|count| u64::try_from(count).ok());
            listed.keys = vec![key(&documents)];
            listed.keys.extend(indexes::unique(database, &listed.name).await);
            listed.columns = columns(&documents);
            listed.sampled = Some(documents.len());
        }
        tables.push(listed);
    }
    Ok((tables, is_cut))
}

/// Returns `_id`, or its fields where every document has the same ones in one order.
fn key(documents: &[Document]) -> Vec<String> {
    let fields = |document: &Document| -> Option<Vec<String>> {
        let id = document.get_document("_id").ok()?;
        Some(id.keys().map(|field| format!("_id.{field}")).collect())
    };
    let mut all = documents.iter().map(fields);
    match all.next().flatten() {
        Some(first)
            if (1..=KEY_PARTS_MAX).contains(&first.len())
                && all.all(|fields| fields.as_ref() == Some(&first)) =>
        {
            first
        }
        _ => vec!["_id".to_owned()],
    }
}

/// Returns the fields of the documents in the order in which they are seen, each with its types
/// and, where some lack it, the number of documents.
fn columns(documents: &[Document]) -> Vec<ListedColumn> {
    let mut seen: Vec<(&String, Vec<String>, usize)> = Vec::new();
    for (name, value) in documents.iter().flatten() {
        let word = format!("{:?}", value.element_type()).to_lowercase();
        match seen.iter_mut().find(|(other, ..)| *other == name) {
            Some((_, words, count)) => {
                *count += 1;
                if !words.contains(&word) {
                    words.push(word);
                }
            }
            None => seen.push((name, vec![word], 1)),
        }
    }
    let column = |(name, words, count): (&String, Vec<String>, usize)| {
        let of = if count < documents.len() { format!(", in {count}") } else { String::new() };
        let sql_type = format!("{}{of}", words.join(" or "));
        ListedColumn { name: name.clone(), sql_type, is_readable: true }
    };
    seen.into_iter().map(column).collect()
}

type Checked = (Vec<Result<KeyShape, Vec<Finding>>>, Vec<Finding>);

/// Runs the checks of a start, and returns the keys of the collections.
async fn check(database: &Database, config: &Config, for_feed: &Target) -> Result<Checked, Error> {
    let greeting = server::greet(database.client()).await?;
    let identity = server::identify(database.client(), &greeting).await?;
    let mut findings: Vec<Finding> = server::check(&greeting).into_iter().collect();
    let (specs, follow) = (&config.server.collections, config.server.follow);
    let served = inspect::collections(database, specs, follow).await?;
    let served = served.into_iter().map(|served| served.map(|served| served.shape)).collect();
    if follow == Follow::Changes {
        findings.extend(match server::check_watched(&greeting) {
            Some(finding) => Some(finding),
            None => check_feed(config, for_feed, &identity, greeting.applied_at).await,
        });
    }
    Ok((served, findings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_fields_are_those_of_the_documents() {
        let plain = [doc! { "_id": 1, "a": "x" }, doc! { "_id": 2, "a": 1_i64, "b": [1] }];
        assert_eq!(key(&plain), ["_id"]);
        let seen: Vec<String> =
            columns(&plain).into_iter().map(|c| format!("{} {}", c.name, c.sql_type)).collect();
        assert_eq!(seen, ["_id int32", "a string or int64", "b array, in 1"]);
        let id = |id: Document| doc! { "_id": id };
        assert_eq!(key(&[id(doc! { "a": 1, "b": 2 })]), ["_id.a", "_id.b"]);
        assert_eq!(key(&[id(doc! { "a": 1 }), id(doc! { "b": 1 })]), ["_id"]);
        assert_eq!(key(&[]), ["_id"]);
    }
}
