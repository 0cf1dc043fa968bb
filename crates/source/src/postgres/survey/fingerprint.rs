//! Whether a survey would bring anything new, asked with one statement whatever the number of collections.
//!
//! A row of the catalogue has another `xmin`, the transaction that wrote it, after every change. So the fingerprint is made
//! of the `xmin` of all rows that a [`super::Survey`] depends on, of the oids that the configured names lead to, and of the
//! user's rights. It may change without need (after a GRANT to somebody else); then a survey is taken in vain.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Statement};

use super::super::config::Config;

/// Surveys taken for each fingerprint. Between a commit and its message to the other sessions' caches there is a moment in
/// which the catalogue's rows are new already and what the server's functions tell is not; the second survey comes
/// [`Config::schema_poll`] later.
const SURVEYS_EACH: u8 = 2;

/// Row filters, column lists and whole schemas came into publications with this version.
const SCHEMAS_SINCE: i32 = 150_000;

/// What the configured names may lead to: relations of their names in their schemas, or in those of the search path. The
/// schemas come first, for there may be thousands with a table of the same name. `below` are their partitions with all
/// levels, `above` what they are partitions of themselves. No lock is taken.
const RELATIONS: &str = "WITH RECURSIVE \
    wanted(place, namespace, name) AS (\
      SELECT * FROM ROWS FROM (pg_catalog.unnest($2::int4[]), pg_catalog.unnest($3::text[]), pg_catalog.unnest($4::text[]))), \
    placed AS (\
      SELECT place, namespace, name FROM wanted WHERE namespace IS NOT NULL \
      UNION ALL SELECT w.place, s.namespace::text, w.name FROM wanted w, \
        pg_catalog.unnest(pg_catalog.current_schemas(true)) AS s(namespace) WHERE w.namespace IS NULL), \
    spaced AS MATERIALIZED (\
      SELECT p.place, p.name, n.oid, n.xmin AS version \
      FROM placed p JOIN pg_catalog.pg_namespace n ON n.nspname = p.namespace), \
    named AS MATERIALIZED (\
      SELECT s.place, c.oid, c.relkind, s.version AS namespace_xmin, pg_catalog.row_security_active(c.oid) AS secured \
      FROM spaced s JOIN pg_catalog.pg_class c ON c.relnamespace = s.oid AND c.relname = s.name), \
    below(oid, relkind) AS (\
      SELECT oid, relkind FROM named \
      UNION SELECT c.oid, c.relkind FROM below b JOIN pg_catalog.pg_inherits i ON i.inhparent = b.oid \
        JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid WHERE b.relkind = 'p'), \
    above(oid) AS (\
      SELECT oid FROM named \
      UNION SELECT i.inhparent FROM above a JOIN pg_catalog.pg_inherits i ON i.inhrelid = a.oid), \
    relations AS MATERIALIZED (SELECT oid FROM below UNION SELECT oid FROM above), ";

/// The columns' types and all that they are made of. The range of a multirange has a column of its own from version 14 on.
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
    publication AS MATERIALIZED (SELECT oid, xmin AS version FROM pg_catalog.pg_publication WHERE pubname = $1::text) ";

/// Lists without an order: the same plan over the same rows gives the same one.
const PRINT: &str = "SELECT pg_catalog.sha256(pg_catalog.convert_to(ROW(\
    current_user, pg_catalog.current_schemas(true), \
    (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user), \
    (SELECT pg_catalog.array_agg(oid) FROM pg_catalog.pg_roles WHERE pg_catalog.pg_has_role(oid, 'USAGE')), \
    (SELECT ROW(pg_catalog.array_agg(place), pg_catalog.array_agg(oid), pg_catalog.array_agg(namespace_xmin), \
      pg_catalog.array_agg(secured)) FROM named), \
    (SELECT ROW(pg_catalog.array_agg(c.oid), pg_catalog.array_agg(c.xmin)) \
      FROM relations r JOIN pg_catalog.pg_class c ON c.oid = r.oid), \
    (SELECT pg_catalog.array_agg(a.xmin) FROM named JOIN pg_catalog.pg_attribute a ON a.attrelid = named.oid \
      WHERE a.attnum > 0), \
    (SELECT ROW(pg_catalog.array_agg(i.xmin), pg_catalog.array_agg(c.xmin)) FROM relations r \
      JOIN pg_catalog.pg_index i ON i.indrelid = r.oid JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid), \
    (SELECT pg_catalog.array_agg(i.xmin) FROM relations r JOIN pg_catalog.pg_inherits i ON i.inhparent = r.oid), \
    (SELECT pg_catalog.array_agg(i.xmin) FROM relations r JOIN pg_catalog.pg_inherits i ON i.inhrelid = r.oid), \
    (SELECT ROW(pg_catalog.array_agg(t.oid), pg_catalog.array_agg(t.xmin)) \
      FROM types JOIN pg_catalog.pg_type t ON t.oid = types.oid), \
    (SELECT pg_catalog.array_agg(e.xmin) FROM types JOIN pg_catalog.pg_enum e ON e.enumtypid = types.oid), \
    (SELECT pg_catalog.array_agg(a.xmin) FROM types JOIN pg_catalog.pg_type t ON t.oid = types.oid \
      JOIN pg_catalog.pg_attribute a ON a.attrelid = t.typrelid WHERE a.attnum > 0), \
    (SELECT ROW(oid, version) FROM publication), \
    (SELECT pg_catalog.array_agg(p.xmin) FROM publication JOIN pg_catalog.pg_publication_rel p ON p.prpubid = publication.oid \
      JOIN relations r ON r.oid = p.prrelid)";

