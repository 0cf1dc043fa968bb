//! Fingerprint of the catalogue: one statement, independent of the number of collections, shows
//! whether a survey can have changed.
//!
//! After every change a row of the catalogue has another `xmin`, the transaction that wrote it. The
//! fingerprint consists of the `xmin` of all rows that a [`super::Survey`] depends on, of the OIDs
//! that the configured names resolve to, and of the user's privileges. It may change without need,
//! for example after a GRANT to another role; the survey then finds no change.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Statement};

use super::super::config::Config;

/// Surveys taken for each fingerprint. Other sessions' caches receive the message of a commit a
/// moment after it. In between, the catalogue's rows are new while the server's functions still
/// report the old state. The last survey is taken [`Config::schema_poll`] after the first.
const SURVEYS_EACH: u8 = 5;

/// First minor version of each major one from which a stream delivers all later changes of a table
/// that is added to its publication. Earlier ones lose the table from the stream if a transaction
/// runs across the addition.
///
/// Source: release notes of 15.13, 16.9 and 17.5 (2025-05-08), "Avoid data loss when DDL operations
/// that don't take a strong lock affect tables that are being logically replicated". The same patch
/// covers version 14, whose release of that day is 14.18. It does not apply to the decoder of
/// version 13, and no release note is known to mention a fix there. Treating a version as if it had
/// no fix is always safe, so 13 is not in the list. Source for 13 and 14: pgsql-hackers,
/// <https://www.mail-archive.com/pgsql-hackers@lists.postgresql.org/msg192952.html>.
const ADDS_TABLES_SINCE: [i32; 4] = [140_018, 150_013, 160_009, 170_005];

/// First version with row filters, column lists and whole schemas in publications.
const SCHEMAS_SINCE: i32 = 150_000;

/// Candidates for the configured names: relations of these names in their schemas, or in those of
/// the search path. The schemas are joined first, because thousands of them may have a table of the
/// same name. `direct` are these, `named` also the tables behind views; `below` are the partitions
/// at all levels, `above` the tables that they are partitions of. No lock is taken.
const RELATIONS: &str = "WITH RECURSIVE \
    wanted(place, namespace, name) AS (\
      SELECT * FROM ROWS FROM (pg_catalog.unnest($2::int4[]), pg_catalog.unnest($3::text[]), \
      pg_catalog.unnest($4::text[]))), \
    placed AS (\
      SELECT place, namespace, name FROM wanted WHERE namespace IS NOT NULL \
      UNION ALL SELECT w.place, s.namespace::text, w.name FROM wanted w, \
        pg_catalog.unnest(pg_catalog.current_schemas(true)) AS s(namespace) \
        WHERE w.namespace IS NULL), \
    spaced AS MATERIALIZED (\
      SELECT p.place, p.name, n.oid, n.xmin AS version \
      FROM placed p JOIN pg_catalog.pg_namespace n ON n.nspname = p.namespace), \
    direct AS MATERIALIZED (\
      SELECT s.place, c.oid, c.relkind, s.version AS namespace_xmin, \
      pg_catalog.row_security_active(c.oid) AS secured \
      FROM spaced s JOIN pg_catalog.pg_class c ON c.relnamespace = s.oid AND c.relname = s.name), \
    named AS MATERIALIZED (\
      SELECT * FROM direct UNION ALL \
      SELECT v.place, c.oid, c.relkind, n.xmin, pg_catalog.row_security_active(c.oid) \
      FROM direct v CROSS JOIN LATERAL (SELECT DISTINCT d.refobjid AS oid \
          FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_depend d \
          ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND d.objid = r.oid \
          AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass \
          WHERE r.ev_class = v.oid AND d.refobjid <> v.oid) AS behind \
        JOIN pg_catalog.pg_class c ON c.oid = behind.oid \
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE v.relkind = 'v'), \
    below(oid, relkind) AS (\
      SELECT oid, relkind FROM named \
      UNION SELECT c.oid, c.relkind FROM below b JOIN pg_catalog.pg_inherits i \
      ON i.inhparent = b.oid \
        JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid WHERE b.relkind = 'p'), \
    above(oid) AS (\
      SELECT oid FROM named \
      UNION SELECT i.inhparent FROM above a JOIN pg_catalog.pg_inherits i ON i.inhrelid = a.oid), \
    relations AS MATERIALIZED (SELECT oid FROM below UNION SELECT oid FROM above), ";

