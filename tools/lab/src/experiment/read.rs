//! From the text of an experiment file to its keys. Unknown keys are collected, not fatal, so that
//! they hide no other mistake.

use std::borrow::Cow;
use std::ops::Range;

use hotrow_cli::names::nearest;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer};

use super::Problem;
use super::file::File;

/// Most mistakes that are collected.
const MISTAKES_MAX: usize = 100;

/// A key that the file's structure does not have, and those it has at that place.
struct UnknownKey<'a> {
    name: &'a str,
    known: Vec<&'a str>,
}

/// Parses a file; returns it with its unknown keys. A key that resembles a known one is read as
/// that one.
///
/// # Errors
/// Unknown keys and values of a wrong type, up to the first required key that is missing or has a
/// value of a wrong type.
pub(super) fn read(text: &str) -> Result<(File, Vec<Problem>), Vec<Problem>> {
    let line =
        |span: Option<Range<usize>>| span.map(|span| 1 + text[..span.start].matches('\n').count());
    let mut table = DeTable::parse(text).map_err(|e| {
        let what = format!("this is not TOML: {}", e.message().trim());
        vec![Problem { line: line(e.span()), path: String::new(), what }]
    })?;
    let mut problems = Vec::new();
    let mut is_complete = true;
    while problems.len() < MISTAKES_MAX {
        let error = match serde_path_to_error::deserialize(Deserializer::from(table.clone())) {
            Ok(file) if is_complete => return Ok((file, problems)),
            Ok(_) => break,
            Err(error) => error,
        };
        let path = error.path().to_string();
        let path = if path == "." { String::new() } else { path };
        let error = error.into_inner();
        let (message, span) = (error.message().trim(), error.span());
        if let (Some(unknown), Some(at)) = (unknown_key(message), span.clone()) {
            let near = nearest(unknown.name, &unknown.known);
            if repair(table.get_mut(), at.start, unknown.name, near.first().copied()) {
                let what = suggestion(&near, &unknown.known);
                problems.push(Problem { line: line(span), path, what });
                continue;
            }
        }
        let is_missing = message.starts_with("missing field");
        // Without its value, a required key is missing too, which is no mistake of the author.
        if is_complete || !is_missing {
            problems.push(Problem { line: line(span.clone()), path, what: message.to_owned() });
        }
        is_complete = false;
        if is_missing || !span.is_some_and(|span| remove_from(table.get_mut(), &span)) {
            break;
        }
    }
    Err(problems)
}

fn suggestion(near: &[&str], known: &[&str]) -> String {
    if near.is_empty() {
        return format!("unknown key; known here: {}", known.join(", "));
    }
    let near: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    format!("unknown key; did you mean {}?", near.join(" or "))
}

/// Parses serde's message on an unknown key: "unknown field `redy`, expected one of `a`, `b`".
fn unknown_key(message: &str) -> Option<UnknownKey<'_>> {
    let quoted = message.strip_prefix("unknown field ")?;
    let mut names = quoted.split('`').skip(1).step_by(2);
    Some(UnknownKey { name: names.next()?, known: names.collect() })
}

/// Renames the key at this place of the text, or removes it without a new name or if the table has
/// one of that name. Returns whether the key was found.
fn repair(table: &mut DeTable<'_>, at: usize, name: &str, new_name: Option<&str>) -> bool {
    let is_meant = |key: &&Spanned<Cow<'_, str>>| key.span().start == at && key.get_ref() == name;
    if let Some(key) = table.keys().find(is_meant).cloned() {
        let value = table.remove(&key);
        let renamed = new_name.map(|name| Spanned::new(key.span(), Cow::Owned(name.to_owned())));
        if let (Some(value), Some(key)) = (value, renamed)
            && !table.contains_key(&key)
        {
            table.insert(key, value);
        }
        return true;
    }
    table.iter_mut().any(|(_, value)| repair_within(value.get_mut(), at, name, new_name))
}

fn repair_within(value: &mut DeValue<'_>, at: usize, name: &str, new_name: Option<&str>) -> bool {
    match value {
        DeValue::Table(table) => repair(table, at, name, new_name),
        DeValue::Array(items) => {
            items.iter_mut().any(|item| repair_within(item.get_mut(), at, name, new_name))
        }
        _ => false,
    }
}

