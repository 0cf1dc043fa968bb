//! The page that shows the description, and for browsers the index. It loads nothing from
//! elsewhere, and is the same for everyone.

use bytes::Bytes;
use hotrow_answer::body::Body;
use hotrow_answer::error_type::{PAGE, PAGE_PATH};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response};

/// Path of the page.
pub const PATH: &str = "/openapi.html";

/// Path, content type and content of each file.
const FILES: [(&str, &str, &str); 4] = [
    (PATH, "text/html; charset=utf-8", include_str!("viewer/openapi.html")),
    ("/openapi.js", "text/javascript; charset=utf-8", include_str!("viewer/openapi.js")),
    ("/openapi.css", "text/css; charset=utf-8", include_str!("viewer/openapi.css")),
    (PAGE_PATH, "text/plain; charset=utf-8", PAGE),
];

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns content type and content of a file.
pub fn file(path: &str) -> Option<(&'static str, &'static str)> {
    let (_, content_type, content) = FILES.iter().find(|(at, ..)| *at == path)?;
    Some((content_type, content))
}

/// Answers with a file.
pub fn answer(path: &str) -> Response<Body> {
    let (content_type, content) = file(path).unwrap_or_default();
    let mut response = Response::new(Body::Bytes(Bytes::from_static(content.as_bytes())));
    for (name, value) in [
        (CONTENT_TYPE, content_type),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_complies_with_its_policy_and_is_small() {
        let own = || FILES.iter().filter(|(path, ..)| *path != PAGE_PATH);
        for (path, _, content) in own() {
            for forbidden in ["http://", "https://", "eval(", "innerHTML", ".style", "onclick"] {
                assert!(!content.contains(forbidden), "{forbidden} in {path}");
            }
        }
        let lines: usize = own().map(|(.., content)| content.lines().count()).sum();
        assert!(lines <= 250, "{lines}");
    }
}
