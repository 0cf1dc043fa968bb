//! Columns granted to roles, compared with the catalogue at the start: a misspelt name would grant
//! nothing without a sign of it.

use std::fmt;

use hotrow_config::Config;
use hotrow_source::preflight::listed;
use hotrow_source::sources::Sources;

/// Grants of columns that no record has; at least one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownColumns(Vec<UnknownColumn>);

#[derive(Debug, PartialEq, Eq)]
struct UnknownColumn {
    role: String,
    collection: String,
    column: String,
    served: Vec<String>,
}

impl fmt::Display for UnknownColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "roles are limited to columns that are not served ({}):", self.0.len())?;
        for UnknownColumn { role, collection, column, served } in &self.0 {
            write!(
                f,
                "\n  access.roles.{role}.columns.{collection}.names: no column `{column}`\n     \
                 -> name columns of its records: {}",
                listed(served)
            )?;
        }
        Ok(())
    }
}

/// Compares the grants with the columns that the source serves. A collection whose fields the
/// catalogue does not list has none to compare with, as in MongoDB.
///
/// # Errors
/// All granted columns that are not served.
pub(crate) fn check(config: &Config, sources: &Sources) -> Result<(), UnknownColumns> {
    let mut unknown = Vec::new();
    for role in config.access.iter().flat_map(|access| &access.granted.roles) {
        for (id, columns) in &role.columns {
            let Some(fields) = sources.fields(*id) else { continue };
            let served: Vec<String> = fields.iter().map(|field| field.name.clone()).collect();
            for column in columns.names().filter(|column| !served.contains(column)) {
                unknown.push(UnknownColumn {
                    role: role.name.clone(),
                    collection: config.collections[usize::from(id.0)].name.clone(),
                    column,
                    served: served.clone(),
                });
            }
        }
    }
    if unknown.is_empty() { Ok(()) } else { Err(UnknownColumns(unknown)) }
}