const PUBLISHED_SCHEMAS: &str = ", (SELECT pg_catalog.array_agg(p.xmin) FROM publication \
    JOIN pg_catalog.pg_publication_namespace p ON p.pnpubid = publication.oid)";

const PRINT_END: &str = ")::text, 'UTF8'))";

/// Equal as long as nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(Vec<u8>);

/// Takes fingerprints on one connection.
pub(crate) struct Scanner {
    statement: Statement,
    publication: String,
    places: Vec<i32>,
    namespaces: Vec<Option<String>>,
    names: Vec<String>,
}

impl Scanner {
    /// # Errors
    /// Of the driver.
    pub(crate) async fn prepare(client: &Client, config: &Config) -> Result<Self, Error> {
        const VERSION: &str = "SELECT pg_catalog.current_setting('server_version_num')::int4";
        // Planned once, without knowing how few rows are asked for: it shall go by the indexes and not through the whole
        // catalogue, which in some databases is large. Compilation would take longer than it runs.
        const SETTINGS: &str = "SET plan_cache_mode = force_generic_plan; SET jit = off; \
            SET enable_hashjoin = off; SET enable_mergejoin = off";
        client.batch_execute(SETTINGS).await?;
        let version: i32 = client.query_one(VERSION, &[]).await?.try_get(0)?;
        let schemas = if version >= SCHEMAS_SINCE { PUBLISHED_SCHEMAS } else { "" };
        let sql = [RELATIONS, TYPES, PRINT, schemas, PRINT_END].concat();
        let types = [Type::TEXT, Type::INT4_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY];
        let statement = client.prepare_typed(&sql, &types).await?;
        let (mut places, mut namespaces, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for (place, spec) in (0..).zip(&config.collections) {
            for (namespace, name) in readings(&spec.table) {
                places.push(place);
                namespaces.push(namespace.map(str::to_owned));
                names.push(name.to_owned());
            }
        }
        Ok(Self { statement, publication: config.publication.clone(), places, namespaces, names })
    }

    /// # Errors
    /// Of the driver.
    pub(crate) async fn scan(&self, client: &Client) -> Result<Fingerprint, Error> {
        let Self { statement, publication, places, namespaces, names } = self;
        let row = client.query_one(statement, &[publication, places, namespaces, names]).await?;
        row.try_get(0).map(Fingerprint)
    }
}

/// What a configured name may mean: the name of a table in the search path, or a schema and a table, divided at any dot.
fn readings(table: &str) -> impl Iterator<Item = (Option<&str>, &str)> {
    let divided = table.match_indices('.').map(|(at, _)| (Some(&table[..at]), &table[at + 1..]));
    std::iter::once((None, table)).chain(divided)
}

/// What surveys stand for.
#[derive(Debug)]
pub(crate) struct Surveyed {
    /// Taken before the survey, so that a change in between is seen by the next look.
    print: Fingerprint,
    surveys: u8,
}

impl Surveyed {
    /// One survey was taken after this fingerprint, or is about to be.
    pub(crate) fn once(print: Fingerprint) -> Self {
        Self { print, surveys: 1 }
    }

    /// Whether another survey must be taken after this fingerprint; it counts as taken.
    pub(crate) fn wants_another(&mut self, print: Fingerprint) -> bool {
        if self.print != print {
            *self = Self::once(print);
            return true;
        }
        let wants = self.surveys < SURVEYS_EACH;
        self.surveys += u8::from(wants);
        wants
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
    fn each_fingerprint_gets_two_surveys() {
        let print = |n| Fingerprint(vec![n]);
        let mut surveyed = Surveyed::once(print(1));
        assert_eq!(
            [1, 1, 1, 2, 2, 2, 1].map(|n| surveyed.wants_another(print(n))),
            [true, false, false, true, true, false, true]
        );
    }
}
