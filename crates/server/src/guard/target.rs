//! The four forms of a request target and the methods that accept them (RFC 9112 section 3.2). The
//! parser behind the guard checks the bytes of a path.

use crate::authority::Authority;

/// Returns whether `target` has a form that `method` accepts: a path, a URL, `*` for OPTIONS, a
/// host and a port for CONNECT.
#[must_use]
pub(super) fn is_sound(method: &[u8], target: &[u8]) -> bool {
    match (method, target) {
        (b"CONNECT", _) => is_host_with_port(target),
        (_, [b'/', ..]) | (b"OPTIONS", b"*") => true,
        _ => is_absolute(target),
    }
}

/// Accepts the authority form. The port is required: CONNECT has no default port.
fn is_host_with_port(target: &[u8]) -> bool {
    Authority::parse(target).is_some_and(|authority| {
        !authority.host.is_empty() && authority.port.is_some_and(|digits| !digits.is_empty())
    })
}

/// Accepts the absolute form: `scheme://host[:port][/path][?query]`. User information before the
/// host is allowed, because the host is not used here.
fn is_absolute(target: &[u8]) -> bool {
    const SEPARATOR: &[u8] = b"://";
    let Some(scheme_bytes) = target.iter().position(|byte| *byte == b':') else { return false };
    let (scheme, rest) = target.split_at(scheme_bytes);
    let Some(rest) = rest.strip_prefix(SEPARATOR) else { return false };
    let authority_bytes = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
    let authority = &rest[..authority_bytes];
    let host = authority
        .iter()
        .rposition(|byte| *byte == b'@')
        .map_or(authority, |at| &authority[at + 1..]);
    is_scheme(scheme) && Authority::parse(host).is_some_and(|authority| !authority.host.is_empty())
}

fn is_scheme(scheme: &[u8]) -> bool {
    let in_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    scheme.first().is_some_and(u8::is_ascii_alphabetic) && scheme.iter().all(in_scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_has_its_forms() {
        for (method, target) in [
            ("GET", "/"),
            ("GET", "//a"),
            ("OPTIONS", "*"),
            ("OPTIONS", "/a"),
            ("GET", "http://h"),
            ("GET", "http://h/a"),
            ("GET", "HTTP://h:80/a"),
            ("GET", "http://user@h/a"),
            ("GET", "http://[::1]?a"),
            ("CONNECT", "h:80"),
            ("CONNECT", "[::1]:443"),
        ] {
            assert!(is_sound(method.as_bytes(), target.as_bytes()), "{method} {target}");
        }
        for (method, target) in [
            ("GET", "*"),
            ("options", "*"),
            ("OPTIONS", "**"),
            ("GET", "x:80"),
            ("GET", "a/b"),
            ("GET", "http:/a"),
            ("GET", "http:///a"),
            ("GET", "http://a:b/"),
            ("GET", "http://[::1/"),
            ("GET", "1http://h/"),
            ("GET", "://h/"),
            ("CONNECT", "x"),
            ("CONNECT", "x:"),
            ("CONNECT", ":80"),
            ("CONNECT", "/a"),
            ("CONNECT", "http://h:80/"),
        ] {
            assert!(!is_sound(method.as_bytes(), target.as_bytes()), "{method} {target}");
        }
    }
}
