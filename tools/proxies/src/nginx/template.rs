//! A user's own configuration, with placeholders for the deployment.

use super::configuration::writer::quoted;
use super::{Balance, Failover, NginxError, NginxProxy};

/// Placeholders of a template, with their values.
pub const PLACEHOLDERS: [(&str, &str); 9] = [
    ("listen", "address and port to listen on: 127.0.0.1:8000"),
    ("port", "the port alone"),
    (
        "backends",
        "a `server ADDRESS weight=N;` for each backend, for the inside of an `upstream` block",
    ),
    ("folder", "the folder for all files of nginx, unquoted: \"{folder}/nginx.pid\""),
    ("user", "`user root;` when root starts nginx, else nothing"),
    ("cache_s", "time to live of cached responses, in seconds"),
    ("keepalive", "idle connections to the backends per worker"),
    ("certificate", "file with the certificate, quoted"),
    ("key", "file with its private key, quoted"),
];

/// Replaces each `{name}` of a template. Braces around anything but one lower-case word belong to
/// nginx.
///
/// # Errors
/// An unknown placeholder, one without a value in this deployment, and a template without
/// `{backends}` or without both `{listen}` and `{port}`.
pub fn from_template(text: &str, proxy: &NginxProxy) -> Result<String, NginxError> {
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
        out.push_str(&value(name, line, proxy)?);
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

fn value(name: &str, line: usize, proxy: &NginxProxy) -> Result<String, NginxError> {
    let required = |value: Option<String>, missing| {
        value.ok_or_else(|| NginxError::Valueless { line, name: name.to_owned(), missing })
    };
    match name {
        "listen" => Ok(format!("127.0.0.1:{}", proxy.listen)),
        "port" => Ok(proxy.listen.to_string()),
        "backends" => Ok(servers(proxy).join("\n        ")),
        "folder" => Ok(proxy.folder.to_string_lossy().into_owned()),
        "user" => Ok(if proxy.as_root { "user root;".to_owned() } else { String::new() }),
        "cache_s" => required(proxy.cache.map(|cache| cache.ttl_s.to_string()), "cache"),
        "keepalive" => {
            required(proxy.upstream_keepalive.map(|n| n.to_string()), "upstream keep-alive")
        }
        "certificate" => required(proxy.tls.as_ref().map(|tls| quoted(&tls.certificate)), "TLS"),
        "key" => required(proxy.tls.as_ref().map(|tls| quoted(&tls.key)), "TLS"),
        _ => {
            let known: Vec<_> =
                PLACEHOLDERS.iter().map(|(name, _)| format!("{{{name}}}")).collect();
            Err(NginxError::Placeholder { line, name: name.to_owned(), known: known.join(", ") })
        }
    }
}

/// Returns the backends as lines of an `upstream` block.
pub(super) fn servers(proxy: &NginxProxy) -> Vec<String> {
    let weighed = proxy.balance != Balance::RoundRobin;
    let weight = |n| if weighed && n != 1 { format!(" weight={n}") } else { String::new() };
    let Failover { max_fails, fail_timeout_s, backups, .. } = proxy.failover;
    let mut failing = String::new();
    if let Some(n) = max_fails {
        failing.push_str(&format!(" max_fails={n}"));
    }
    if let Some(seconds) = fail_timeout_s {
        failing.push_str(&format!(" fail_timeout={seconds}s"));
    }
    let primaries = proxy.backends.len().saturating_sub(backups);
    proxy
        .backends
        .iter()
        .enumerate()
        .map(|(at, backend)| {
            let backup = if at >= primaries { " backup" } else { "" };
            format!("server {}{}{failing}{backup};", backend.address, weight(backend.weight))
        })
        .collect()
}
