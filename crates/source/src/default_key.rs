//! The key of a collection whose configuration names none: the primary key of its table.

use hotrow_types::key::KEY_PARTS_MAX;

use crate::finding::Finding;
use crate::spec::CollectionConfig;

/// Column that was the key before primary keys were. Where a table has it beside another primary
/// key, neither is taken.
pub const ID: &str = "id";

/// Keys by the names of their collections, and the tables without an evident one.
#[derive(Clone, Debug, Default)]
pub struct DefaultKeys {
    /// Name of a collection, and its key.
    pub keys: Vec<(String, Vec<String>)>,
    /// Why a table has none.
    pub findings: Vec<Finding>,
}

impl DefaultKeys {
    /// Notes the primary key of a table, empty without one; `id`: the name of its column `id`.
    pub fn note(&mut self, spec: &CollectionConfig, id: Option<&str>, primary: Vec<String>) {
        let is_id = id.is_some_and(|id| *primary == [id]);
        let why = match (id, primary.len()) {
            (_, 1..=KEY_PARTS_MAX) if is_id || id.is_none() => {
                self.keys.push((spec.name.clone(), primary));
                return;
            }
            (Some(_), 1..) => format!(
                "has a column `{ID}` and the primary key ({}), so its key is not evident",
                primary.join(", ")
            ),
            (None, 1..) => format!("has a primary key of {} columns", primary.len()),
            (_, 0) => "has no primary key".to_owned(),
        };
        let choices = [primary, id.map(str::to_owned).into_iter().collect()];
        let fits = |key: &Vec<String>| (1..=KEY_PARTS_MAX).contains(&key.len());
        let choices: Vec<String> =
            choices.into_iter().filter(fits).map(|key| format!("key = {key:?}")).collect();
        let remedy = match choices.is_empty() {
            true => "write `key` with one to four columns that are unique together".to_owned(),
            false => format!("write one of these, if it is unique: {}", choices.join(" or ")),
        };
        let what = format!("collection `{}`: `{}` {why}", spec.name, spec.table);
        self.findings.push(Finding::new(what, remedy));
    }
}

/// Returns the finding about a table that has no key to serve it by.
pub fn none(spec: &CollectionConfig) -> Finding {
    Finding::new(
        format!(
            "collection `{}`: no columns of `{}` are known to be unique together and required",
            spec.name, spec.table
        ),
        "add a primary key, or a unique index over columns that are NOT NULL, and name its \
         columns in `key`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::EmbedConfig;

    #[test]
    fn the_primary_key_is_taken_unless_another_column_is_named_id() {
        let embed = EmbedConfig {
            name: "stock".into(),
            table: "stock".into(),
            on: String::new(),
            order_by: Vec::new(),
            limit: 1,
            columns: None,
        };
        let spec = CollectionConfig { name: "stock".into(), ..embed.as_collection("any") };
        let of = |id: Option<&str>, primary: &[&str]| {
            let mut found = DefaultKeys::default();
            found.note(&spec, id, primary.iter().map(ToString::to_string).collect());
            let key = found.keys.pop().map(|(_, key)| key.join(","));
            let finding = found.findings.pop().map(|f| format!("{}; {}", f.problem, f.remedy));
            key.or(finding).unwrap_or_default()
        };
        assert_eq!(of(Some("ID"), &["ID"]), "ID");
        assert_eq!(of(None, &["place", "item"]), "place,item");
        let both = of(Some("id"), &["place", "item"]);
        assert!(both.ends_with(r#"key = ["place", "item"] or key = ["id"]"#), "{both}");
        assert!(of(Some("id"), &["id", "place"]).contains("(id, place), so its key is not"));
        assert!(of(Some("id"), &[]).contains(r#"has no primary key; write one of these"#));
        assert!(of(None, &[]).ends_with("unique together"));
        assert!(of(None, &["a", "b", "c", "d", "e"]).contains("a primary key of 5 columns; write"));
    }
}