/// Removes the value at this place of the text; returns whether there was one.
fn remove_from(table: &mut DeTable<'_>, span: &Range<usize>) -> bool {
    let found = table.iter().find(|(_, value)| value.span() == *span).map(|(key, _)| key.clone());
    if let Some(key) = found {
        return table.remove(&key).is_some();
    }
    table.iter_mut().any(|(_, value)| remove_within(value.get_mut(), span))
}

fn remove_within(value: &mut DeValue<'_>, span: &Range<usize>) -> bool {
    match value {
        DeValue::Table(table) => remove_from(table, span),
        DeValue::Array(items) => match items.iter().position(|item| item.span() == *span) {
            Some(at) => {
                let all = std::mem::replace(items, DeArray::new()).into_iter().enumerate();
                *items = all.filter(|(i, _)| *i != at).map(|(_, item)| item).collect();
                true
            }
            None => items.iter_mut().any(|item| remove_within(item.get_mut(), span)),
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "title = \"a\"\nquestion = \"b\"\nservices.app.command = [\"x\"]\n\
        [[deployments]]\nname = \"one\"\nservice = \"app\"\n\
        [[loads]]\nname = \"hello\"\npath = \"/\"\nconnections = [1]\n";

    fn problems(text: &str) -> Vec<String> {
        let problems = match read(text) {
            Ok((_, problems)) | Err(problems) => problems,
        };
        let words = |p: &Problem| format!("{}: {}: {}", p.line.unwrap_or_default(), p.path, p.what);
        problems.iter().map(words).collect()
    }

    #[test]
    fn unknown_keys_are_collected_and_the_rest_is_read() {
        assert_eq!(problems(FILE), Vec::<String>::new());
        let text = FILE.replace("question", "qestion").replace("path", "pth").replace(
            "service = \"app\"",
            "service = \"app\"\nproxy = { knd = \"nginx\", zzz = 1 }",
        );
        let (file, found) = read(&text).unwrap();
        assert_eq!((file.question.as_str(), file.loads[0].path.as_str()), ("b", "/"));
        assert_eq!(found.len(), 4, "{found:?}");
        let found = problems(&text);
        for expected in [
            "2: qestion: unknown key; did you mean `question`?",
            "7: deployments[0].proxy.knd: unknown key; did you mean `kind`?",
            "7: deployments[0].proxy.zzz: unknown key; known here: kind, profile, balance",
            "10: loads[0].pth: unknown key; did you mean `path`?",
        ] {
            assert!(found.iter().any(|problem| problem.starts_with(expected)), "{found:?}");
        }
    }

    #[test]
    fn a_key_beside_the_one_it_resembles_is_dropped() {
        let text = FILE.replace("path = \"/\"", "path = \"/\"\npaths = \"/b\"");
        let (file, found) = read(&text).unwrap();
        assert_eq!((file.loads[0].path.as_str(), found.len()), ("/", 1));
    }

    #[test]
    fn values_of_a_wrong_type_hide_nothing_either() {
        let text = FILE
            .replace("title", "zzzzz")
            .replace("[1]", "[1, \"2\"]")
            .replace("path = \"/\"", "path = \"/\"\nmethod = 7")
            .replace("service = \"app\"", "service = \"app\"\ninstances = \"3\"");
        assert!(read(&text).is_err());
        let found = problems(&text);
        for expected in [
            "loads[0].connections[1]: invalid type",
            "loads[0].method: invalid type",
            "deployments[0].instances: invalid type",
            "zzzzz: unknown key; known here: title",
        ] {
            assert!(found.iter().any(|problem| problem.contains(expected)), "{found:?}");
        }
        assert!(!found.iter().any(|problem| problem.contains("missing")), "{found:?}");
        assert!(problems("title = ")[0].contains("this is not TOML"));
        let missing = problems(&FILE.replace("title = \"a\"\n", ""));
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert!(missing[0].ends_with("missing field `title`"), "{missing:?}");
    }

    #[test]
    fn very_many_unknown_keys_end_the_reading() {
        let many: String = (0..200).map(|n| format!("zzzzzzzz{n} = 1\n")).collect();
        assert_eq!(problems(&(many + FILE)).len(), MISTAKES_MAX);
    }
}
