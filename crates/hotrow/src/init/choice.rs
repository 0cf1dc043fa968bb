//! Settings of the collections that `hotrow init` writes: name, key and excluded columns.

use std::collections::{HashMap, HashSet};

use hotrow_source::discovery::{ListedColumn, ListedTable};
use hotrow_source::spec::CollectionConfig;
use hotrow_types::key::KEY_PARTS_MAX;

use crate::config::{NAME_BYTES_MAX, name_is_valid};

/// Parts of a column's name that point to a secret, wherever they are in it.
const SECRET_PARTS: [&str; 9] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "apikey",
    "privatekey",
    "cardnumber",
];
/// Words of a column's name that point to a secret only as a whole word.
const SECRET_WORDS: [&str; 11] =
    ["pw", "pwd", "pass", "hash", "salt", "otp", "totp", "pin", "cvv", "cvc", "ssn"];
/// Name of a collection whose table's name has no usable letter.
const FALLBACK_NAME: &str = "table";

/// Chooses the settings of each table, in the same order.
pub(super) fn configs(tables: &[ListedTable]) -> Vec<CollectionConfig> {
    let names = names(tables);
    let config = |(table, name): (&ListedTable, String)| {
        let key = key(table);
        let exclude = excluded(table, &key);
        CollectionConfig {
            name,
            table: table.table.clone(),
            key,
            key_types: Vec::new(),
            columns: None,
            exclude,
            tenant: None,
            is_alias: false,
            embed: Vec::new(),
        }
    };
    tables.iter().zip(names).map(config).collect()
}

/// Returns the key to serve a table by: the first one that an id can have, else the first one. A
/// table without one has none. Of a view it is tried: only one that passes the checks is served.
fn key(table: &ListedTable) -> Vec<String> {
    let fits = |key: &&Vec<String>| key.len() <= KEY_PARTS_MAX;
    let known = table.keys.iter().find(fits).or_else(|| table.keys.first()).cloned();
    let tried = || (table.kind == "view").then(|| to_try(table)).flatten().into_iter().collect();
    known.unwrap_or_else(tried)
}

/// Returns the column of a view that is most likely the key of its table.
fn to_try(table: &ListedTable) -> Option<String> {
    let id = table.columns.iter().find(|column| column.name.eq_ignore_ascii_case("id"));
    id.or_else(|| table.columns.first()).map(|column| column.name.clone())
}

/// Returns the columns not to serve: those that look secret, and those that the account may not
/// read. If it may read none, none is excluded, so that the missing right is reported.
fn excluded(table: &ListedTable, key: &[String]) -> Vec<String> {
    let reads_key =
        key.iter().all(|name| table.columns.iter().any(|c| c.name == *name && c.is_readable));
    let is_excluded =
        |column: &&ListedColumn| looks_secret(&column.name) || (reads_key && !column.is_readable);
    table.columns.iter().filter(is_excluded).map(|column| column.name.clone()).collect()
}

/// Returns whether a column's name points to a secret.
pub(super) fn looks_secret(name: &str) -> bool {
    let words = words(name);
    let joined = words.concat();
    SECRET_PARTS.iter().any(|part| joined.contains(part))
        || words.iter().any(|word| SECRET_WORDS.contains(&word.as_str()))
}

