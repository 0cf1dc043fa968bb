//! Which tables can be served at all, and what this user must be allowed.

use super::super::config::CollectionSpec;
use super::super::error::Finding;
use super::catalog::{Column, Facts};
use super::{KeyColumn, listed, quote};

/// What is wrong with the table itself.
pub(super) fn check(spec: &CollectionSpec, facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let table = format!("{}.{}", quote(&facts.schema), quote(&facts.name));
    let mut refuse = |what: &str, mend: String| {
        findings.push(Finding::new(format!("collection `{}`: `{}` {what}", spec.name, spec.table), mend));
    };
    match facts.relkind {
        'v' => refuse("is a view: the change feed tells nothing of views", "serve the tables behind it".into()),
        'm' => refuse("is a materialized view: the change feed tells nothing of it", "serve an ordinary table".into()),
        'f' => refuse(
            "is a foreign table: its changes happen elsewhere",
            "serve it from the database where it lives".into(),
        ),
        _ => {}
    }
    match facts.relpersistence {
        'u' => refuse("is unlogged: its changes are not in the log", format!("ALTER TABLE {table} SET LOGGED;")),
        't' => refuse("is a temporary table of one session", "serve an ordinary table".into()),
        _ => {}
    }
    if facts.schema == "pg_catalog" || facts.schema == "information_schema" {
        refuse("belongs to the system: its changes are not in the feed", "serve a table of your own".into());
    }
    if facts.is_partition {
        refuse(
            "is a partition: its changes are told under the name of the whole table",
            "serve the partitioned table".into(),
        );
    }
    if facts.has_children {
        refuse(
            "has child tables (INHERITS): their rows are read with it and their changes told under other names",
            "use declarative partitioning, or serve a table without children".into(),
        );
    }
    if facts.row_security {
        refuse(
            "has row-level security that applies to this user: what a row looks like could change without a change of the row",
            format!("ALTER ROLE {} BYPASSRLS;", quote(&facts.user)),
        );
    }
    findings
}

/// What this user may not read, with the GRANT that mends it.
pub(super) fn check_privileges(
    spec: &CollectionSpec,
    facts: &Facts,
    key: &[KeyColumn],
    served: &[&Column],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (schema, user) = (quote(&facts.schema), quote(&facts.user));
    if !facts.schema_usage {
        findings.push(Finding::new(
            format!("collection `{}`: user `{}` may not use schema `{}`", spec.name, facts.user, facts.schema),
            format!("GRANT USAGE ON SCHEMA {schema} TO {user};"),
        ));
    }
    let needed = facts
        .columns
        .iter()
        .filter(|c| served.iter().any(|s| s.number == c.number) || key.iter().any(|k| k.number == c.number));
    let forbidden: Vec<&str> = needed.filter(|c| !c.selectable).map(|c| c.name.as_str()).collect();
    if !forbidden.is_empty() {
        findings.push(Finding::new(
            format!(
                "collection `{}`: user `{}` may not read {} of `{}`",
                spec.name,
                facts.user,
                listed(&forbidden),
                spec.table
            ),
            format!("GRANT SELECT ON {schema}.{} TO {user};", quote(&facts.name)),
        ));
    }
    findings
}
