//! Conditions on a table and on the user's privileges.

use super::super::config::CollectionConfig;
use super::catalog::{Column, Facts};
use super::types::Types;
use super::{KeyColumn, listed, quote};
use hotrow_source::preflight::Finding;

/// Returns the reasons that the table itself cannot be served.
pub(super) fn check(spec: &CollectionConfig, facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let table = format!("{}.{}", quote(&facts.schema), quote(&facts.name));
    let finding = |what: &str, remedy: String| {
        Finding::new(format!("collection `{}`: `{}` {what}", spec.name, spec.table), remedy)
    };
    let mut of_feed = |what, remedy| findings.push(finding(what, remedy).of_feed());
    if facts.relkind == 'm' {
        let what = "is a materialized view: the change feed contains no changes of it";
        of_feed(what, "serve an ordinary table".into());
    }
    if facts.relpersistence == 'u' {
        let what = "is unlogged: its changes are not in the log";
        of_feed(what, format!("ALTER TABLE {table} SET LOGGED;"));
    }
    if facts.is_partition {
        let what = "is a partition: its changes are published under the name of the whole table";
        of_feed(what, "serve the partitioned table".into());
    }
    if facts.row_security {
        let what = "has row-level security that applies to this user: a record could change \
                    without a change of its row";
        of_feed(what, format!("ALTER ROLE {} BYPASSRLS;", quote(&facts.user)));
    }
    let mut refuse = |what, remedy| findings.push(finding(what, remedy));
    if facts.relkind == 'f' {
        let what = "is a foreign table: its changes happen elsewhere";
        refuse(what, "serve it from the database where it lives".into());
    }
    if facts.relpersistence == 't' {
        refuse("is a temporary table of one session", "serve an ordinary table".into());
    }
    if facts.schema == "pg_catalog" || facts.schema == "information_schema" {
        refuse(
            "belongs to the system: its changes are not in the feed",
            "serve a table of your own".into(),
        );
    }
    if facts.has_children {
        refuse(
            "has child tables (INHERITS): their rows are read with it, \
             but their changes have other names",
            "use declarative partitioning, or serve a table without children".into(),
        );
    }
    findings
}

/// Returns the missing privileges, each with the GRANT that gives it.
pub(super) fn check_privileges(
    spec: &CollectionConfig,
    facts: &Facts,
    key: &[KeyColumn],
    served: &[&Column],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let schema = quote(&facts.schema);
    let user = quote(&facts.user);
    if !facts.schema_usage {
        findings.push(Finding::new(
            format!(
                "collection `{}`: user `{}` may not use schema `{}`",
                spec.name, facts.user, facts.schema
            ),
            format!("GRANT USAGE ON SCHEMA {schema} TO {user};"),
        ));
    }
    let needed = facts.columns.iter().filter(|c| {
        served.iter().any(|s| s.number == c.number) || key.iter().any(|k| k.number == c.number)
    });
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

/// Returns the served columns whose values contain names of other objects, as the server writes
/// them.
pub(super) fn check_names(
    spec: &CollectionConfig,
    types: &Types,
    served: &[&Column],
) -> Vec<Finding> {
    let column = |column: &&&Column| types.reads_names(column.type_oid);
    let finding = |column: &&Column| {
        Finding::new(
            format!(
                "collection `{}`: the values of `{}` ({}) contain names of objects or roles, which \
                 can be changed without a change of the row",
                spec.name,
                column.name,
                types.name(column.type_oid)
            ),
            format!("exclude = [\"{}\"]", column.name),
        )
    };
    served.iter().filter(column).map(finding).collect()
}