/// Returns the words of a name in lower case: `apiKey` and `API_KEY` have the same ones.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        let begins_word = c.is_uppercase() && was_lower;
        was_lower = c.is_lowercase() || c.is_numeric();
        if begins_word || !c.is_alphanumeric() {
            words.push(String::new());
        }
        if c.is_alphanumeric()
            && let Some(last) = words.last_mut()
        {
            last.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Chooses a valid name for each table, none twice. A table keeps its own name where that is valid.
/// If several schemas have the same, the table that needs no schema in the setting `table` keeps
/// it, or else the first one.
fn names(tables: &[ListedTable]) -> Vec<String> {
    let mut taken: HashMap<String, usize> = HashMap::new();
    for needs_schema in [false, true] {
        for (i, table) in tables.iter().enumerate() {
            if name_is_valid(&table.name) && needs_schema == (table.table != table.name) {
                taken.entry(table.name.clone()).or_insert(i);
            }
        }
    }
    let mut used: HashSet<String> = taken.keys().cloned().collect();
    let mut name = |(i, table): (usize, &ListedTable)| {
        if taken.get(&table.name) == Some(&i) {
            return table.name.clone();
        }
        let plain = valid(&table.name);
        let with_schema = valid(&format!("{}_{}", table.schema, table.name));
        let numbered = (2_usize..).map(|number| {
            let ending = format!("-{number}");
            let end = plain.len().min(NAME_BYTES_MAX - ending.len());
            format!("{}{ending}", &plain[..end])
        });
        let candidates = [plain.clone(), with_schema].into_iter().chain(numbered);
        // One of the numbers is free: there are more of them than tables.
        let free = candidates.into_iter().find(|name| !used.contains(name)).unwrap_or_default();
        used.insert(free.clone());
        free
    };
    tables.iter().enumerate().map(&mut name).collect()
}

/// Returns a valid name that is like this one.
pub(super) fn valid(name: &str) -> String {
    let mut valid = String::new();
    for c in name.chars().flat_map(char::to_lowercase) {
        match c {
            'a'..='z' | '0'..='9' | '-' => valid.push(c),
            _ if !valid.is_empty() && !valid.ends_with('_') => valid.push('_'),
            _ => {}
        }
    }
    let trimmed = valid.trim_matches(['_', '-']);
    let mut valid = match trimmed.chars().next() {
        None => FALLBACK_NAME.to_owned(),
        Some('a'..='z') => trimmed.to_owned(),
        Some(_) => format!("t{trimmed}"),
    };
    // All of it is ASCII.
    valid.truncate(NAME_BYTES_MAX);
    valid
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(schema: &str, name: &str) -> ListedTable {
        ListedTable { schema: schema.into(), name: name.into(), ..ListedTable::default() }
    }

    #[test]
    fn names_are_valid_and_the_table_that_has_one_keeps_it() {
        let tables = [
            table("a", "Users"),
            table("a", "users"),
            table("b", "users"),
            table("b", "Users"),
            table("b", "line items"),
            table("b", "商品"),
            table("b", "注文"),
            table("b", "2024_orders"),
            table("b", "_private"),
            table("b", "Größe.x"),
        ];
        assert_eq!(
            names(&tables),
            [
                "a_users",
                "users",
                "b_users",
                "users-2",
                "line_items",
                "table",
                "b",
                "t2024_orders",
                "private",
                "gr_e_x"
            ]
        );
    }

    #[test]
    fn of_equal_names_the_one_without_a_schema_is_kept() {
        let mut tables = [table("a", "t"), table("b", "t"), table("c", "t")];
        for (table, setting) in tables.iter_mut().zip(["a.t", "t", "c.t"]) {
            setting.clone_into(&mut table.table);
        }
        assert_eq!(names(&tables), ["a_t", "t", "c_t"]);
    }

    #[test]
    fn secrets_are_recognized_by_words_and_not_by_chance() {
        for secret in [
            "password",
            "user_password",
            "passwordHash",
            "PASSWD",
            "api_token",
            "accessToken",
            "client-secret",
            "API_KEY",
            "apiKey",
            "salt",
            "pwd",
            "pin",
            "card_number",
            "ssn",
        ] {
            assert!(looks_secret(secret), "{secret}");
        }
        for plain in ["id", "name", "shipping", "spin", "hashtag", "passenger", "compass", "key"] {
            assert!(!looks_secret(plain), "{plain}");
        }
    }

    #[test]
    fn keys_and_columns_are_chosen() {
        let column = |name: &str, is_readable| ListedColumn {
            name: name.into(),
            sql_type: "text".into(),
            is_readable,
        };
        let mut t = ListedTable { kind: "view".into(), ..table("a", "t") };
        t.columns = vec![column("x", true), column("Id", true), column("token", true)];
        assert_eq!(
            (key(&t), excluded(&t, &["x".into()])),
            (vec!["Id".into()], vec!["token".into()])
        );
        t.kind = "table".into();
        assert!(key(&t).is_empty(), "no guess");
        let parts = |n: usize| (0..n).map(|i| format!("k{i}")).collect::<Vec<_>>();
        t.keys = vec![parts(5), parts(2)];
        assert_eq!(key(&t), parts(2));
        t.columns = vec![column("id", true), column("pay", false)];
        assert_eq!(excluded(&t, &["id".into()]), ["pay"]);
        t.columns = vec![column("id", false), column("pay", false)];
        assert!(excluded(&t, &["id".into()]).is_empty(), "the missing right is reported instead");
        t.columns.clear();
        t.keys.clear();
        assert!(key(&t).is_empty());
    }

    proptest! {
        #[test]
        fn any_names_become_valid_ones_none_twice(
            tables in proptest::collection::vec(("[aB_ é.]{0,3}", "[aAbB_0 .é-]{0,4}|\\PC{60,70}"), 0..40)
        ) {
            let tables: Vec<ListedTable> = tables.iter().map(|(s, n)| table(s, n)).collect();
            let names = names(&tables);
            prop_assert!(names.iter().all(|name| name_is_valid(name)), "{:?}", names);
            let distinct: HashSet<&String> = names.iter().collect();
            prop_assert_eq!(distinct.len(), tables.len());
        }
    }
}
