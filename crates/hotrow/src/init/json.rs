//! The result of `hotrow init` for programs.

use std::path::Path;

use hotrow_source::discovery::{Discovered, DiscoveredTable};
use hotrow_source::preflight::Finding;
use serde_json::{Value, json};

use super::origin::Origin;

/// Returns the object; `docs/init.md` describes it.
pub(super) fn object(
    found: &Discovered,
    origin: &Origin,
    output: Option<&Path>,
    text: &str,
) -> Value {
    json!({
        "schema": "hotrow.init/1",
        "database": found.database,
        "url_env": origin.variable,
        "output": output.map(|path| path.display().to_string()),
        "file": text,
        "findings": findings(&found.findings),
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
