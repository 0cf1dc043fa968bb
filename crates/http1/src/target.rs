//! The four forms of a request target and the methods that accept them (RFC 9112 section 3.2).

use super::authority::Authority;
use super::search::table;

/// Bytes of a path or a query: those of RFC 3986, and some that clients send unencoded without
/// harm. The others (white space, quotes, `<`, `>`, `` ` ``) must be percent-encoded. A fragment is
/// no part of a target: proxies differ in what they make of one.
const TARGET: [bool; 256] = table(b"!$%&'()*+,-./:;=?@[\\]^_{|}~");

/// Returns whether `target` has a form that `method` accepts: a path, a URL, `*` for OPTIONS, a
/// host and a port for CONNECT; and consists of bytes that a target may have, or of UTF-8.
pub fn is_sound(method: &[u8], target: &[u8]) -> bool {
    let form = match (method, target) {
        (b"CONNECT", _) => is_host_with_port(target),
        (_, [b'/', ..]) | (b"OPTIONS", b"*") => true,
        _ => is_absolute(target),
    };
    form && (target.iter().all(|byte| TARGET[usize::from(*byte)]) || is_sound_utf8(target))
}

#[cold]
fn is_sound_utf8(target: &[u8]) -> bool {
    let sound = |byte: &u8| !byte.is_ascii() || TARGET[usize::from(*byte)];
    target.iter().all(sound) && std::str::from_utf8(target).is_ok()
}

/// Returns path and query of a sound target.
pub fn path_and_query(target: &str) -> (&str, Option<&str>) {
    let origin = match target.as_bytes() {
        [b'/', ..] | b"*" => target,
        _ => match target.split_once("://") {
            Some((_, rest)) => rest.find(['/', '?']).map_or("/", |at| &rest[at..]),
            None => return ("", None),
        },
    };
    match origin.split_once('?') {
        Some(("", query)) => ("/", Some(query)),
        Some((path, query)) => (path, Some(query)),
        None if origin.is_empty() => ("/", None),
        None => (origin, None),
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
    let authority_bytes = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
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
    fn paths_are_those_that_a_library_finds() {
        for target in [
            "/",
            "/a",
            "/a?",
            "/a?b",
            "/a?b?c",
            "*",
            "http://h",
            "http://h/",
            "http://h?q",
            "http://h/a?q",
            "http://u@h:80/a/b",
            "//a",
        ] {
            let uri: http::Uri = target.parse().expect(target);
            assert_eq!(path_and_query(target), (uri.path(), uri.query()), "{target}");
        }
    }

    #[test]
    fn accepted_bytes_are_accepted_by_a_library() {
        for byte in 0..=u8::MAX {
            for place in [&b"/a"[..], b"/a?b"] {
                let target = [place, &[byte], b"c"].concat();
                let accepted = http::uri::PathAndQuery::try_from(&target[..]).is_ok();
                assert!(accepted || !is_sound(b"GET", &target), "{byte:#x} after {place:?}");
            }
        }
        let text = "/é?ü=→".as_bytes();
        assert!(is_sound(b"GET", text) && http::uri::PathAndQuery::try_from(text).is_ok());
    }

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
            ("GET", "/a#b"),
            ("GET", "/a?b#c"),
            ("GET", "http://h#f"),
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
