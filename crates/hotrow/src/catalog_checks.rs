//! Checks of the configuration against the catalogue, once the source is open.

use hotrow_config::Config;
use hotrow_source::sources::Sources;
use hotrow_types::key::{CollectionId, KeySchema, KeyType};

use crate::granted_columns;

/// Checks what the file says of columns.
///
/// # Errors
/// All columns that are not served, or all aliases whose columns have no form in common with ids.
pub(crate) fn check(config: &Config, sources: &Sources) -> Result<(), String> {
    granted_columns::check(config, sources).map_err(|unknown| unknown.to_string())?;
    let systems = |id| sources.of(id).database().system;
    let faults = aliases(config, sources.schemas(), systems);
    match faults.is_empty() {
        true => Ok(()),
        false => Err(faults.join("\n")),
    }
}

/// Returns the aliases that cannot be served, each with the reason.
fn aliases(
    config: &Config,
    schemas: &[KeySchema],
    systems: impl Fn(CollectionId) -> &'static str,
) -> Vec<String> {
    let mut faults = Vec::new();
    for (collection, own) in config.collections.iter().zip(schemas) {
        let Some(alias) = &collection.alias else { continue };
        let Some(keys) = schemas.get(usize::from(alias.of.0)) else { continue };
        for (schema, what) in [(own, "its columns"), (keys, "the key")] {
            let is_fit = |ty: &KeyType| match ty {
                KeyType::Integer | KeyType::Unsigned | KeyType::Text(_) => true,
                KeyType::Uuid => matches!(systems(alias.of), "postgresql" | "mongodb"),
                // Its rows of aliases have the id of the key, and members as records have them.
                KeyType::ObjectId | KeyType::Bytes => systems(alias.of) == "mongodb",
                KeyType::Canonical(_) => false,
            };
            if let Some(ty) = schema.types().iter().find(|ty| !is_fit(ty)) {
                faults.push(format!(
                    "alias `{}`: {what} must be integers or texts (in PostgreSQL also UUIDs), \
                     whose form in a record is that of an id, not {}\n     -> remove the alias",
                    collection.name,
                    ty.name()
                ));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use hotrow_types::key::{CanonicalForm, Collation};

    use super::*;
    use crate::config::{Overrides, parse};

    #[test]
    fn columns_of_aliases_have_the_form_of_ids() {
        let text = "[source]\nurl = \"sqlite:x.db\"\n[collections.users.by.email]\n\
                    columns = [\"email\"]";
        let config = parse(text, "x.toml", &|name| std::env::var(name), &Overrides::default());
        let config = config.unwrap().server;
        let faults = |key, alias, system| {
            let schemas = [(0, key), (1, alias)];
            let schemas = schemas.map(|(id, ty)| KeySchema::new(CollectionId(id), vec![ty]));
            aliases(&config, &schemas, |_| system).join(" ")
        };
        let text = KeyType::Text(Collation::Binary);
        assert_eq!(faults(KeyType::Integer, text, "sqlite"), "");
        assert_eq!(faults(KeyType::Unsigned, KeyType::Integer, "mysql"), "");
        assert_eq!(faults(KeyType::Uuid, KeyType::Uuid, "postgresql"), "");
        assert!(
            faults(KeyType::Uuid, text, "sqlite").contains("`users/by/email`: the key must be")
        );
        let bytes = faults(KeyType::Integer, KeyType::Bytes, "postgresql");
        assert!(bytes.contains("its columns must be"), "{bytes}");
        assert_eq!(faults(KeyType::ObjectId, KeyType::Bytes, "mongodb"), "");
        let date = KeyType::Canonical(CanonicalForm::Date);
        assert!(!faults(date, text, "postgresql").is_empty());
    }
}
