//! Survey of the catalogue: the tables served, their publication, and all else that determines a
//! record's content.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use tokio_postgres::types::Type;
pub(crate) mod fingerprint;

use tokio_postgres::{Client, Error};

use super::Finding;
use super::config::{Config, Follow};
use super::delivery::{Followed, Role};
use super::inspect::{self, Embedded, Privileges, Refused, Table, TableKind};
use super::publication::{self, Checked, Partitioned, Repair, Wanted};

/// State of the catalogue. Equal surveys are served alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Survey {
    /// Per collection its table, or the reasons that it cannot be served.
    pub(crate) tables: Vec<Result<Table, Refused>>,
    /// Per collection the other objects that its rows depend on, in a form for comparison only.
    pub(crate) depends: Vec<String>,
    /// Per collection the OIDs under which its changes may arrive.
    pub(crate) oids: Vec<Vec<u32>>,
    /// Per collection and embedded table the same.
    pub(crate) child_oids: Vec<Vec<Vec<u32>>>,
    /// Changes with every change of the publication as a whole.
    pub(crate) publication: String,
    /// Per collection the same for its table's part of the publication; `None` without a table.
    pub(crate) published: Vec<Option<String>>,
    /// Findings about the publication as a whole: nothing can be followed.
    pub(crate) findings: Vec<Finding>,
}

impl Survey {
    /// Reads the catalogue.
    ///
    /// # Errors
    /// An error of the driver. Nothing is known then.
    pub(crate) async fn take(
        client: &Client,
        config: &Config,
        repair: Repair<'_>,
    ) -> Result<Self, Error> {
        let (specs, follow) = (&config.server.collections, config.server.follow);
        let mut tables = inspect::tables(client, specs, Privileges::Checked, follow).await?;
        let wanted: Vec<Wanted> = tables
            .iter()
            .zip(specs)
            .filter_map(|(table, spec)| table.as_ref().ok().map(|table| (&spec.name, table)))
            .flat_map(|(name, table)| {
                let children = table.embedded.iter().map(|child| wanted_child(name, child));
                std::iter::once(wanted(name, table)).chain(children)
            })
            .collect();
        let Checked { version, versions, findings, lacking, narrowed } = match follow {
            Follow::Changes => {
                let repair = if config.completes_publication { repair } else { Repair::No };
                publication::check(client, &config.publication, &wanted, repair).await?
            }
            Follow::Hub | Follow::Nothing => Checked::default(),
        };
        let mut versions = versions.into_iter();
        let version_of = |table: &Result<Table, Refused>| {
            let tables = 1 + table.as_ref().ok()?.embedded.len();
            let versions: Vec<String> = versions.by_ref().take(tables).collect();
            (!versions.is_empty()).then(|| versions.join("|"))
        };
        let mut published: Vec<Option<String>> = tables.iter().map(version_of).collect();
        for (collection, finding) in lacking.into_iter().chain(narrowed) {
            let place = config.server.collections.iter().position(|spec| spec.name == collection);
            if let Some(i) = place {
                tables[i] = Err(vec![finding]);
                published[i] = None;
            }
        }
        let found = tables.iter().map(async |table| {
            let Ok(table) = table else { return Ok((Vec::new(), String::new(), Vec::new())) };
            let (followed, _, _) = table.followed();
            let (oids, mut on) = dependencies(client, followed, table.oid).await?;
            let mut of_children = Vec::with_capacity(table.embedded.len());
            for child in &table.embedded {
                let (oids, of_child) = dependencies(client, child.oid, child.oid).await?;
                of_children.push(oids);
                on.push('|');
                on.push_str(&of_child);
            }
            Ok::<_, Error>((oids, on, of_children))
        });
        let mut oids = Vec::with_capacity(tables.len());
        let mut depends = Vec::with_capacity(tables.len());
        let mut child_oids = Vec::with_capacity(tables.len());
        for found in inspect::concurrently(found).await {
            let (of, on, of_children) = found?;
            oids.push(of);
            depends.push(on);
            child_oids.push(of_children);
        }
        let publication = version;
        Ok(Self { tables, depends, oids, child_oids, publication, published, findings })
    }