/// The columns' types and their components. The range of a multirange has a column of its own from
/// version 14 on.
const TYPES: &str = "types(oid) AS (\
      SELECT a.atttypid FROM named JOIN pg_catalog.pg_attribute a ON a.attrelid = named.oid \
        WHERE a.attnum > 0 AND NOT a.attisdropped \
      UNION SELECT next.oid FROM types JOIN pg_catalog.pg_type t ON t.oid = types.oid \
        CROSS JOIN LATERAL (SELECT t.typelem AS oid UNION ALL SELECT t.typbasetype \
          UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a \
            WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped \
          UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid \
          UNION ALL SELECT r.rngtypid FROM pg_catalog.pg_range r WHERE t.typtype = 'm' \
            AND (pg_catalog.to_jsonb(r)->>'rngmultitypid')::oid = t.oid) AS next \
        WHERE next.oid <> 0), \
    publication AS MATERIALIZED (SELECT oid, xmin AS version FROM pg_catalog.pg_publication \
    WHERE pubname = $1::text) ";

/// Lists without an order: the same plan over the same rows returns the same list.
const PRINT: &str = "SELECT pg_catalog.sha256(pg_catalog.convert_to(ROW(\
    current_user, pg_catalog.current_schemas(true), \
    (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user), \
    (SELECT pg_catalog.array_agg(oid) FROM pg_catalog.pg_roles \
    WHERE pg_catalog.pg_has_role(oid, 'USAGE')), \
    (SELECT ROW(pg_catalog.array_agg(place), pg_catalog.array_agg(oid), \
    pg_catalog.array_agg(namespace_xmin), \
      pg_catalog.array_agg(secured)) FROM named), \
    (SELECT ROW(pg_catalog.array_agg(c.oid), pg_catalog.array_agg(c.xmin)) \
      FROM relations r JOIN pg_catalog.pg_class c ON c.oid = r.oid), \
    (SELECT pg_catalog.array_agg(a.xmin) FROM named JOIN pg_catalog.pg_attribute a \
    ON a.attrelid = named.oid \
      WHERE a.attnum > 0), \
    (SELECT pg_catalog.array_agg(r.xmin) FROM named JOIN pg_catalog.pg_rewrite r \
    ON r.ev_class = named.oid), \
    (SELECT ROW(pg_catalog.array_agg(i.xmin), pg_catalog.array_agg(c.xmin)) FROM relations r \
      JOIN pg_catalog.pg_index i ON i.indrelid = r.oid JOIN pg_catalog.pg_class c \
      ON c.oid = i.indexrelid), \
    (SELECT pg_catalog.array_agg(i.xmin) FROM relations r JOIN pg_catalog.pg_inherits i \
    ON i.inhparent = r.oid), \
    (SELECT pg_catalog.array_agg(i.xmin) FROM relations r JOIN pg_catalog.pg_inherits i \
    ON i.inhrelid = r.oid), \
    (SELECT ROW(pg_catalog.array_agg(t.oid), pg_catalog.array_agg(t.xmin)) \
      FROM types JOIN pg_catalog.pg_type t ON t.oid = types.oid), \
    (SELECT pg_catalog.array_agg(e.xmin) FROM types JOIN pg_catalog.pg_enum e \
    ON e.enumtypid = types.oid), \
    (SELECT pg_catalog.array_agg(a.xmin) FROM types JOIN pg_catalog.pg_type t ON t.oid = types.oid \
      JOIN pg_catalog.pg_attribute a ON a.attrelid = t.typrelid WHERE a.attnum > 0), \
    (SELECT ROW(oid, version) FROM publication), \
    (SELECT pg_catalog.array_agg(p.xmin) FROM publication JOIN pg_catalog.pg_publication_rel p \
    ON p.prpubid = publication.oid \
      JOIN relations r ON r.oid = p.prrelid)";

const PUBLISHED_SCHEMAS: &str = ", (SELECT pg_catalog.array_agg(p.xmin) FROM publication \
    JOIN pg_catalog.pg_publication_namespace p ON p.pnpubid = publication.oid)";

const PRINT_END: &str = ")::text, 'UTF8'))";

/// Equal as long as nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(Vec<u8>);

/// Reads fingerprints on one connection.
pub(crate) struct Scanner {
    statement: Statement,
    publication: String,
    version: i32,
    places: Vec<i32>,
    namespaces: Vec<Option<String>>,
    names: Vec<String>,
}

