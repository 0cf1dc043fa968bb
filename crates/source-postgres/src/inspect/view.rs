//! Views whose rows depend on one row of one table each: only these can be served, by the changes
//! of that table.
//!
//! A view qualifies if the server itself could update it (one table in FROM; no DISTINCT, grouping,
//! set operation, LIMIT, aggregate, window function, or set-returning function) and if it contains
//! no subquery and no function whose result depends on anything but its arguments. So a row of the
//! view is a function of the row of the table with the same key, and a change of one is a change of
//! the other. All facts come from the catalogue: `pg_rewrite` has the parsed query, `pg_depend` the
//! objects that it uses.

use std::collections::HashMap;

use tokio_postgres::types::{Oid, Type};
use tokio_postgres::{Client, Error, Row};

use super::super::config::CollectionConfig;
use super::catalog::{self, Facts, query};
use super::{Refused, listed};
use hotrow_source::preflight::Finding;

/// Parts of a query that compute a value from the row alone. PostgreSQL 16 renamed some of them.
const ROW_NODES: [&str; 27] = [
    "QUERY",
    "ALIAS",
    "RTE",
    "RANGETBLENTRY",
    "RTEPERMISSIONINFO",
    "RANGETBLREF",
    "FROMEXPR",
    "TARGETENTRY",
    "VAR",
    "CONST",
    "OPEXPR",
    "FUNCEXPR",
    "BOOLEXPR",
    "NULLTEST",
    "BOOLEANTEST",
    "RELABELTYPE",
    "CASE",
    "CASEEXPR",
    "WHEN",
    "CASEWHEN",
    "CASETESTEXPR",
    "COALESCE",
    "COALESCEEXPR",
    "SCALARARRAYOPEXPR",
    "ARRAY",
    "ARRAYEXPR",
    "DISTINCTEXPR",
];

/// The table that a view selects from.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) facts: Facts,
    /// Per column of the view, by its number, the number of the table's column that it passes
    /// through. Computed columns are not in it.
    pub(super) passed: HashMap<i16, i16>,
}

/// Facts about a view's query. In the text of a parsed query, braces and blanks within names are
/// escaped, so that no name looks like a part of the query. Functions with a number below 16384
/// belong to the server; they are not in `pg_depend`.
const VIEW_SQL: &str = "WITH view AS (SELECT c.oid AS view, c.reloptions, r.oid AS rule, \
      r.ev_action::text AS tree FROM pg_catalog.pg_class c JOIN pg_catalog.pg_rewrite r \
      ON r.ev_class = c.oid AND r.rulename = '_RETURN' WHERE c.oid = $1), \
    uses AS (SELECT d.refclassid, d.refobjid FROM view JOIN pg_catalog.pg_depend d \
      ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND d.objid = view.rule \
      WHERE NOT (d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass \
        AND d.refobjid = view.view)), \
    functions AS ( \
      SELECT m[1]::oid AS oid FROM view, \
        pg_catalog.regexp_matches(tree, ':funcid (\\d+)', 'g') AS m \
      UNION SELECT o.oprcode::oid FROM view, \
        pg_catalog.regexp_matches(tree, ':opno (\\d+)', 'g') AS m \
        JOIN pg_catalog.pg_operator o ON o.oid = m[1]::oid), \
    passed AS (SELECT m[1]::int4 AS base, m[2]::int4 AS place FROM view, \
      pg_catalog.regexp_matches(tree, \
        '\\{TARGETENTRY :expr \\{VAR :varno \\d+ :varattno (\\d+) [^{}]*\\} :resno (\\d+) ', 'g') \
        AS m) \
    SELECT pg_catalog.pg_relation_is_updatable(view, false) & 16 <> 0, \
    (SELECT count(*) FROM pg_catalog.pg_rewrite WHERE ev_class = view) = 1, \
    EXISTS (SELECT FROM pg_catalog.pg_options_to_table(reloptions) \
      WHERE option_name = 'security_barrier' AND option_value::bool), \
    ARRAY(SELECT DISTINCT refobjid FROM uses \
      WHERE refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass), \
    ARRAY(SELECT DISTINCT refclassid::pg_catalog.regclass::text FROM uses WHERE refclassid NOT IN \
      ('pg_catalog.pg_class'::pg_catalog.regclass, 'pg_catalog.pg_type'::pg_catalog.regclass, \
       'pg_catalog.pg_collation'::pg_catalog.regclass)), \
    ARRAY(SELECT DISTINCT m[1] FROM pg_catalog.regexp_matches(tree, \
      '(?<!\\\\)\\{([A-Z]+)', 'g') AS m), \
    ARRAY(SELECT p.proname::text FROM functions f LEFT JOIN pg_catalog.pg_proc p ON p.oid = f.oid \
      WHERE p.provolatile IS DISTINCT FROM 'i' OR p.oid >= 16384 ORDER BY 1), \
    tree ~ ':varattno (-|0 )', \
    ARRAY(SELECT place::int2 FROM passed ORDER BY place), \
    ARRAY(SELECT base::int2 FROM passed ORDER BY place) FROM view";

