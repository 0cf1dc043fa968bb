//! The publication: the tables that the feed carries. It is created and completed as far as
//! permitted; the faults of an existing one are reported with the SQL that corrects them.

use tokio_postgres::{Client, Error, Row};

use super::Finding;
use super::error::full_text;
use super::wire::replication::quote_identifier;

/// Permission denied, or the name belongs to another role.
const INSUFFICIENT_PRIVILEGE: &str = "42501";
/// Another session created it first.
const DUPLICATE_OBJECT: &str = "42710";

/// Handling of a publication that lacks something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repair<'a> {
    /// Completes it as far as permitted, but without the tables of these OIDs, which were published
    /// before: an operator removed them, or the whole publication.
    Without(&'a [u32]),
    /// Changes nothing and reports what is missing.
    No,
    /// Changes nothing and reports only what could not be completed.
    Later,
}

/// A table that must be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Its collection, for messages.
    pub(crate) collection: String,
    pub(crate) oid: u32,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) is_partitioned: Partitioned,
}

/// Storage of a table's rows in partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partitioned {
    Yes,
    No,
}

impl Wanted {
    fn sql(&self) -> String {
        format!("{}.{}", quote_identifier(&self.namespace), quote_identifier(&self.name))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    /// Changes with every change of the publication as a whole, even if it is undone. Empty without
    /// a publication.
    pub(crate) version: String,
    /// The same for each wanted table's part of the publication.
    pub(crate) versions: Vec<String>,
    /// Faults of the publication as a whole, with the SQL that corrects them.
    pub(crate) findings: Vec<Finding>,
    /// Collections whose table is not published.
    pub(crate) lacking: Vec<(String, Finding)>,
    /// Collections whose table is published without some of its rows or columns.
    pub(crate) narrowed: Vec<(String, Finding)>,
}

/// Checks the publication, and before that creates or completes it if `repair` says so.
///
/// # Errors
/// The server fails, or does not answer within the client's limit.
pub(crate) async fn check(
    client: &Client,
    name: &str,
    wanted: &[Wanted],
    repair: Repair<'_>,
) -> Result<Checked, Error> {
    if let Repair::Without(removed) = repair {
        create_or_complete(client, name, wanted, removed).await?;
    }
    let mut checked = inspect(client, name, wanted).await?;
    if repair == Repair::Later && may_repair(client, name, wanted).await? {
        checked.lacking.clear();
        if checked.version.is_empty() {
            checked.findings.clear();
        }
    }
    Ok(checked)
}

/// Creates or completes the publication, as far as permitted.
async fn create_or_complete(
    client: &Client,
    name: &str,
    wanted: &[Wanted],
    removed: &[u32],
) -> Result<(), Error> {
    // Another instance may create the same one at this moment; the second check finds it.
    for _ in 0..2 {
        let Some(sql) = repair_sql(client, name, wanted, removed).await? else { break };
        // Checked first, because each refusal would be an error in the server's log.
        if !may_repair(client, name, wanted).await? {
            break;
        }
        match client.batch_execute(&sql).await {
            Ok(()) => {
                tracing::info!(publication = name, %sql, "the publication was created or completed")
            }
            Err(e) if e.code().is_some_and(|code| code.code() == DUPLICATE_OBJECT) => {}
            Err(e) if e.code().is_some_and(|code| code.code() == INSUFFICIENT_PRIVILEGE) => break,
            Err(e) if e.as_db_error().is_some() => {
                tracing::warn!(
                    publication = name,
                    %sql,
                    error = %full_text(&e),
                    "the publication cannot be created or completed"
                );
                break;
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Returns whether this user may create the publication with these tables, or add them to the
/// existing one.
async fn may_repair(client: &Client, name: &str, wanted: &[Wanted]) -> Result<bool, Error> {
    const SQL: &str = "SELECT (SELECT coalesce((SELECT pg_catalog.pg_has_role(pubowner, 'USAGE') \
             FROM pg_catalog.pg_publication WHERE pubname = $1::text), \
             pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'))) \
         AND NOT EXISTS (SELECT FROM pg_catalog.pg_class \
             WHERE oid = ANY ($2::oid[]) AND NOT pg_catalog.pg_has_role(relowner, 'USAGE'))";
    let oids: Vec<u32> = wanted.iter().map(|w| w.oid).collect();
    client.query_one(SQL, &[&name, &oids]).await?.try_get(0)
}

/// Returns the SQL that creates or completes the publication; `None` if nothing is to be done.
async fn repair_sql(
    client: &Client,
    name: &str,
    wanted: &[Wanted],
    removed: &[u32],
) -> Result<Option<String>, Error> {
    let Some(publication) = Publication::read(client, name).await? else {
        return Ok(removed.is_empty().then(|| create_sql(name, wanted)));
    };
    let published = publication.tables(client, name, wanted).await?;
    let is_lacking = |w: &&Wanted| !published.contains(&w.oid) && !removed.contains(&w.oid);
    let lacking: Vec<&Wanted> = wanted.iter().filter(is_lacking).collect();
    Ok((!lacking.is_empty()).then(|| add_sql(name, &lacking)))
}

fn create_sql(name: &str, wanted: &[Wanted]) -> String {
    let tables: Vec<String> = distinct(wanted.iter());
    let list =
        if tables.is_empty() { String::new() } else { format!(" FOR TABLE {}", tables.join(", ")) };
    format!(
        "CREATE PUBLICATION {}{list} WITH (publish_via_partition_root = true);",
        quote_identifier(name)
    )
}

fn add_sql(name: &str, lacking: &[&Wanted]) -> String {
    let tables = distinct(lacking.iter().copied());
    format!("ALTER PUBLICATION {} ADD TABLE {};", quote_identifier(name), tables.join(", "))
}

/// Returns one finding about all collections whose table is not published.
pub(crate) fn all_lacking(
    name: &str,
    wanted: &[Wanted],
    lacking: &[(String, Finding)],
) -> Option<Finding> {
    let is_lacking =
        |w: &&Wanted| lacking.iter().any(|(collection, _)| *collection == w.collection);
    let tables: Vec<&Wanted> = wanted.iter().filter(is_lacking).collect();
    let what = || format!("the publication `{name}` lacks {} of the tables", tables.len());
    (!tables.is_empty()).then(|| Finding::new(what(), add_sql(name, &tables)))
}

/// Returns the SQL that adds a table, unless it is published.
pub(crate) async fn addition(
    client: &Client,
    name: &str,
    wanted: &Wanted,
) -> Result<Option<String>, Error> {
    let checked = inspect(client, name, std::slice::from_ref(wanted)).await?;
    let is_published = !checked.version.is_empty() && checked.lacking.is_empty();
    Ok((!is_published).then(|| add_sql(name, &[wanted])))
}

/// Two collections may share a table; SQL wants it once.
fn distinct<'a>(wanted: impl Iterator<Item = &'a Wanted>) -> Vec<String> {
    let mut tables: Vec<String> = wanted.map(Wanted::sql).collect();
    tables.sort();
    tables.dedup();
    tables
}

async fn inspect(client: &Client, name: &str, wanted: &[Wanted]) -> Result<Checked, Error> {
    let Some(publication) = Publication::read(client, name).await? else {
        let what = format!(
            "the publication `{name}` does not exist: it was dropped, \
             or this user may not create it (this requires \
             CREATE on the database and ownership of the tables)"
        );
        let findings = vec![Finding::new(what, create_sql(name, wanted))];
        return Ok(Checked { findings, ..Checked::default() });
    };
    let findings = publication.findings(name, wanted);
    let published = publication.tables(client, name, wanted).await?;
    let mut lacking = Vec::new();
    let mut narrowed = Vec::new();
    for w in wanted.iter().filter(|w| !published.contains(&w.oid)) {
        let what = format!(
            "collection `{}`: the publication `{name}` lacks `{}.{}`: it was removed, or this user \
             may not add it (this requires ownership of both)",
            w.collection, w.namespace, w.name
        );
        lacking.push((w.collection.clone(), Finding::new(what, add_sql(name, &[w]))));
    }
    for (w, narrow) in publication.narrowed(client, wanted).await? {
        let publication = quote_identifier(name);
        let table = w.sql();
        let remedy = format!(
            "ALTER PUBLICATION {publication} DROP TABLE {table};\nALTER PUBLICATION {publication} \
             ADD TABLE {table};"
        );
        let what = format!(
            "collection `{}`: the publication `{name}` has a {narrow} for `{}.{}`, \
             so changes would be missed",
            w.collection, w.namespace, w.name
        );
        narrowed.push((w.collection.clone(), Finding::new(what, remedy)));
    }
    let versions = publication.versions(client, wanted).await?;
    let version = format!("{}:{}", publication.oid, publication.version);
    Ok(Checked { version, versions, findings, lacking, narrowed })
}

/// A row of `pg_publication`.
struct Publication {
    oid: u32,
    version: String,
    publishes_all: bool,
    publishes_truncate: bool,
    publishes_via_root: bool,
    /// Row filters and column lists exist from PostgreSQL 15 on.
    has_filters: bool,
}

impl Publication {
    async fn read(client: &Client, name: &str) -> Result<Option<Self>, Error> {
        const SQL: &str = "SELECT oid, xmin::text, pubinsert AND pubupdate AND pubdelete, \
                           pubtruncate, pubviaroot, \
             current_setting('server_version_num')::int >= 150000 FROM pg_catalog.pg_publication \
             WHERE pubname = $1::text";
        let read = |row: Row| -> Result<Self, Error> {
            Ok(Self {
                oid: row.try_get(0)?,
                version: row.try_get(1)?,
                publishes_all: row.try_get(2)?,
                publishes_truncate: row.try_get(3)?,
                publishes_via_root: row.try_get(4)?,
                has_filters: row.try_get(5)?,
            })
        };
        client.query_opt(SQL, &[&name]).await?.map(read).transpose()
    }

    fn findings(&self, name: &str, wanted: &[Wanted]) -> Vec<Finding> {
        let mut findings = Vec::new();
        let set = |parameter: &str| {
            format!("ALTER PUBLICATION {} SET ({parameter});", quote_identifier(name))
        };
        if !self.publishes_all || !self.publishes_truncate {
            findings.push(Finding::new(
                format!(
                    "the publication `{name}` leaves out some kinds of changes; all four are needed"
                ),
                set("publish = 'insert, update, delete, truncate'"),
            ));
        }
        let partitioned = wanted.iter().find(|w| w.is_partitioned == Partitioned::Yes);
        if let (false, Some(w)) = (self.publishes_via_root, partitioned) {
            findings.push(Finding::new(
                format!(
                    "collection `{}`: `{}.{}` is partitioned, and the publication `{name}` \
                     publishes its partitions instead",
                    w.collection, w.namespace, w.name
                ),
                set("publish_via_partition_root = true"),
            ));
        }
        findings
    }

    /// Returns the wanted tables that are published, by themselves or as partitions of a published
    /// table.
    async fn tables(
        &self,
        client: &Client,
        name: &str,
        wanted: &[Wanted],
    ) -> Result<Vec<u32>, Error> {
        const SQL: &str = "SELECT w.oid FROM pg_catalog.unnest($2::oid[]) AS w(oid) WHERE EXISTS (\
             SELECT FROM pg_catalog.pg_get_publication_tables($1::text) AS p WHERE p.relid = w.oid \
             OR p.relid IN (SELECT relid FROM pg_catalog.pg_partition_ancestors(w.oid))) \
             OR EXISTS (SELECT FROM pg_catalog.pg_publication_rel WHERE prpubid = $3 \
             AND prrelid = w.oid)";
        let oids: Vec<u32> = wanted.iter().map(|w| w.oid).collect();
        client
            .query(SQL, &[&name, &oids, &self.oid])
            .await?
            .iter()
            .map(|row| row.try_get(0))
            .collect()
    }

    /// Returns the tables of which only some rows or columns are published.
    async fn narrowed<'a>(
        &self,
        client: &Client,
        wanted: &'a [Wanted],
    ) -> Result<Vec<(&'a Wanted, &'static str)>, Error> {
        // A partition is published by its table's row.
        const SQL: &str = "SELECT w.oid, r.prqual IS NOT NULL \
                           FROM pg_catalog.unnest($2::oid[]) AS w(oid) \
             JOIN pg_catalog.pg_publication_rel r ON r.prpubid = $1 AND (r.prrelid = w.oid \
             OR r.prrelid IN (SELECT relid FROM pg_catalog.pg_partition_ancestors(w.oid)) \
             OR r.prrelid IN (SELECT relid FROM pg_catalog.pg_partition_tree(w.oid))) \
             WHERE r.prqual IS NOT NULL OR r.prattrs IS NOT NULL";
        let mut narrowed = Vec::new();
        if self.has_filters {
            let oids: Vec<u32> = wanted.iter().map(|w| w.oid).collect();
            for row in client.query(SQL, &[&self.oid, &oids]).await? {
                let oid: u32 = row.try_get(0)?;
                let has_filter: bool = row.try_get(1)?;
                let what = if has_filter { "row filter" } else { "column list" };
                narrowed.extend(wanted.iter().filter(|w| w.oid == oid).map(|w| (w, what)));
            }
        }
        Ok(narrowed)
    }

    /// Returns, for each wanted table, the rows of the catalogue that include it in the
    /// publication, with the transactions that wrote them: these change even if a removal is
    /// undone.
    async fn versions(&self, client: &Client, wanted: &[Wanted]) -> Result<Vec<String>, Error> {
        const TABLES: &str = "SELECT (SELECT coalesce(pg_catalog.string_agg(r.oid || ':' || \
                              r.xmin::text, ',' ORDER BY r.oid), '') \
             FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = $1 AND (r.prrelid = w.oid \
             OR r.prrelid IN (SELECT relid FROM pg_catalog.pg_partition_ancestors(w.oid)))) \
             FROM pg_catalog.unnest($2::oid[]) WITH ORDINALITY AS w(oid, place) ORDER BY w.place";
        const SCHEMAS: &str = "SELECT (SELECT coalesce(pg_catalog.string_agg(n.oid || ':' || \
                               n.xmin::text, ',' ORDER BY n.oid), '') \
             FROM pg_catalog.pg_publication_namespace n WHERE n.pnpubid = $1 \
             AND n.pnnspid = c.relnamespace) \
             FROM pg_catalog.unnest($2::oid[]) WITH ORDINALITY AS w(oid, place) \
             JOIN pg_catalog.pg_class c ON c.oid = w.oid ORDER BY w.place";
        let oids: Vec<u32> = wanted.iter().map(|w| w.oid).collect();
        let rows = client.query(TABLES, &[&self.oid, &oids]).await?;
        let mut versions: Vec<String> =
            rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        if self.has_filters {
            for (version, row) in
                versions.iter_mut().zip(client.query(SCHEMAS, &[&self.oid, &oids]).await?)
            {
                version.push(';');
                version.push_str(row.try_get(0)?);
            }
        }
        Ok(versions)
    }
}
