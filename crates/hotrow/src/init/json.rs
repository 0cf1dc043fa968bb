//! The result of `hotrow init` for programs.
//!
//! Reference `results`: `hotrow.init/1`
//!
//! - `schema`: `"hotrow.init/1"`
//! - `database`: Product and database
//! - `url_env`: Variable that the file names; null: the file has the connection string itself
//! - `output`: File that was written; null without `--output`
//! - `file`: Its text
//! - `findings`: What keeps every table from being served: `problem` and `remedy`
//! - `setup`: Statements that remove these, in one block; empty: there are none
//! - `has_more_tables`: Whether tables beyond the first 1,000 were left out
//! - `tables[]`: In order of schema and name
//! - `tables[].{name,namespace,kind}`: Table, its schema or database, `"table"`, `"view"` and the
//!   like
//! - `tables[].{rows,bytes}`: Estimates, or null
//! - `tables[].{collection,table,key,exclude}`: Settings in the file
//! - `tables[].is_served`: Whether it is served, or a comment
//! - `tables[].reasons`: Why it is a comment: `problem` and `remedy`

use std::path::Path;

use hotrow_source::discovery::{Discovered, DiscoveredTable};
use hotrow_source::preflight::Finding;
use serde_json::{Value, json};

use super::origin::Origin;
use super::setup::Setup;

/// Returns the object; `docs/reference/results.md` describes it.
pub(super) fn object(
    found: &Discovered,
    origin: &Origin,
    output: Option<&Path>,
    text: &str,
    setup: &Setup,
) -> Value {
    json!({
        "schema": "hotrow.init/1",
        "database": found.database,
        "url_env": origin.variable,
        "output": output.map(|path| path.display().to_string()),
        "file": text,
        "findings": findings(&found.findings),
        "setup": setup.text,
        "has_more_tables": found.is_cut,
        "tables": found.tables.iter().map(table).collect::<Vec<_>>(),
    })
}

fn table(table: &DiscoveredTable) -> Value {
    let DiscoveredTable { listed, config, findings: reasons } = table;
    json!({
        "name": listed.name,
        "namespace": listed.schema,
        "kind": listed.kind,
        "rows": listed.rows,
        "bytes": listed.bytes,
        "collection": config.name,
        "table": config.table,
        "key": config.key,
        "exclude": config.exclude,
        "is_served": reasons.is_empty(),
        "reasons": findings(reasons),
    })
}

fn findings(findings: &[Finding]) -> Vec<Value> {
    findings.iter().map(|f| json!({"problem": f.problem, "remedy": f.remedy})).collect()
}

#[cfg(test)]
mod tests {
    use hotrow_source::discovery::{ListedColumn, ListedTable, joined};

    use super::*;
    use crate::init::choice;
    use hotrow_testkit::doc_sync::assert_keys_documented;

    #[test]
    fn every_key_is_documented() {
        let column = ListedColumn { name: "id".into(), ..ListedColumn::default() };
        let listed = ListedTable { columns: vec![column], ..ListedTable::default() };
        let configs = choice::configs(std::slice::from_ref(&listed));
        let reasons = vec![vec![Finding::new("a", "b")]];
        let found = Discovered {
            tables: joined(vec![listed], configs, reasons),
            findings: vec![Finding::new("a", "b")],
            ..Discovered::default()
        };
        let setup = Setup::of(&found);
        let origin = Origin::read(&"sqlite:x".parse().unwrap(), None, &|_| {
            Err(std::env::VarError::NotPresent)
        });
        let document = object(&found, &origin.expect("a path"), None, "", &setup);
        let page = include_str!("../../../../docs/reference/results.md");
        assert_keys_documented(page, "hotrow.init/1", &document, &[]);
    }
}