/// A view as the catalogue describes it.
struct View {
    is_updatable: bool,
    has_one_rule: bool,
    is_barrier: bool,
    relations: Vec<Oid>,
    /// Catalogues of other objects that the query uses.
    others: Vec<String>,
    nodes: Vec<String>,
    /// Functions that are not the server's own, or not immutable.
    functions: Vec<Option<String>>,
    /// It uses a system column or a whole row.
    uses_system_columns: bool,
    passed: HashMap<i16, i16>,
}

impl View {
    fn of(row: &Row) -> Result<Self, Error> {
        let places: Vec<i16> = row.try_get(8)?;
        let numbers: Vec<i16> = row.try_get(9)?;
        Ok(Self {
            is_updatable: row.try_get(0)?,
            has_one_rule: row.try_get(1)?,
            is_barrier: row.try_get(2)?,
            relations: row.try_get(3)?,
            others: row.try_get(4)?,
            nodes: row.try_get(5)?,
            functions: row.try_get(6)?,
            uses_system_columns: row.try_get(7)?,
            passed: places.into_iter().zip(numbers).collect(),
        })
    }

    /// Returns the reasons that a row of the view may depend on more than one row of a table.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.is_updatable || !self.has_one_rule || self.relations.len() != 1 {
            faults.push(
                "does not select from one table alone, or has DISTINCT, grouping, a set \
                 operation, WITH, LIMIT, an aggregate or a rule"
                    .to_owned(),
            );
        }
        if self.is_barrier {
            faults.push("is a security barrier".to_owned());
        }
        let known = |node: &&String| !ROW_NODES.contains(&node.as_str());
        let unknown: Vec<&String> = self.nodes.iter().filter(known).collect();
        if !unknown.is_empty() {
            faults.push(format!(
                "contains a subquery or an expression that may depend on more than the row ({})",
                listed(&unknown)
            ));
        }
        if !self.functions.is_empty() || !self.others.is_empty() {
            let named = self.functions.iter().map(|f| f.as_deref().unwrap_or("?").to_owned());
            let names: Vec<String> = named.chain(self.others.iter().cloned()).collect();
            faults.push(format!(
                "uses functions or objects that are not immutable or not PostgreSQL's own: {}",
                listed(&names)
            ));
        }
        if self.uses_system_columns {
            faults.push("uses a system column or a whole row as a value".to_owned());
        }
        faults
    }
}

/// Finds the table behind a view.
pub(super) async fn base(
    client: &Client,
    spec: &CollectionConfig,
    facts: &Facts,
) -> Result<Result<Base, Refused>, Error> {
    let rows = query(client, VIEW_SQL, &[(&facts.oid, Type::OID)]).await?;
    let finding = |fault: String| {
        Finding::new(
            format!("collection `{}`: the view `{}` {fault}", spec.name, spec.table),
            "serve the tables behind it, or a view whose rows depend on one row of one table each",
        )
    };
    let Some(row) = rows.first() else {
        return Ok(Err(vec![finding("was dropped".to_owned())]));
    };
    let view = View::of(row)?;
    let faults = view.faults();
    let ([oid], true) = (&view.relations[..], faults.is_empty()) else {
        return Ok(Err(faults.into_iter().map(finding).collect()));
    };
    let Some(base) = catalog::facts_of(client, *oid).await? else {
        return Ok(Err(vec![finding("selects from a table that was dropped".to_owned())]));
    };
    if base.relkind == 'v' {
        return Ok(Err(vec![finding("selects from another view".to_owned())]));
    }
    if base.has_row_security {
        let what = "selects from a table with row-level security, which applies to its owner";
        return Ok(Err(vec![finding(what.to_owned())]));
    }
    Ok(Ok(Base { facts: base, passed: view.passed }))
}

impl Base {
    /// Returns the settings under which the table itself is checked: its name, and the names that
    /// the key has there.
    pub(super) fn spec(
        &self,
        spec: &CollectionConfig,
        view: &Facts,
    ) -> Result<CollectionConfig, Refused> {
        let mut findings = Vec::new();
        let mut key = Vec::new();
        for name in &spec.key {
            let Some(column) = view.column(name) else {
                findings.push(view.no_column(spec, "key", name));
                continue;
            };
            let passed = self.passed.get(&column.number).and_then(|number| {
                self.facts.columns.iter().find(|column| column.number == *number)
            });
            match passed {
                Some(column) => key.push(column.name.clone()),
                None => findings.push(Finding::new(
                    format!(
                        "collection `{}`: the view `{}` computes its key column `{name}`",
                        spec.name, spec.table
                    ),
                    "let it pass a column of the table through as it is",
                )),
            }
        }
        if !findings.is_empty() {
            return Err(findings);
        }
        let table = format!("{}.{}", self.facts.schema, self.facts.name);
        Ok(CollectionConfig { table, key, ..spec.clone() })
    }
}
