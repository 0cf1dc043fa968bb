//! Access to the admin side: the host that a request names, the token that it carries, and the
//! further requirements of a change.
//!
//! Any page can make a browser send requests to an admin address that its machine reaches. Two ways
//! are closed here. A name that the attacker resolves to this address (DNS rebinding) makes foreign
//! pages same-origin, so only names known to the operator are accepted. A plain form or `fetch`
//! needs no permission to *send* a request with the browser's stored credentials, so a change needs
//! a header that only a permitted script can set, and no foreign origin.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hotrow_answer::http_error::HttpError;
use hotrow_http1::authority::Authority;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use subtle::ConstantTimeEq;

use super::View;

/// Marks a change as intended. Its value does not matter.
const HOTROW_ADMIN: HeaderName = HeaderName::from_static("hotrow-admin");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Schemes of origins with their default ports. A proxy may add TLS in front of this listener.
const SCHEMES: [(&str, u32); 2] = [("http://", 80), ("https://", 443)];
/// Most characters of a client's own text that an answer repeats.
const SHOWN_CHARS_MAX: usize = 100;

impl View {
    /// Checks that the host named by the request is an IP address, `localhost` or configured. A
    /// request without a host (HTTP/1.0) does not come from a browser.
    ///
    /// # Errors
    /// 403 that names the setting.
    pub(super) fn check_host<B>(&self, request: &Request<B>) -> Result<(), HttpError> {
        let Some(named) = host_of(request) else { return Ok(()) };
        let known = Authority::parse(named).is_some_and(|authority| {
            let host = authority.host.strip_suffix(b".").unwrap_or(authority.host);
            let is = |name: &str| host.eq_ignore_ascii_case(name.as_bytes());
            authority.ip().is_some() || is("localhost") || self.hosts.iter().any(|name| is(name))
        });
        if known { Ok(()) } else { Err(unknown_host(named)) }
    }

    /// Accepts `Bearer TOKEN`, or `Basic` with the token as password, which is what a browser can
    /// send. The case of the scheme does not matter (RFC 9110 section 11.1).
    pub(super) fn authorised(&self, headers: &HeaderMap) -> bool {
        self.token.as_ref().is_none_or(|token| carries_token(headers, token))
    }
}

/// Returns whether a request carries the token: as `Bearer`, or as the password of `Basic`.
pub(crate) fn carries_token(headers: &HeaderMap, token: &str) -> bool {
    let mut all = headers.get_all(AUTHORIZATION).iter().map(HeaderValue::as_bytes);
    // A proxy in front may have judged another field.
    let (Some(given), None) = (all.next(), all.next()) else { return false };
    let Some(space) = given.iter().position(|byte| *byte == b' ') else { return false };
    let (scheme, credentials) = (&given[..space], given[space..].trim_ascii_start());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return same(token.as_bytes(), credentials);
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return false;
    }
    let decoded = BASE64.decode(credentials).unwrap_or_default();
    let password = decoded
        .iter()
        .position(|byte| *byte == b':')
        .map_or(&[][..], |colon| &decoded[colon + 1..]);
    same(token.as_bytes(), password)
}

/// Checks that the sender intends the change: a header that no foreign page can set without
/// permission, and an origin of this address if a browser reports one.
///
/// # Errors
/// 403 that names the missing part.
pub(super) fn check_change<B>(request: &Request<B>) -> Result<(), HttpError> {
    let headers = request.headers();
    if !headers.contains_key(HOTROW_ADMIN) && !headers.get(CONTENT_TYPE).is_some_and(is_json) {
        let detail = "a change needs the header Hotrow-Admin: 1, or Content-Type: application/json";
        return Err(HttpError::Forbidden(detail.to_owned()));
    }
    let own_site = |site: &HeaderValue| matches!(site.as_bytes(), b"same-origin" | b"none");
    if !headers.get_all(SEC_FETCH_SITE).iter().all(own_site) {
        let detail = "a change must not come from a page of another origin (Sec-Fetch-Site)";
        return Err(HttpError::Forbidden(detail.to_owned()));
    }
    let own = host_of(request).and_then(Authority::parse);
    if !headers.get_all(ORIGIN).iter().all(|origin| is_same_origin(origin, own.as_ref())) {
        let detail = "a change must not come from a page of another origin: Origin and Host must \
                      name the same host and port; a proxy in between must pass Host on as it is";
        return Err(HttpError::Forbidden(detail.to_owned()));
    }
    Ok(())
}

/// Returns the requested host: that of an absolute target, which has precedence (RFC 9112 section
/// 3.2.2), or that of `Host`.
fn host_of<B>(request: &Request<B>) -> Option<&[u8]> {
    match request.uri().authority() {
        Some(authority) => Some(authority.as_str().as_bytes()),
        None => request.headers().get(HOST).map(HeaderValue::as_bytes),
    }
}

