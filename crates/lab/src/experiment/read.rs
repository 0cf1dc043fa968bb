//! From the text of an experiment file to its keys. Unknown keys are collected, not fatal, so that
//! they hide no other mistake.

use std::borrow::Cow;

use hotrow_cli::names::nearest;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::Problem;
use super::file::File;

/// Most unknown keys that are collected.
const UNKNOWN_MAX: usize = 100;

/// A key that the file's structure does not have, and those it has at that place.
struct UnknownKey<'a> {
    name: &'a str,
    known: Vec<&'a str>,
}

/// Parses a file; returns it with its unknown keys. A key that resembles a known one is read as
/// that one.
///
/// # Errors
/// The unknown keys, and the first mistake after which the rest cannot be read.
pub(super) fn read(text: &str) -> Result<(File, Vec<Problem>), Vec<Problem>> {
    let line = |span: Option<std::ops::Range<usize>>| {
        span.map(|span| 1 + text[..span.start].matches('\n').count())
    };
    let mut table = DeTable::parse(text).map_err(|e| {
        let what = format!("this is not TOML: {}", e.message().trim());
        vec![Problem { line: line(e.span()), path: String::new(), what }]
    })?;
    let mut problems = Vec::new();
    loop {
        let error = match serde_path_to_error::deserialize(Deserializer::from(table.clone())) {
            Ok(file) => return Ok((file, problems)),
            Err(error) => error,
        };
        let path = error.path().to_string();
        let path = if path == "." { String::new() } else { path };
        let error = error.into_inner();
        let (message, span) = (error.message().trim(), error.span());
        let unknown = unknown_key(message).filter(|_| problems.len() < UNKNOWN_MAX);
        if let (Some(unknown), Some(at)) = (unknown, span.clone()) {
            let near = nearest(unknown.name, &unknown.known);
            if repair(table.get_mut(), at.start, unknown.name, near.first().copied()) {
                let what = suggestion(&near, &unknown.known);
                problems.push(Problem { line: line(span), path, what });
                continue;
            }
        }
        problems.push(Problem { line: line(span), path, what: message.to_owned() });
        return Err(problems);
    }
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
    fn a_mistake_that_ends_the_reading_comes_after_the_unknown_keys() {
        let text = FILE.replace("title", "zzzzz").replace("[1]", "\"1\"");
        let found = problems(&text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("1: zzzzz: unknown key; known here: title"), "{found:?}");
        assert!(found[1].contains("loads[0].connections: invalid type"), "{found:?}");
        assert!(problems("title = ")[0].contains("this is not TOML"));
    }

    #[test]
    fn very_many_unknown_keys_end_the_reading() {
        let many: String = (0..200).map(|n| format!("zzzzzzzz{n} = 1\n")).collect();
        assert_eq!(problems(&(many + FILE)).len(), UNKNOWN_MAX + 1);
    }
}
