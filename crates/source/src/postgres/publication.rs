//! The publication: which tables the feed carries. It is made and completed where that is permitted; what is wrong with
//! one that is there is told with the SQL that mends it.

use tokio_postgres::{Client, Error, Row};

use super::connect::full_text;
use super::error::Finding;
use super::wire::replication::quote_identifier;

/// Permission denied, and the like when the name is not ours.
const INSUFFICIENT_PRIVILEGE: &str = "42501";
/// Somebody else was quicker.
const DUPLICATE_OBJECT: &str = "42710";

/// Whether a publication that lacks something is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mend {
    /// As far as that is permitted.
    Yes,
    /// Nothing is touched, and what lacks is told.
    No,
    /// Nothing is touched, and what could be mended is not told.
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

/// Whether a table keeps its rows in partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partitioned {
    Yes,
    No,
}

impl Wanted {
    /// As SQL names it.
    fn sql(&self) -> String {
        format!("{}.{}", quote_identifier(&self.namespace), quote_identifier(&self.name))
    }
}

/// What a check brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    /// Changes whenever the publication as a whole changes, also back and forth. Empty when there is none.
    pub(crate) version: String,
    /// The same for what decides about each wanted table.
    pub(crate) versions: Vec<String>,
    /// What is wrong with all of it, with the SQL that mends it.
    pub(crate) findings: Vec<Finding>,
    /// Collections whose table is not published.
    pub(crate) lacking: Vec<(String, Finding)>,
    /// Collections whose table is published without some of its rows or columns.
    pub(crate) narrowed: Vec<(String, Finding)>,
}

/// Looks at the publication, and makes or completes it before when `mend` says so.
///
/// # Errors
/// When the server fails, or does not answer in time (the client's connection has a limit).
pub(crate) async fn check(client: &Client, name: &str, wanted: &[Wanted], mend: Mend) -> Result<Checked, Error> {
    if mend == Mend::Yes {
        make(client, name, wanted).await?;
    }
    let mut checked = look(client, name, wanted).await?;
    if mend == Mend::Later && may_mend(client, name, wanted).await? {
        checked.lacking.clear();
        if checked.version.is_empty() {
            checked.findings.clear();
        }
    }
    Ok(checked)
}

