//! `Forwarded` (RFC 7239): a list of elements, each of pairs `name=value`, of which `for` names the
//! proxy's client.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hotrow_http1::is_token;

/// Cuts the last element off a line; commas within quoted strings do not separate. `None` when a
/// quoted string has no beginning.
///
/// Searched from the right end, so that nothing a client wrote to its left, such as a quote that
/// never ends, changes what the nearest proxy wrote. On a well-formed line both directions agree.
pub(super) fn last_element(line: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let mut quoted = false;
    for (at, byte) in line.iter().enumerate().rev() {
        match byte {
            // A quote within a string follows an odd number of backslashes; the string's opening
            // quote follows none.
            b'"' => quoted = !quoted || backslashes_before(line, at) % 2 == 1,
            b',' if !quoted => return Some((Some(&line[..at]), &line[at + 1..])),
            _ => {}
        }
    }
    (!quoted).then_some((None, line))
}

fn backslashes_before(line: &[u8], at: usize) -> usize {
    line[..at].iter().rev().take_while(|byte| **byte == b'\\').count()
}

/// Returns the address in an element's `for`; `None` when the element is malformed, has none or
/// two, or hides it (`unknown`, `_name`).
pub(super) fn of_element(element: &str) -> Option<IpAddr> {
    let mut rest = element;
    let mut node = None;
    loop {
        let (name, after) = rest.split_once('=')?;
        if name.is_empty() || !name.bytes().all(is_token) {
            return None;
        }
        let (value, after) = value(after)?;
        // Names are case-insensitive and occur once per element.
        if name.eq_ignore_ascii_case("for") && node.replace(value).is_some() {
            return None;
        }
        match after.trim_start_matches([' ', '\t']).strip_prefix(';') {
            Some(more) => rest = more.trim_start_matches([' ', '\t']),
            None if after.is_empty() => break,
            None => return None,
        }
    }
    of_node(&node?)
}

/// Parses a node: an IPv4 address, or an IPv6 address in brackets; either with a port, which may be
/// obfuscated.
pub(super) fn of_node(node: &str) -> Option<IpAddr> {
    let (address, port) = match node.strip_prefix('[') {
        Some(rest) => {
            let (v6, after) = rest.split_once(']')?;
            let port = if after.is_empty() { None } else { Some(after.strip_prefix(':')?) };
            (IpAddr::V6(v6.parse::<Ipv6Addr>().ok()?), port)
        }
        None => {
            let (v4, port) =
                node.split_once(':').map_or((node, None), |(v4, port)| (v4, Some(port)));
            (IpAddr::V4(v4.parse::<Ipv4Addr>().ok()?), port)
        }
    };
    port.is_none_or(is_port).then_some(address)
}

fn is_port(port: &str) -> bool {
    let hidden = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    let digits = (1..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit());
    digits || port.strip_prefix('_').is_some_and(hidden)
}

/// Splits a token or a quoted string from the rest.
fn value(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.bytes().position(|b| !is_token(b)).unwrap_or(text.len());
        return (end > 0).then(|| (Cow::Borrowed(&text[..end]), &text[end..]));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    loop {
        match chars.next()? {
            (at, '"') => return Some((Cow::Owned(value), &quoted[at + 1..])),
            (_, '\\') => value.push(chars.next()?.1),
            (_, c) => value.push(c),
        }
    }
}
