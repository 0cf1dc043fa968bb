//! Placeholders such as `{port}` in commands, environments and files.
//!
//! A placeholder is one word of small letters and underscores in braces that does not follow a
//! dollar sign, so JSON, shell and nginx variables stay unchanged.

use std::collections::BTreeMap;

/// Placeholders that the lab fills, in addition to a service's own.
pub const KNOWN: [&str; 14] = [
    "port",
    "admin_port",
    "instance",
    "dir",
    "data",
    "here",
    "hotrow",
    "hotrow_lab",
    "cpus",
    "half_cpus",
    "four_times_cpus",
    "eight_times_cpus",
    "database_port",
    "database_dir",
];

/// Replaces every placeholder of `text`.
///
/// # Errors
/// The first placeholder without a value.
pub fn fill(text: &str, values: &BTreeMap<String, String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Placeholder(name) => match values.get(name) {
                Some(value) => out.push_str(value),
                None => return Err(name.to_owned()),
            },
        }
    }
    Ok(out)
}

/// Returns the placeholders of `text`, in order.
pub fn names(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).into_iter().filter_map(|piece| match piece {
        Piece::Placeholder(name) => Some(name),
        Piece::Text(_) => None,
    })
}

enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

fn pieces(text: &str) -> Vec<Piece<'_>> {
    let (mut pieces, mut from, mut at) = (Vec::new(), 0, 0);
    while let Some(open) = text[at..].find('{').map(|found| at + found) {
        at = open + 1;
        let Some(close) =
            text[at..].find(|c: char| !c.is_ascii_lowercase() && c != '_').map(|found| at + found)
        else {
            break;
        };
        let variable = text[..open].ends_with('$');
        if text[close..].starts_with('}') && close > at && !variable {
            pieces.push(Piece::Text(&text[from..open]));
            pieces.push(Piece::Placeholder(&text[at..close]));
            from = close + 1;
            at = from;
        }
    }
    pieces.push(Piece::Text(&text[from..]));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_placeholders_are_replaced() {
        let values = BTreeMap::from([
            ("port".to_owned(), "80".to_owned()),
            ("a_b".to_owned(), "x".to_owned()),
        ]);
        for (text, filled) in [
            ("127.0.0.1:{port}", "127.0.0.1:80"),
            ("{a_b}{port}", "x80"),
            ("{\"port\":{port}}", "{\"port\":80}"),
            ("${port} {} { port } {PORT} {port", "${port} {} { port } {PORT} {port"),
            ("ü{port}ü", "ü80ü"),
            ("{{port}}", "{80}"),
        ] {
            assert_eq!(fill(text, &values).as_deref(), Ok(filled), "{text}");
        }
        assert_eq!(fill("{port}{unknown}", &values), Err("unknown".to_owned()));
        assert_eq!(names("{a} ${b} {c_d}").collect::<Vec<_>>(), ["a", "c_d"]);
    }
}
