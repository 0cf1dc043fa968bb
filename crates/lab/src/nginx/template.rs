//! The user's own configuration, with places for what differs between set-ups.

use super::configuration::quoted;
use super::{Balance, Front, NginxError};

/// The placeholders of a template, and what is put there.
pub const PLACEHOLDERS: [(&str, &str); 9] = [
    ("listen", "address and port to listen on: 127.0.0.1:8000"),
    ("port", "the port alone"),
    ("backends", "a `server ADDRESS weight=N;` for each backend, for the inside of an `upstream` block"),
    ("folder", "the folder for all that nginx writes, quoted paths aside: \"{folder}/nginx.pid\""),
    ("user", "`user root;` when root starts nginx, else nothing"),
    ("cache_s", "how long answers are kept, in seconds"),
    ("keepalive", "connections to the backends that each worker keeps open"),
    ("certificate", "file with the certificate, quoted"),
    ("key", "file with its private key, quoted"),
];

/// The template with each `{name}` replaced. Braces around anything but one lower-case word are nginx's own.
///
/// # Errors
/// A word in braces that is no placeholder, one for what the set-up does not have, and a template without `{backends}` or
/// without both `{listen}` and `{port}`.
pub fn from_template(text: &str, front: &Front) -> Result<String, NginxError> {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut used) = (text, Vec::new());
    while let Some(begin) = rest.find('{') {
        let after = &rest[begin + 1..];
        let end = after.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(after.len());
        out.push_str(&rest[..begin]);
        if end == 0 || !after[end..].starts_with('}') {
            out.push('{');
            rest = after;
            continue;
        }
        let name = &after[..end];
        let line = 1 + text[..text.len() - rest.len() + begin].matches('\n').count();
        out.push_str(&value(name, line, front)?);
        used.push(name);
        rest = &after[end + 1..];
    }
    out.push_str(rest);
    match (used.contains(&"listen") || used.contains(&"port"), used.contains(&"backends")) {
        (false, _) => Err(NginxError::Unused("listen")),
        (true, false) => Err(NginxError::Unused("backends")),
        (true, true) => Ok(out),
    }
}

fn value(name: &str, line: usize, front: &Front) -> Result<String, NginxError> {
    let or = |value: Option<String>, lacks| {
        value.ok_or_else(|| NginxError::Valueless { line, name: name.to_owned(), lacks })
    };
    match name {
        "listen" => Ok(format!("127.0.0.1:{}", front.listen)),
        "port" => Ok(front.listen.to_string()),
        "backends" => Ok(servers(front).join("\n        ")),
        "folder" => Ok(front.folder.to_string_lossy().into_owned()),
        "user" => Ok(if front.as_root { "user root;".to_owned() } else { String::new() }),
        "cache_s" => or(front.cache.map(|cache| cache.ttl_s.to_string()), "cache"),
        "keepalive" => {
            or(front.upstream_keepalive.map(|n| n.to_string()), "connections that are kept open to the backends")
        }
        "certificate" => or(front.tls.as_ref().map(|tls| quoted(&tls.certificate)), "TLS"),
        "key" => or(front.tls.as_ref().map(|tls| quoted(&tls.key)), "TLS"),
        _ => {
            let known: Vec<_> = PLACEHOLDERS.iter().map(|(name, _)| format!("{{{name}}}")).collect();
            Err(NginxError::Placeholder { line, name: name.to_owned(), known: known.join(", ") })
        }
    }
}

/// The backends as lines of an `upstream` block.
pub(super) fn servers(front: &Front) -> Vec<String> {
    let weighed = front.balance != Balance::RoundRobin;
    let weight = |n| if weighed && n != 1 { format!(" weight={n}") } else { String::new() };
    front.backends.iter().map(|backend| format!("server {}{};", backend.address, weight(backend.weight))).collect()
}