/// Makes the publication or completes it, as far as that is permitted.
async fn make(client: &Client, name: &str, wanted: &[Wanted]) -> Result<(), Error> {
    // Another instance may make the same one at this moment; then the second look finds it.
    for _ in 0..2 {
        let Some(sql) = missing(client, name, wanted).await? else { break };
        // Asked first, for each refusal would be an error in the server's log.
        if !may_mend(client, name, wanted).await? {
            break;
        }
        match client.batch_execute(&sql).await {
            Ok(()) => tracing::info!(publication = name, %sql, "the publication was made or completed"),
            Err(e) if e.code().is_some_and(|code| code.code() == DUPLICATE_OBJECT) => {}
            Err(e) if e.code().is_some_and(|code| code.code() == INSUFFICIENT_PRIVILEGE) => break,
            Err(e) if e.as_db_error().is_some() => {
                tracing::warn!(publication = name, %sql, error = %full_text(&e), "the publication cannot be made or completed");
                break;
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Whether this user may make the publication with these tables, or add them to the one that is there.
async fn may_mend(client: &Client, name: &str, wanted: &[Wanted]) -> Result<bool, Error> {
    const SQL: &str = "SELECT (SELECT coalesce((SELECT pg_catalog.pg_has_role(pubowner, 'USAGE') \
             FROM pg_catalog.pg_publication WHERE pubname = $1::text), \
             pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'))) \
         AND NOT EXISTS (SELECT FROM pg_catalog.pg_class \
             WHERE oid = ANY ($2::oid[]) AND NOT pg_catalog.pg_has_role(relowner, 'USAGE'))";
    let oids: Vec<u32> = wanted.iter().map(|w| w.oid).collect();
    client.query_one(SQL, &[&name, &oids]).await?.try_get(0)
}

/// The SQL that makes or completes the publication; none when nothing is missing.
async fn missing(client: &Client, name: &str, wanted: &[Wanted]) -> Result<Option<String>, Error> {
    let Some(publication) = Publication::read(client, name).await? else {
        return Ok(Some(create_sql(name, wanted)));
    };
    let published = publication.tables(client, name, wanted).await?;
    let lacking: Vec<&Wanted> = wanted.iter().filter(|w| !published.contains(&w.oid)).collect();
    Ok((!lacking.is_empty()).then(|| add_sql(name, &lacking)))
}

fn create_sql(name: &str, wanted: &[Wanted]) -> String {
    let tables: Vec<String> = distinct(wanted.iter());
    let list = if tables.is_empty() { String::new() } else { format!(" FOR TABLE {}", tables.join(", ")) };
    format!("CREATE PUBLICATION {}{list} WITH (publish_via_partition_root = true);", quote_identifier(name))
}

fn add_sql(name: &str, lacking: &[&Wanted]) -> String {
    let tables = distinct(lacking.iter().copied());
    format!("ALTER PUBLICATION {} ADD TABLE {};", quote_identifier(name), tables.join(", "))
}

/// Two collections may share a table; SQL wants it once.
fn distinct<'a>(wanted: impl Iterator<Item = &'a Wanted>) -> Vec<String> {
    let mut tables: Vec<String> = wanted.map(Wanted::sql).collect();
    tables.sort();
    tables.dedup();
    tables
}

async fn look(client: &Client, name: &str, wanted: &[Wanted]) -> Result<Checked, Error> {
    let Some(publication) = Publication::read(client, name).await? else {
        let what = format!(
            "the publication `{name}` does not exist, and this user may not make it (that takes CREATE on the database and ownership of the tables)"
        );
        let findings = vec![Finding::new(what, create_sql(name, wanted))];
        return Ok(Checked { findings, ..Checked::default() });
    };
    let findings = publication.findings(name, wanted);
    let published = publication.tables(client, name, wanted).await?;
    let (mut lacking, mut narrowed) = (Vec::new(), Vec::new());
    for w in wanted.iter().filter(|w| !published.contains(&w.oid)) {
        let what = format!(
            "collection `{}`: the publication `{name}` lacks `{}.{}`, and this user may not add it (that takes ownership of both)",
            w.collection, w.namespace, w.name
        );
        lacking.push((w.collection.clone(), Finding::new(what, add_sql(name, &[w]))));
    }
    for (w, narrow) in publication.narrowed(client, wanted).await? {
        let (publication, table) = (quote_identifier(name), w.sql());
        let mend = format!(
            "ALTER PUBLICATION {publication} DROP TABLE {table};\nALTER PUBLICATION {publication} ADD TABLE {table};"
        );
        let what = format!(
            "collection `{}`: the publication `{name}` has a {narrow} for `{}.{}`, so changes would be missed",
            w.collection, w.namespace, w.name
        );
        narrowed.push((w.collection.clone(), Finding::new(what, mend)));
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
    /// Row filters and column lists came with PostgreSQL 15.
    has_filters: bool,
}

impl Publication {
    async fn read(client: &Client, name: &str) -> Result<Option<Self>, Error> {
        const SQL: &str = "SELECT oid, xmin::text, pubinsert AND pubupdate AND pubdelete, pubtruncate, pubviaroot, \
             current_setting('server_version_num')::int >= 150000 FROM pg_catalog.pg_publication WHERE pubname = $1::text";
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
        let set = |parameter: &str| format!("ALTER PUBLICATION {} SET ({parameter});", quote_identifier(name));
        if !self.publishes_all || !self.publishes_truncate {
            findings.push(Finding::new(
                format!("the publication `{name}` leaves out some kinds of changes; all four are needed"),
                set("publish = 'insert, update, delete, truncate'"),
            ));
        }
        let partitioned = wanted.iter().find(|w| w.is_partitioned == Partitioned::Yes);
        if let (false, Some(w)) = (self.publishes_via_root, partitioned) {
            findings.push(Finding::new(
                format!(
                    "collection `{}`: `{}.{}` is partitioned, and the publication `{name}` publishes its partitions instead",
                    w.collection, w.namespace, w.name
                ),
                set("publish_via_partition_root = true"),
            ));
        }
        findings
    }

    /// Which of the wanted tables are published, by themselves or as partitions of a published table.
    async fn tables(&self, client: &Client, name: &str, wanted: &[Wanted]) -> Result<Vec<u32>, Error> {
        const SQL: &str = "SELECT w.oid FROM pg_catalog.unnest($2::oid[]) AS w(oid) WHERE EXISTS (\
             SELECT FROM pg_catalog.pg_get_publication_tables($1::text) AS p WHERE p.relid = w.oid \
             OR p.relid IN (SELECT relid FROM pg_catalog.pg_partition_ancestors(w.oid))) \
             OR EXISTS (SELECT FROM pg_catalog.pg_publication_rel WHERE prpubid = $3 AND prrelid = w.oid)";
        let oids: Vec<u32> = wanted.iter().map(|w| w.oid).collect();
        client.query(SQL, &[&name, &oids, &self.oid]).await?.iter().map(|row| row.try_get(0)).collect()
    }

    /// Tables of which only some rows or columns are published.
    async fn narrowed<'a>(
        &self,
        client: &Client,
        wanted: &'a [Wanted],
    ) -> Result<Vec<(&'a Wanted, &'static str)>, Error> {
        // A partition is published by its table's row.
        const SQL: &str = "SELECT w.oid, r.prqual IS NOT NULL FROM pg_catalog.unnest($2::oid[]) AS w(oid) \
             JOIN pg_catalog.pg_publication_rel r ON r.prpubid = $1 AND (r.prrelid = w.oid \
             OR r.prrelid IN (SELECT relid FROM pg_catalog.pg_partition_ancestors(w.oid)) \
             OR r.prrelid IN (SELECT relid FROM pg_catalog.pg_partition_tree(w.oid))) \
             WHERE r.prqual IS NOT NULL OR r.prattrs IS NOT NULL";
        let mut narrowed = Vec::new();
        if self.has_filters {
            let oids: Vec<u32> = wanted.iter().map(|w| w.oid).collect();
            for row in client.query(SQL, &[&self.oid, &oids]).await? {
                let (oid, has_filter): (u32, bool) = (row.try_get(0)?, row.try_get(1)?);
                let what = if has_filter { "row filter" } else { "column list" };
                narrowed.extend(wanted.iter().filter(|w| w.oid == oid).map(|w| (w, what)));
            }
        }
        Ok(narrowed)
    }

    /// For each wanted table the rows of the catalogue that put it into the publication, with the transactions that wrote
    /// them: they change also when something was taken away and given back.
    async fn versions(&self, client: &Client, wanted: &[Wanted]) -> Result<Vec<String>, Error> {
        const TABLES: &str = "SELECT (SELECT coalesce(pg_catalog.string_agg(r.oid || ':' || r.xmin::text, ',' ORDER BY r.oid), '') \
             FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = $1 AND (r.prrelid = w.oid \
             OR r.prrelid IN (SELECT relid FROM pg_catalog.pg_partition_ancestors(w.oid)))) \
             FROM pg_catalog.unnest($2::oid[]) WITH ORDINALITY AS w(oid, place) ORDER BY w.place";
        const SCHEMAS: &str = "SELECT (SELECT coalesce(pg_catalog.string_agg(n.oid || ':' || n.xmin::text, ',' ORDER BY n.oid), '') \
             FROM pg_catalog.pg_publication_namespace n WHERE n.pnpubid = $1 AND n.pnnspid = c.relnamespace) \
             FROM pg_catalog.unnest($2::oid[]) WITH ORDINALITY AS w(oid, place) \
             JOIN pg_catalog.pg_class c ON c.oid = w.oid ORDER BY w.place";
        let oids: Vec<u32> = wanted.iter().map(|w| w.oid).collect();
        let rows = client.query(TABLES, &[&self.oid, &oids]).await?;
        let mut versions: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        if self.has_filters {
            for (version, row) in versions.iter_mut().zip(client.query(SCHEMAS, &[&self.oid, &oids]).await?) {
                version.push(';');
                version.push_str(row.try_get(0)?);
            }
        }
        Ok(versions)
    }
}
