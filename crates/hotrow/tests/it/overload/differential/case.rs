//! Parser of the table of cases: `*.toml` beside this file, read at run time.
//!
//! `send` is the request in one line. `$` means CRLF; `\r`, `\n`, `\t`, `\0`, `\\`, `\$` and `\xNN`
//! a byte; `\{900 x}` 900 times `x`. A probe follows unless `probe = false`. `both` is the answer
//! of both servers; different answers are in `hotrow` and `nginx`, with the reason in `why`. An
//! answer is a status and `body`, `empty`, or `any` for either; at the end the connection is
//! `kept`, as the answer to the probe shows, or `closed`.

use serde::Deserialize;

use crate::overload::wire::Then;

/// Files of the table, one for each part of HTTP/1.1.
pub(super) const FILES: [&str; 9] = [
    "chunks.toml",
    "conditions.toml",
    "connection.toml",
    "fields.toml",
    "framing.toml",
    "host.toml",
    "limits.toml",
    "request_line.toml",
    "target.toml",
];
/// Least length of a reason.
const WHY_CHARS_MIN: usize = 20;

pub(super) struct Case {
    pub(super) file: &'static str,
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
    pub(super) then: Then,
    pub(super) hotrow: String,
    pub(super) nginx: String,
    /// Reason of a difference.
    pub(super) why: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    case: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    send: String,
    #[serde(default = "yes")]
    probe: bool,
    both: Option<String>,
    hotrow: Option<String>,
    nginx: Option<String>,
    why: Option<String>,
}

fn yes() -> bool {
    true
}

pub(super) fn all() -> Vec<Case> {
    FILES.into_iter().flat_map(read).collect()
}

fn read(file: &'static str) -> Vec<Case> {
    let path = format!("{}/tests/it/overload/differential/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let rows: File = toml::from_str(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
    rows.case
        .into_iter()
        .map(|row| checked(file, row).unwrap_or_else(|what| panic!("{file}: {what}")))
        .collect()
}

/// Returns the row as a case, or its defect.
fn checked(file: &'static str, row: Row) -> Result<Case, String> {
    let Row { name, send, probe, both, hotrow, nginx, why } = row;
    let bytes = bytes(&send).map_err(|what| format!("{name}: {what}"))?;
    let then = if probe { Then::Probe } else { Then::End };
    let (hotrow, nginx, why) = match (both, hotrow, nginx, why) {
        (Some(both), None, None, None) => (both.clone(), both, None),
        (None, Some(hotrow), Some(nginx), Some(why))
            if hotrow != nginx && why.len() >= WHY_CHARS_MIN =>
        {
            (hotrow, nginx, Some(why))
        }
        _ => {
            return Err(format!(
                "{name}: it needs either `both`, or different `hotrow` and `nginx` and a reason"
            ));
        }
    };
    Ok(Case { file, name, bytes, then, hotrow, nginx, why })
}

/// Returns the bytes that a `send` describes.
fn bytes(send: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = send;
    while let Some(next) = rest.chars().next() {
        rest = &rest[next.len_utf8()..];
        match next {
            '$' => bytes.extend_from_slice(b"\r\n"),
            '\\' => {
                rest = escaped(rest, &mut bytes)
                    .ok_or_else(|| format!("a bad escape before {rest:?}"))?
            }
            plain => bytes.extend_from_slice(plain.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Ok(bytes)
}

/// Appends the bytes of an escape, without its backslash, and returns the text after it.
fn escaped<'a>(text: &'a str, bytes: &mut Vec<u8>) -> Option<&'a str> {
    let kind = *text.as_bytes().first()?;
    let rest = text.get(1..)?;
    match kind {
        b'r' => bytes.push(b'\r'),
        b'n' => bytes.push(b'\n'),
        b't' => bytes.push(b'\t'),
        b'0' => bytes.push(0),
        b'\\' | b'$' => bytes.push(kind),
        b'x' => {
            bytes.push(u8::from_str_radix(rest.get(..2)?, 16).ok()?);
            return rest.get(2..);
        }
        b'{' => {
            let (repeated, rest) = rest.split_once('}')?;
            let (times, text) = repeated.split_once(' ')?;
            bytes.extend(self::bytes(text).ok()?.repeat(times.parse().ok()?));
            return Some(rest);
        }
        _ => return None,
    }
    Some(rest)
}

#[test]
fn a_request_is_written_in_one_line() {
    for (send, expected) in [
        ("a$b", &b"a\r\nb"[..]),
        ("\\r\\n\\t\\0\\\\\\$", b"\r\n\t\0\\$"),
        ("\\xff\\x0B", b"\xff\x0b"),
        ("\\{3 xy}z", b"xyxyxyz"),
        ("\\{2 a$}", b"a\r\na\r\n"),
        ("é", "é".as_bytes()),
    ] {
        assert_eq!(bytes(send).as_deref(), Ok(expected), "{send}");
    }
    for send in ["\\", "\\y", "\\x", "\\xg0", "\\{3}", "\\{x y}", "\\{3 x"] {
        assert!(bytes(send).is_err(), "{send}");
    }
}

#[test]
fn a_difference_needs_a_reason() {
    let row = |text: &str| {
        let row: Row = toml::from_str(&format!("name = 'n'\nsend = ''\n{text}")).unwrap();
        checked("f", row).map(|case| (case.hotrow, case.nginx)).ok()
    };
    let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
    assert_eq!(row("both = 'a'"), pair("a", "a"));
    assert_eq!(
        row("hotrow = 'a'\nnginx = 'b'\nwhy = 'because it is so, as RFC 0 says'"),
        pair("a", "b")
    );
    for bad in [
        "",
        "hotrow = 'a'\nnginx = 'b'",
        "hotrow = 'a'\nnginx = 'b'\nwhy = 'so'",
        "hotrow = 'a'\nnginx = 'a'\nwhy = 'because it is so, as RFC 0 says'",
        "both = 'a'\nwhy = 'because it is so, as RFC 0 says'",
        "both = 'a'\nnginx = 'b'",
        "hotrow = 'a'",
    ] {
        assert_eq!(row(bad), None, "{bad}");
    }
}