fn unknown_host(named: &[u8]) -> HttpError {
    let shown: String = String::from_utf8_lossy(named).chars().take(SHOWN_CHARS_MAX).collect();
    HttpError::Forbidden(format!(
        "the host {shown:?} is not known here: use the IP address or localhost, or list the name \
         in admin.hosts"
    ))
}

/// Accepts `application/json`, with or without parameters.
fn is_json(value: &HeaderValue) -> bool {
    let essence = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

fn is_same_origin(origin: &HeaderValue, own: Option<&Authority<'_>>) -> bool {
    let (Some(own), Ok(origin)) = (own, origin.to_str()) else { return false };
    SCHEMES.iter().any(|(scheme, port)| {
        let from = origin.strip_prefix(scheme).and_then(|rest| Authority::parse(rest.as_bytes()));
        from.is_some_and(|from| {
            from.host.eq_ignore_ascii_case(own.host) && from.port_or(*port) == own.port_or(*port)
        })
    })
}

/// Compares in time that does not depend on the position of a difference. The length of the token
/// is no secret.
fn same(token: &[u8], given: &[u8]) -> bool {
    token.ct_eq(given).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: &[(&'static str, &'static str)]) -> Request<()> {
        let mut request = Request::new(());
        for (name, value) in fields {
            request
                .headers_mut()
                .append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        request
    }

    #[test]
    fn a_change_needs_a_header_that_a_form_cannot_send() {
        for fields in [
            &[("hotrow-admin", "1")][..],
            &[("hotrow-admin", "")],
            &[("content-type", "application/json")],
            &[("content-type", "Application/JSON ; charset=utf-8")],
        ] {
            assert_eq!(check_change(&request(fields)), Ok(()), "{fields:?}");
        }
        for fields in [
            &[][..],
            &[("content-type", "text/plain")],
            &[("content-type", "text/plain; application/json")],
            &[("content-type", "application/json-seq")],
            &[("content-type", "application/x-www-form-urlencoded")],
        ] {
            assert!(check_change(&request(fields)).is_err(), "{fields:?}");
        }
    }

    #[test]
    fn a_change_of_another_origin_is_refused() {
        for (host, origin, same) in [
            ("127.0.0.1:8081", "http://127.0.0.1:8081", true),
            ("127.0.0.1:8081", "https://127.0.0.1:8081", true),
            ("127.0.0.1:8081", "http://127.0.0.1:8080", false),
            ("127.0.0.1:8081", "http://127.0.0.1", false),
            ("localhost", "http://localhost:80", true),
            ("LOCALHOST:80", "http://localhost", true),
            ("localhost", "https://localhost", true),
            ("localhost:443", "http://localhost", false),
            ("[::1]:8081", "http://[::1]:8081", true),
            ("127.0.0.1:8081", "http://localhost:8081", false),
            ("127.0.0.1:8081", "http://evil.example", false),
            ("127.0.0.1:8081", "http://127.0.0.1:8081.evil.example", false),
            ("127.0.0.1:8081", "http://127.0.0.1:8081/", false),
            ("127.0.0.1:8081", "ftp://127.0.0.1:8081", false),
            ("127.0.0.1:8081", "null", false),
            ("127.0.0.1:8081", "", false),
        ] {
            let sent = request(&[("hotrow-admin", "1"), ("host", host), ("origin", origin)]);
            assert_eq!(check_change(&sent).is_ok(), same, "{host} {origin}");
        }
        for (site, same) in [
            ("same-origin", true),
            ("none", true),
            ("same-site", false),
            ("cross-site", false),
            ("", false),
        ] {
            let sent = request(&[("hotrow-admin", "1"), ("sec-fetch-site", site)]);
            assert_eq!(check_change(&sent).is_ok(), same, "{site}");
        }
        let hidden = request(&[
            ("hotrow-admin", "1"),
            ("host", "127.0.0.1"),
            ("origin", "http://127.0.0.1"),
            ("origin", "http://evil.example"),
        ]);
        assert!(check_change(&hidden).is_err(), "every Origin counts");
    }

    #[test]
    fn a_second_credential_is_refused() {
        let carries = |fields: &[(&'static str, &'static str)]| {
            carries_token(request(fields).headers(), "abc")
        };
        let good = ("authorization", "Bearer abc");
        assert!(carries(&[good]));
        for other in [good, ("authorization", "Bearer x"), ("authorization", "Basic OmFiYw==")] {
            assert!(!carries(&[good, other]) && !carries(&[other, good]), "{other:?}");
        }
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(same(b"abc", b"abc"));
        for given in ["", "ab", "abcd", "abd", "ABC"] {
            assert!(!same(b"abc", given.as_bytes()), "{given}");
        }
    }
}