impl Scanner {
    /// Prepares the statement.
    ///
    /// # Errors
    /// An error of the driver.
    pub(crate) async fn prepare(client: &Client, config: &Config) -> Result<Self, Error> {
        const VERSION: &str = "SELECT pg_catalog.current_setting('server_version_num')::int4";
        // Planned once, without the number of rows requested: it must use the indexes, not scan the
        // catalogue, which is large in some databases. JIT compilation would take longer than the
        // statement.
        const SETTINGS: &str = "SET plan_cache_mode = force_generic_plan; SET jit = off; \
            SET enable_hashjoin = off; SET enable_mergejoin = off";
        client.batch_execute(SETTINGS).await?;
        let version: i32 = client.query_one(VERSION, &[]).await?.try_get(0)?;
        let schemas = if version >= SCHEMAS_SINCE { PUBLISHED_SCHEMAS } else { "" };
        let sql = [RELATIONS, TYPES, PRINT, schemas, PRINT_END].concat();
        let types = [Type::TEXT, Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY];
        let statement = client.prepare_typed(&sql, &types).await?;
        let mut places = Vec::new();
        let mut namespaces = Vec::new();
        let mut names = Vec::new();
        let tables = config.server.collections.iter().flat_map(|spec| {
            let children = spec.embed.iter().map(|embed| embed.table.as_str());
            std::iter::once(spec.table.as_str()).chain(children)
        });
        for (place, table) in (0..).zip(tables) {
            for (namespace, name) in readings(table) {
                places.push(place);
                namespaces.push(namespace.map(str::to_owned));
                names.push(name.to_owned());
            }
        }
        Ok(Self {
            statement,
            publication: config.publication.clone(),
            version,
            places,
            namespaces,
            names,
        })
    }

    /// Returns whether a running stream delivers the changes of a table added to its publication.
    pub(crate) fn streams_take_new_tables(&self) -> bool {
        takes_new_tables(self.version)
    }

    /// Reads the fingerprint.
    ///
    /// # Errors
    /// An error of the driver.
    pub(crate) async fn scan(&self, client: &Client) -> Result<Fingerprint, Error> {
        let Self { statement, publication, places, namespaces, names, .. } = self;
        let row = client.query_one(statement, &[publication, places, namespaces, names]).await?;
        row.try_get(0).map(Fingerprint)
    }
}

fn takes_new_tables(version: i32) -> bool {
    let since = ADDS_TABLES_SINCE.iter().find(|since| **since / 10_000 == version / 10_000);
    since.map_or(version >= 180_000, |since| version >= *since)
}

/// Returns the possible meanings of a configured name: a table in the search path, or a schema and
/// a table, divided at any dot.
fn readings(table: &str) -> impl Iterator<Item = (Option<&str>, &str)> {
    let divided = table.match_indices('.').map(|(at, _)| (Some(&table[..at]), &table[at + 1..]));
    std::iter::once((None, table)).chain(divided)
}

/// Number of surveys taken for a fingerprint.
#[derive(Debug)]
pub(crate) struct Surveyed {
    /// Read before the survey, so that the next check sees a change in between.
    print: Fingerprint,
    surveys: u8,
}

impl Surveyed {
    /// Returns the state after one survey for this fingerprint.
    pub(crate) fn once(print: Fingerprint) -> Self {
        Self { print, surveys: 1 }
    }

    /// Returns whether another survey must be taken for this fingerprint, and counts it.
    pub(crate) fn needs_survey(&mut self, print: Fingerprint) -> bool {
        if self.print != print {
            *self = Self::once(print);
            return true;
        }
        let needs_survey = self.surveys < SURVEYS_EACH;
        self.surveys += u8::from(needs_survey);
        needs_survey
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_divided_at_any_dot() {
        let all: Vec<_> = readings("a.b.c").collect();
        assert_eq!(all, [(None, "a.b.c"), (Some("a"), "b.c"), (Some("a.b"), "c")]);
        assert_eq!(readings("a").collect::<Vec<_>>(), [(None, "a")]);
    }

    #[test]
    fn servers_that_forget_added_tables_are_known_by_their_versions() {
        for without in [120_022, 130_021, 130_023, 140_017, 150_012, 160_008, 170_004] {
            assert!(!takes_new_tables(without), "{without}");
        }
        for with in [140_018, 150_013, 150_018, 160_009, 170_005, 180_000, 190_001] {
            assert!(takes_new_tables(with), "{with}");
        }
    }

    #[test]
    fn each_fingerprint_gets_so_many_surveys() {
        let print = |n| Fingerprint(vec![n]);
        let mut surveyed = Surveyed::once(print(1));
        assert_eq!(
            [1, 1, 1, 1, 1, 2, 2, 1].map(|n| surveyed.needs_survey(print(n))),
            [true, true, true, true, false, true, true, true]
        );
    }
}
