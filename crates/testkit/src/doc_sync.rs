//! Comparison of a JSON document's keys with the table that describes it.
//!
//! A row begins with one or more keys in backticks (`a.b`, `a[]`, `a.{x,y}`). Its meaning names
//! nested keys, in backticks too, and keys below those in parentheses after them. Values are in
//! quotes: `"found"`.

use std::collections::BTreeSet;

use serde_json::Value;

/// Panics unless the table of this schema names exactly the document's keys. The document must
/// contain every optional key; `any` lists objects whose keys are data.
pub fn assert_keys_documented(page: &str, schema: &str, document: &Value, any: &[&str]) {
    let documented_keys = documented(page, schema);
    let mut is = BTreeSet::new();
    paths(document, "", any, &mut is);
    let missing: Vec<&String> = is.difference(&documented_keys).collect();
    assert!(missing.is_empty(), "the page does not describe {missing:?} of {schema}");
    let gone: Vec<&String> = documented_keys.difference(&is).collect();
    assert!(gone.is_empty(), "the page describes {gone:?}, which {schema} does not have");
}

/// Collects all keys with their parents, as in `a.b`; lists are transparent.
fn paths(value: &Value, parent: &str, any: &[&str], found: &mut BTreeSet<String>) {
    match value {
        Value::Object(_) if any.contains(&parent) => {}
        Value::Object(keys) => {
            for (key, value) in keys {
                let path = join_path(parent, key);
                found.insert(path.clone());
                paths(value, &path, any, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| paths(value, parent, any, found)),
        _ => {}
    }
}

fn join_path(parent: &str, key: &str) -> String {
    if parent.is_empty() { key.to_owned() } else { format!("{parent}.{key}") }
}

fn documented(page: &str, schema: &str) -> BTreeSet<String> {
    let mut tables =
        page.split("\n\n").filter(|part| part.contains("| `schema` |") && part.contains(schema));
    let table = tables.next().unwrap_or_else(|| panic!("no table of {schema}"));
    let mut documented_keys = BTreeSet::new();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let (names, meaning) = row[1..].split_once(" | ").expect("two cells");
        let mut rows = Vec::new();
        for name in quoted(names) {
            rows.extend(expanded(name, table));
        }
        for path in &rows {
            let parts: Vec<&str> = path.split('.').collect();
            documented_keys.extend((1..=parts.len()).map(|n| parts[..n].join(".")));
        }
        add_meaning(meaning, &rows, &mut documented_keys);
    }
    documented_keys
}

/// Expands `a.{x,y}` to `a.x` and `a.y`. `{…}` repeats the first such list of the table.
fn expanded(name: &str, table: &str) -> Vec<String> {
    let name = name.replace("[]", "");
    let Some((parent, list)) = name.split_once(".{") else { return vec![name] };
    let list = match list.trim_end_matches('}') {
        "…" => table
            .split_once(".{")
            .and_then(|(_, rest)| rest.split_once('}'))
            .map_or("", |(list, _)| list),
        list => list,
    };
    list.split(',').map(|key| join_path(parent, key)).collect()
}

/// Returns the texts in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Adds the keys in a row's meaning: each is below the row's key, or below the key before the
/// enclosing parenthesis.
fn add_meaning(meaning: &str, rows: &[String], documented_keys: &mut BTreeSet<String>) {
    let mut parent = vec![rows.to_vec()];
    // The latest keys at this depth: `low` and `high` are two of them.
    let mut latest: Vec<Vec<String>> = vec![Vec::new()];
    for (i, part) in meaning.split('`').enumerate() {
        if i % 2 == 0 {
            for letter in part.chars() {
                match letter {
                    '(' => {
                        let before = latest.last().cloned().unwrap_or_default();
                        parent.push(before);
                        latest.push(Vec::new());
                    }
                    ')' => {
                        parent.pop();
                        latest.pop();
                    }
                    _ => {}
                }
            }
            let goes_on = part == " and " || part.contains('(');
            if let Some(latest) = latest.last_mut().filter(|_| !goes_on || part.contains(')')) {
                latest.clear();
            }
            continue;
        }
        let key = part.trim_end_matches("[]");
        if key.is_empty()
            || !key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        {
            continue;
        }
        let paths: Vec<String> =
            parent.last().into_iter().flatten().map(|parent| join_path(parent, key)).collect();
        documented_keys.extend(paths.iter().cloned());
        if let Some(latest) = latest.last_mut() {
            latest.extend(paths);
        }
    }
}

#[test]
fn a_table_is_compared_both_ways() {
    let page = "x\n\n| key | meaning |\n|---|---|\n| `schema` | `\"s/1\"` |\n\
        | `a` | `x`: one (0 to 1), `y[]` (`n`, `m`; or null) |\n\
        | `ends` | `low` and `high` (each `rps`, `sure`: whether; or null) |\n\
        | `t.{p,q}`, `u.{…}` | times |\n| `by` | `{\"200\": 1}` |\n\ny";
    let document = serde_json::json!({
        "schema": "s/1",
        "a": {"x": 1, "y": [{"n": 1}, {"m": null}]},
        "t": {"p": 1, "q": 2},
        "u": {"p": 1, "q": 2},
        "ends": {"low": {"rps": 1, "sure": true}, "high": {"rps": 1, "sure": true}},
        "by": {"200": 3},
    });
    assert_keys_documented(page, "s/1", &document, &["by"]);
    let fails = |change: fn(&mut Value)| {
        let mut changed = document.clone();
        change(&mut changed);
        std::panic::catch_unwind(|| assert_keys_documented(page, "s/1", &changed, &["by"])).is_err()
    };
    assert!(fails(|value| value["a"]["y"][0]["o"] = 1.into()), "not described");
    assert!(fails(|value| value["ends"]["high"] = Value::Null), "described, and not there");
}
