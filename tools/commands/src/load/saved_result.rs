//! Saved results of earlier runs, as printed by `--json`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use super::json::SCHEMA;
use crate::machine::MachineInfo;

/// Maximum size of a result, in bytes: a week of seconds is smaller.
const BYTES_MAX: u64 = 256 << 20;

/// The parts of a result that a comparison needs.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct SavedResult {
    /// None in results of earlier versions.
    pub(super) began_unix_s: Option<u64>,
    pub(super) machine: Option<MachineInfo>,
    pub(super) target: Target,
    pub(super) end: String,
    pub(super) duration_s: f64,
    pub(super) requests: Requests,
    pub(super) throughput_rps: f64,
    pub(super) latency_us: Quantiles,
    pub(super) generator: Generator,
    pub(super) seconds: Vec<Second>,
    pub(super) verdict: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Target {
    pub(super) url: String,
    pub(super) connections: usize,
    pub(super) threads: usize,
    /// A number, `"FROM..TO"`, or null in a closed loop.
    pub(super) rate: serde_json::Value,
    pub(super) keepalive: bool,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Requests {
    pub(super) ok: u64,
    pub(super) errors: u64,
    pub(super) timeouts: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Quantiles {
    pub(super) p50: Micros,
    p75: Micros,
    p90: Micros,
    p95: Micros,
    pub(super) p99: Micros,
    p999: Micros,
}

impl Quantiles {
    /// Returns the shares of requests with the latencies, in µs, that they took at most.
    pub(super) fn curve(&self) -> Vec<(f64, f64)> {
        let Self { p50, p75, p90, p95, p99, p999 } = self;
        let known = [(0.5, p50), (0.75, p75), (0.9, p90), (0.95, p95), (0.99, p99), (0.999, p999)];
        known.into_iter().filter_map(|(share, us)| Some((share, us.0?))).collect()
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Generator {
    pub(super) limited: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Second {
    pub(super) length_s: f64,
    pub(super) ok: u64,
    pub(super) p50_us: Micros,
    pub(super) p99_us: Micros,
}

/// Microseconds; none without samples. `">x"`, a lower bound among requests without the expected
/// answer, is read as x.
#[derive(Clone, Copy, Debug)]
pub(super) struct Micros(pub(super) Option<f64>);

impl<'de> Deserialize<'de> for Micros {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum JsonForm {
            Number(f64),
            AtLeast(String),
        }
        Ok(Self(match Option::<JsonForm>::deserialize(deserializer)? {
            None => None,
            Some(JsonForm::Number(us)) => Some(us),
            Some(JsonForm::AtLeast(text)) => {
                let us = text.strip_prefix('>').and_then(|us| us.parse().ok());
                Some(us.ok_or_else(|| D::Error::custom(format!("{text:?} is no time in µs")))?)
            }
        }))
    }
}

/// Reasons why a file is no result.
#[derive(Debug, thiserror::Error)]
pub enum SavedResultError {
    /// It cannot be read.
    #[error("{path} cannot be read: {why}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// It has other content.
    #[error("{path} is no result of `hotrow load --json` ({SCHEMA}): {why}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The defect.
        why: String,
    },
}

pub(super) fn read(path: &Path) -> Result<SavedResult, SavedResultError> {
    let unreadable = |why: std::io::Error| SavedResultError::Unreadable {
        path: path.to_owned(),
        why: why.to_string(),
    };
    let foreign = |why: String| SavedResultError::Foreign { path: path.to_owned(), why };
    let mut text = String::new();
    File::open(path)
        .map_err(unreadable)?
        .take(BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(foreign(format!("it is longer than {BYTES_MAX} bytes")));
    }
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| foreign(e.to_string()))?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(SCHEMA) => serde_json::from_value(value).map_err(|e| foreign(e.to_string())),
        Some(other) => Err(foreign(format!("its schema is {other:?}"))),
        None => Err(foreign("it has no schema".to_owned())),
    }
}
