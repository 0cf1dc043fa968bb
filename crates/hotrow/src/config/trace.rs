//! `[trace]`: spans of requests and queries for a collector of OpenTelemetry.
//!
//! Reference `configuration`: `[trace]`
//!
//! [Spans](traces.md) of requests and queries for a collector of OpenTelemetry.
//!
//! - `endpoint`: As `"http://127.0.0.1:4318/v1/traces"`, without credentials. Required here.
//! - `ca_file`: For `https://`; without it those of the system.
//! - `headers_file`: A line `Name: value` each. Needs `https://` or a collector on this machine.
//! - `service_name`: `service.name` of the spans.
//! - `sample`: Share of the requests that are traced, of those that wait and have no `traceparent`.
//! - `max_per_s`: Most traced requests per second.
//! - `record_keys`: Spans have the path, and so ids, which may be personal.

use std::path::PathBuf;

use hotrow_config::http_url::HttpUrl;
use hotrow_config::trace::Trace;

use super::problem::shown;
use super::reader::Section;

/// Longest name of the service in bytes.
const SERVICE_NAME_BYTES_MAX: usize = 255;
/// Most traced requests per second; each has some spans of about a kilobyte.
const REQUESTS_PER_S_MAX: usize = 10_000;

/// Reads the section; `None` without an endpoint.
pub(super) fn trace(mut section: Section<'_>) -> Option<Trace> {
    let endpoint = section.text("endpoint", "none", "a URL of OTLP over HTTP");
    let ca_file = section.text("ca_file", "none", "path of root certificates in PEM form");
    let headers_file = section.text("headers_file", "none", "path of a file of header fields");
    let service_name = section.text("service_name", "\"hotrow\"", "1 to 255 bytes");
    let sample = section.share("sample", 0.01, 0.0..=1.0);
    let per_s_max = section.count("max_per_s", 100, 1..=REQUESTS_PER_S_MAX);
    let has_keys = section.flag("record_keys", false);
    let Some(endpoint) = endpoint.map(|text| text.value) else {
        if section.is_present() {
            let what = "is required; for instance \"http://127.0.0.1:4318/v1/traces\"";
            section.refuse("endpoint", what);
        }
        section.finish();
        return None;
    };
    let service_name = service_name.map_or_else(|| "hotrow".to_owned(), |text| text.value);
    if !(1..=SERVICE_NAME_BYTES_MAX).contains(&service_name.len()) {
        let what = format!("must have 1 to {SERVICE_NAME_BYTES_MAX} bytes, not");
        section.refuse("service_name", format!("{what} {}", shown(&service_name)));
    }
    let path = |text: super::reader::Text| PathBuf::from(text.value);
    let (ca_file, headers_file) = (ca_file.map(path), headers_file.map(path));
    let url = url(&section, &endpoint, (ca_file.is_some(), headers_file.is_some()));
    section.finish();
    Some(Trace {
        endpoint: url?,
        ca_file,
        headers_file,
        sample,
        service_name,
        requests_per_s_max: u32::try_from(per_s_max).unwrap_or(u32::MAX),
        has_keys,
    })
}

/// Checks the endpoint, and the files that depend on it. Its text may have a credential, so no
/// message repeats it.
fn url(section: &Section<'_>, text: &str, (has_ca, has_headers): (bool, bool)) -> Option<HttpUrl> {
    let url: HttpUrl = match text.parse() {
        Ok(url) => url,
        Err(why) => {
            section.refuse("endpoint", why);
            return None;
        }
    };
    if url.target.contains('?') {
        let what = "must have no query; credentials belong in trace.headers_file";
        section.refuse("endpoint", what);
    }
    if url.target == "/" {
        let what = "must have the path of traces, which is usually /v1/traces";
        section.refuse("endpoint", what);
    }
    if has_ca && !url.is_tls {
        section.refuse("ca_file", "has no meaning unless trace.endpoint begins with https://");
    }
    if has_headers && !url.is_tls && !url.is_local() {
        let what = "needs an endpoint with https://: credentials must not cross a network in clear";
        section.refuse("headers_file", what);
    }
    Some(url)
}

#[cfg(test)]
mod tests {
    use crate::config::{Overrides, parse};

    use super::*;

    fn resolved(section: &str) -> Result<Option<Trace>, String> {
        let text =
            format!("[source]\nurl = \"sqlite:/tmp/shop.db\"\n[collections.products]\n{section}");
        parse(&text, "hotrow.toml", &|_| Err(std::env::VarError::NotPresent), &Overrides::default())
            .map(|resolved| resolved.server.observability.trace)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_endpoint_turns_it_on() {
        assert!(resolved("").unwrap().is_none());
        let local = "[trace]\nendpoint = \"http://127.0.0.1:4318/v1/traces\"\n";
        let trace = resolved(local).unwrap().unwrap();
        assert_eq!((trace.sample, trace.requests_per_s_max, trace.has_keys), (0.01, 100, false));
        assert_eq!((&*trace.service_name, trace.headers_file), ("hotrow", None));
        let trace = resolved(&format!("{local}headers_file = \"/etc/hotrow/otlp\"\nsample = 1"));
        assert_eq!(trace.unwrap().unwrap().headers_file, Some("/etc/hotrow/otlp".into()));
        let secure = "[trace]\nendpoint = \"https://otlp.example/v1/traces\"\n";
        assert!(resolved(&format!("{secure}ca_file = \"ca.pem\"\nheaders_file = \"h\"")).is_ok());
        let remote = "[trace]\nendpoint = \"http://collector:4318/v1/traces\"\n";
        assert!(resolved(remote).unwrap().is_some());
        for (bad, rule) in [
            ("[trace]", "trace.endpoint: is required"),
            ("[trace]\nsample = 0.5", "trace.endpoint: is required"),
            ("[trace]\nendpoint = \"collector:4318\"", "trace.endpoint: must be a URL"),
            ("[trace]\nendpoint = \"http://a:s3cret@b/v1/traces\"", "no user and no password"),
            ("[trace]\nendpoint = \"http://b/v1/traces?key=s3cret\"", "must have no query"),
            ("[trace]\nendpoint = \"http://b:4318\"", "must have the path of traces"),
            (&format!("{local}sample = 2"), "trace.sample"),
            (&format!("{local}max_per_s = 0"), "trace.max_per_s"),
            (&format!("{local}service_name = \"\""), "trace.service_name: must have 1 to 255"),
            (&format!("{local}ca_file = \"ca.pem\""), "trace.ca_file: has no meaning"),
            (&format!("{remote}headers_file = \"h\""), "trace.headers_file: needs an endpoint"),
        ] {
            let error = resolved(bad).unwrap_err();
            assert!(error.contains(rule) && !error.contains("s3cret"), "{error}");
        }
    }
}
