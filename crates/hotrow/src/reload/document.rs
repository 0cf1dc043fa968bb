//! A configuration file as its keys and values, and the differences of two.

use std::collections::{BTreeMap, BTreeSet};

use hotrow_server::reload::Left;
use toml::{Table, Value};

use super::keys::{self, KEY_SOURCE};

/// Path of a key, from the outermost table.
type Path = Vec<String>;

const COLLECTIONS: &str = "collections";

/// The keys and values of a file, and the collections that are in force without being in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Document {
    table: Table,
    /// Collections of the start that the file has no longer.
    pub(super) removed: BTreeSet<String>,
}

/// What becomes of the document in force when a file is put in force.
#[derive(Debug, PartialEq)]
pub(super) struct Difference {
    /// The document to put in force: the file's, with the keys that are left as they were.
    pub(super) next: Document,
    /// Paths that change, as they are shown.
    pub(super) applied: Vec<String>,
    /// Paths that are left.
    pub(super) left: Vec<Left>,
}

impl Difference {
    /// Returns whether a key of one of these tables changes.
    pub(super) fn touches(&self, tables: &[&str]) -> bool {
        let is_in = |path: &String, table: &&str| {
            path == table || path.strip_prefix(*table).is_some_and(|rest| rest.starts_with('.'))
        };
        self.applied.iter().any(|path| tables.iter().any(|table| is_in(path, table)))
    }
}

impl Document {
    /// Parses a file that has been checked.
    ///
    /// # Errors
    /// It is not TOML.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let table = text.parse::<Table>().map_err(|error| error.message().to_owned())?;
        Ok(Self { table, removed: BTreeSet::new() })
    }

    /// Returns its text, without those parts of the file that say nothing.
    ///
    /// # Errors
    /// Its values have no form in TOML, which no parsed file has.
    pub(super) fn text(&self) -> Result<String, String> {
        toml::to_string(&self.table).map_err(|error| error.to_string())
    }

    /// Compares with the file that is to be put in force.
    pub(super) fn compare(&self, file: &Self) -> Difference {
        let mut next = file.clone();
        let (mut applied, mut left) = (Vec::new(), Vec::new());
        self.compare_collections(&mut next, &mut applied, &mut left);
        let keeps_key_source = !has_same_key_source(&self.table, &next.table);
        let own = leaves(&self.table);
        let of_file = next.table.clone();
        let others = leaves(&of_file);
        let paths: BTreeSet<&Path> = own.keys().chain(others.keys()).collect();
        for path in paths {
            let before = own.get(path);
            if before == others.get(path) || self.is_of_removed(path, &next) {
                continue;
            }
            let parts: Vec<&str> = path.iter().map(String::as_str).collect();
            let reason = match *parts {
                ["access", "jwt", ..] if keeps_key_source => Some(keys::TOKEN_KEYS),
                _ => keys::why_left(&parts),
            };
            match reason {
                None => applied.push(shown(path)),
                Some(reason) => {
                    left.push(Left { path: shown(path), reason });
                    restore(&mut next.table, path, before.copied());
                }
            }
        }
        Difference { next, applied, left }
    }

    /// Collections that come are left out, and those that go keep what is known of their tables.
    fn compare_collections(
        &self,
        next: &mut Self,
        applied: &mut Vec<String>,
        left: &mut Vec<Left>,
    ) {
        let empty = Table::new();
        let own = tables(&self.table).unwrap_or(&empty);
        let others = next.table.entry(COLLECTIONS).or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(others) = others else { return };
        let added: Vec<String> =
            others.keys().filter(|name| !own.contains_key(*name)).cloned().collect();
        for name in added {
            others.remove(&name);
            let path = shown(&[COLLECTIONS.to_owned(), name]);
            left.push(Left { path, reason: keys::ADDED });
        }
        for (name, table) in own {
            let path = shown(&[COLLECTIONS.to_owned(), name.clone()]);
            if others.contains_key(name) {
                if self.removed.contains(name) {
                    applied.push(path);
                }
                continue;
            }
            if !self.removed.contains(name) {
                applied.push(path);
            }
            let mut kept = table.clone();
            if let Value::Table(kept) = &mut kept {
                kept.retain(|key, _| keys::is_of_table(key));
            }
            others.insert(name.clone(), kept);
            next.removed.insert(name.clone());
        }
    }

    /// Returns whether a path is of a collection that is not served.
    fn is_of_removed(&self, path: &Path, next: &Self) -> bool {
        match &**path {
            [table, name, ..] => table == COLLECTIONS && next.removed.contains(name),
            _ => false,
        }
    }
}

fn tables(document: &Table) -> Option<&Table> {
    document.get(COLLECTIONS).and_then(Value::as_table)
}

/// Returns whether both have their keys of tokens from one place: then the rest of `[access.jwt]`
/// may change.
fn has_same_key_source(one: &Table, other: &Table) -> bool {
    fn jwt(document: &Table) -> Option<&Table> {
        document.get("access")?.get("jwt")?.as_table()
    }
    let source = |document| {
        let jwt = jwt(document)?;
        let named = KEY_SOURCE.iter().filter_map(|key| Some((*key, jwt.get(*key)?)));
        Some((jwt.contains_key("hs256_secret"), named.collect::<Vec<_>>()))
    };
    // Tokens by a shared secret need no thread.
    let is_fixed = |document| jwt(document).is_none_or(|jwt| jwt.contains_key("hs256_secret"));
    source(one) == source(other) || (is_fixed(one) && is_fixed(other))
}

/// Returns every key that is no table, with its value.
fn leaves(table: &Table) -> BTreeMap<Path, &Value> {
    fn add<'a>(table: &'a Table, parent: &[String], found: &mut BTreeMap<Path, &'a Value>) {
        for (key, value) in table {
            let path = [parent, std::slice::from_ref(key)].concat();
            match value {
                Value::Table(table) => add(table, &path, found),
                value => _ = found.insert(path, value),
            }
        }
    }
    let mut found = BTreeMap::new();
    add(table, &[], &mut found);
    found
}

/// Gives a key the value that it had, or removes it. Tables that are empty then are removed too,
/// except for collections, whose names alone mean something.
fn restore(table: &mut Table, path: &[String], value: Option<&Value>) {
    // The table of all collections, and that of one.
    let kept = if path.first().is_some_and(|first| first == COLLECTIONS) { 2 } else { 0 };
    restore_in(table, path, value, kept);
}

/// `kept`: number of outer tables that stay when they are empty.
fn restore_in(table: &mut Table, path: &[String], value: Option<&Value>, kept: usize) {
    let Some((first, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        match value {
            Some(value) => _ = table.insert(first.clone(), value.clone()),
            None => _ = table.remove(first),
        }
        return;
    }
    let inner = table.entry(first.clone()).or_insert_with(|| Value::Table(Table::new()));
    if !inner.is_table() {
        *inner = Value::Table(Table::new());
    }
    if let Value::Table(inner) = inner {
        restore_in(inner, rest, value, kept.saturating_sub(1));
        if inner.is_empty() && kept == 0 {
            table.remove(first);
        }
    }
}

/// Returns a path as it is written in the file.
fn shown(path: &[String]) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let part = |part: &String| match !part.is_empty() && part.chars().all(is_bare) {
        true => part.clone(),
        false => format!("{part:?}"),
    };
    path.iter().map(part).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests;