    /// Returns a digest of what decides which changes the server delivers. It is the same in every
    /// process with the same collections. The versions of the publication are numbers of
    /// transactions, so that no state before a change of it comes back.
    pub(crate) fn watched(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.publication, &self.published, &self.oids, &self.child_oids).hash(&mut hasher);
        hasher.finish()
    }

    /// Returns the tables to follow.
    pub(crate) fn followed(&self) -> Vec<Followed> {
        let mut all = Vec::new();
        let served = self.tables.iter().zip(&self.oids).zip(&self.child_oids).enumerate();
        for (collection, ((table, oids), child_oids)) in served {
            let Ok(table) = table else { continue };
            let (_, namespace, name) = table.followed();
            all.push(Followed {
                collection,
                oids: oids.clone(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                key: table.followed_key(),
                role: if table.is_alias { Role::Alias } else { Role::Record },
            });
            for (child, oids) in table.embedded.iter().zip(child_oids) {
                let oid = (child.kind == TableKind::Plain).then_some(child.oid);
                all.push(Followed {
                    collection,
                    oids: oids.clone(),
                    namespace: child.schema.clone(),
                    name: child.name.clone(),
                    key: vec![child.on.clone()],
                    role: Role::Child { oid },
                });
            }
        }
        all
    }

    /// Returns the collections whose changes may have been missed since `before`, with the reasons.
    /// The writes of a transaction that is open across a change of the publication are published by
    /// the old rule, whenever it commits.
    pub(crate) fn gaps_since(&self, before: &Self) -> Vec<(usize, String)> {
        let collections =
            self.published.iter().zip(&before.published).zip(&self.tables).enumerate();
        let changed = collections.filter(|(_, ((now, before), _))| now.is_some() && now != before);
        let gap = |(i, (_, table)): (usize, (_, &Result<Table, Refused>))| {
            let Table { schema, name, embedded, .. } = table.as_ref().ok()?;
            let children = if embedded.is_empty() { "" } else { " or a table that it embeds" };
            Some((
                i,
                format!(
                    "`{schema}.{name}`{children} was added to the publication, \
                     or was missing in it for some time"
                ),
            ))
        };
        changed.filter_map(gap).collect()
    }

    /// Returns whether a collection's records may differ from those of `before`.
    pub(crate) fn differs(&self, before: &Self, collection: usize) -> bool {
        self.tables.get(collection) != before.tables.get(collection)
            || self.depends.get(collection) != before.depends.get(collection)
    }
}

/// Returns the table as the publication needs it.
pub(crate) fn wanted(collection: &str, table: &Table) -> Wanted {
    let (oid, namespace, name) = table.followed();
    Wanted {
        collection: collection.to_owned(),
        oid,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        is_partitioned: partitioned(table.kind),
    }
}

/// Returns an embedded table as the publication needs it.
fn wanted_child(collection: &str, child: &Embedded) -> Wanted {
    Wanted {
        collection: collection.to_owned(),
        oid: child.oid,
        namespace: child.schema.clone(),
        name: child.name.clone(),
        is_partitioned: partitioned(child.kind),
    }
}

fn partitioned(kind: TableKind) -> Partitioned {
    match kind {
        TableKind::Partitioned => Partitioned::Yes,
        TableKind::Plain => Partitioned::No,
    }
}

/// Returns the OIDs under which a table's changes may arrive (its own and those of the tables that
/// it is a partition of), and its dependencies: its partitions with their files, and its types with
/// their components. A TRUNCATE, an ATTACH or a DETACH of one partition is missing in a feed that
/// publishes by the root.
///
/// `followed`: the table whose changes arrive; `read`: the one that is read, which may be a view.
async fn dependencies(
    client: &Client,
    followed: u32,
    read: u32,
) -> Result<(Vec<u32>, String), Error> {
    const SQL: &str = "WITH RECURSIVE types(oid) AS (\
             SELECT atttypid FROM pg_catalog.pg_attribute WHERE attrelid IN ($1, $2) \
             AND attnum > 0 \
             AND NOT attisdropped \
           UNION SELECT next.oid FROM types JOIN pg_catalog.pg_type t ON t.oid = types.oid \
             CROSS JOIN LATERAL (SELECT t.typelem AS oid UNION ALL SELECT t.typbasetype \
               UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a \
                 WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped \
               UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r \
               WHERE r.rngtypid = t.oid \
               UNION ALL SELECT r.rngtypid FROM pg_catalog.pg_range r WHERE t.typtype = 'm' \
                 AND (pg_catalog.to_jsonb(r)->>'rngmultitypid')::oid = t.oid) AS next \
             WHERE next.oid <> 0) \
         SELECT ARRAY(SELECT $1::oid UNION SELECT relid::oid \
         FROM pg_catalog.pg_partition_ancestors($1)), \
         (SELECT coalesce(string_agg(c.oid || ':' || pg_relation_filenode(c.oid), ',' \
         ORDER BY c.oid), '') \
            FROM pg_catalog.pg_partition_tree($1) p JOIN pg_catalog.pg_class c ON c.oid = p.relid \
            WHERE p.isleaf \
            AND (SELECT relkind FROM pg_catalog.pg_class WHERE oid = $1) = 'p') || ';' || \
         (SELECT coalesce(string_agg(e.oid || ':' || e.xmin::text, ',' ORDER BY e.oid), '') \
            FROM pg_catalog.pg_enum e JOIN types ON types.oid = e.enumtypid) || ';' || \
         (SELECT coalesce(string_agg(t.oid || ':' || a.attnum || ':' || a.xmin::text, ',' \
         ORDER BY t.oid, a.attnum), '') \
            FROM types JOIN pg_catalog.pg_type t ON t.oid = types.oid \
            JOIN pg_catalog.pg_attribute a ON a.attrelid = t.typrelid WHERE a.attnum > 0) \
         || ';' || (SELECT coalesce(string_agg(r.oid || ':' || r.xmin::text || ':' \
         || md5(r.ev_action::text), ',' ORDER BY r.oid), '') \
            FROM pg_catalog.pg_rewrite r WHERE r.ev_class = $2)";
    let parameters: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] =
        &[(&followed, Type::OID), (&read, Type::OID)];
    let rows = client.query_typed(SQL, parameters).await?;
    // The query always returns one row.
    rows.first()
        .map_or_else(|| Ok(Default::default()), |row| Ok((row.try_get(0)?, row.try_get(1)?)))
}
