//! Settings of traces.

use std::path::PathBuf;

use super::http_url::HttpUrl;

/// Export of spans to a collector.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Address to which messages of OTLP are sent.
    pub endpoint: HttpUrl,
    /// File of the roots to which the collector's certificate must lead; `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// File of header fields that messages carry, which may be credentials.
    pub headers_file: Option<PathBuf>,
    /// Share of the requests that are traced although no caller has decided, 0 to 1.
    pub sample: f64,
    /// Name of this service in traces.
    pub service_name: String,
    /// Most traced requests per second.
    pub requests_per_s_max: u32,
    /// `true`: spans have the path, and so the ids of records.
    pub has_keys: bool,
}
