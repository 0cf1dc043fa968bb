//! `hotrow advise`: how much memory is worth it, as a running service predicts it.

use std::time::Duration;

use clap::Args;
use hotrow_cli::Exit;
use hotrow_cli::output::{self, OutputError};
use hotrow_cli::transport_args::{TransportArgs, TransportError};
use hotrow_transport::target::Url;
use hotrow_transport::tls::HttpVersion;
use serde::Deserialize;

use crate::exchange::{Exchange, ExchangeError};

/// Largest `/status` that is read.
const BODY_BYTES_MAX: usize = 16 << 20;
/// Path that is asked for when the URL has none.
const STATUS_PATH: &str = "/status";

/// Arguments of `advise`.
#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// URL of the admin address, or unix:SOCKET
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:8081")]
    url: String,
    /// Print the prediction as JSON
    #[arg(long)]
    json: bool,
    /// Time for the whole exchange
    #[arg(long, value_name = "TIME", default_value = "10s")]
    #[arg(value_parser = hotrow_cli::positive_duration)]
    timeout: Duration,
    /// Connection and headers.
    #[command(flatten)]
    transport: TransportArgs,
}

/// Reason why there is no advice.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// HTTP/2.
    #[error("--http2 is not for advise, which sends one request over HTTP/1.1; leave it out")]
    Http2,
    /// TLS or credentials cannot be used.
    #[error("{0}")]
    Transport(String),
    /// There is no answer.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The answer's status is not 200.
    #[error(
        "{target} answered {status}; the URL must be that of the admin address, and where \
             admin.token is set, --token-file must have it"
    )]
    Status {
        /// What was asked.
        target: String,
        /// The status.
        status: u16,
    },
    /// The answer is not the status of a service that predicts.
    #[error(
        "{target} answered without the member miss_ratio_curve: {why}; is it the admin address \
             of a Hotrow that has it?"
    )]
    OtherForm {
        /// What was asked.
        target: String,
        /// The defect.
        why: String,
    },
    /// The service does not know.
    #[error("the service does not know: {0}")]
    Unknown(String),
    /// Standard output cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl From<TransportError> for AdviseError {
    fn from(error: TransportError) -> Self {
        Self::Transport(error.to_string())
    }
}

impl AdviseError {
    /// Returns the exit status: 2 if the command line is wrong.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Http2 | Self::Transport(_) => Exit::Usage,
            Self::Exchange(error) => error.exit(),
            _ => Exit::Failed,
        }
    }
}

/// The part of `/status` that is read.
#[derive(Debug, Deserialize)]
struct Status {
    miss_ratio_curve: Prediction,
}

/// The prediction, or why there is none.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Prediction {
    Unknown { unknown: String },
    Known(Curve),
}

#[derive(Debug, Deserialize)]
struct Curve {
    sampling_rate: f64,
    sampled_lookups: u64,
    dropped: u64,
    window_s: u64,
    current: Current,
    points: Vec<Point>,
    sentence: String,
}

#[derive(Debug, Deserialize)]
struct Current {
    capacity_bytes: u64,
    predicted_hit_ratio: f64,
    measured_hit_ratio: f64,
}

#[derive(Debug, Deserialize)]
struct Point {
    capacity_bytes: u64,
    hit_ratio: f64,
    low: f64,
    high: f64,
    database_reads_per_s: f64,
}

/// Runs `hotrow advise`.
///
/// # Errors
/// Returns why there is no advice.
pub fn advise(args: &AdviseArgs) -> Result<(), AdviseError> {
    let request = request(args)?;
    let target = request.target();
    let response = request.run()?;
    if response.status != 200 {
        return Err(AdviseError::Status { target, status: response.status });
    }
    let text = if args.json { as_json(&response.body) } else { as_text(&response.body) };
    let text = text.map_err(|why| AdviseError::OtherForm { target, why: why.to_string() })?;
    if !text.shown.is_empty() {
        output::print(std::io::stdout(), &text.shown)?;
    }
    match text.unknown {
        Some(reason) => Err(AdviseError::Unknown(reason)),
        None => Ok(()),
    }
}

/// What is printed on standard output; if the service does not know, the reason.
#[derive(Debug)]
struct Advice {
    shown: String,
    unknown: Option<String>,
}

fn as_json(body: &[u8]) -> Result<Advice, serde_json::Error> {
    #[derive(Deserialize)]
    struct Raw {
        miss_ratio_curve: serde_json::Value,
    }
    let Status { miss_ratio_curve } = serde_json::from_slice(body)?;
    let unknown = match miss_ratio_curve {
        Prediction::Unknown { unknown } => Some(unknown),
        Prediction::Known(_) => None,
    };
    let raw: Raw = serde_json::from_slice(body)?;
    Ok(Advice { shown: serde_json::to_string_pretty(&raw.miss_ratio_curve)?, unknown })
}

fn as_text(body: &[u8]) -> Result<Advice, serde_json::Error> {
    let Status { miss_ratio_curve } = serde_json::from_slice(body)?;
    Ok(match miss_ratio_curve {
        Prediction::Unknown { unknown } => Advice { shown: String::new(), unknown: Some(unknown) },
        Prediction::Known(curve) => Advice { shown: table(&curve), unknown: None },
    })
}

fn table(curve: &Curve) -> String {
    let mut lines = vec![format!(
        "{:>12}  {:>9}  {:>15}  {:>16}",
        "capacity", "hit ratio", "interval", "database reads/s"
    )];
    for point in &curve.points {
        let is_current = point.capacity_bytes == curve.current.capacity_bytes;
        lines.push(format!(
            "{:>8.1} MiB  {:>7.1} %  {:>5.1} to {:>4.1} %  {:>16.1}{}",
            point.capacity_bytes as f64 / f64::from(1 << 20),
            100.0 * point.hit_ratio,
            100.0 * point.low,
            100.0 * point.high,
            point.database_reads_per_s,
            if is_current { "  in force" } else { "" }
        ));
    }
    let Current { predicted_hit_ratio, measured_hit_ratio, .. } = curve.current;
    lines.push(String::new());
    lines.push(format!(
        "{} lookups of the last {} s, one key in {:.0}, {} lost.\nAt the capacity in force \
         {:.1} % is predicted and {:.1} % was measured.",
        curve.sampled_lookups,
        curve.window_s,
        1.0 / curve.sampling_rate,
        curve.dropped,
        100.0 * predicted_hit_ratio,
        100.0 * measured_hit_ratio
    ));
    lines.push(curve.sentence.clone());
    lines.join("\n")
}

fn request(args: &AdviseArgs) -> Result<Exchange, AdviseError> {
    if args.transport.version() == HttpVersion::Http2 {
        return Err(AdviseError::Http2);
    }
    args.transport.check(std::iter::once(&args.url))?;
    let mut url = Url::parse(&args.url).map_err(ExchangeError::from)?;
    if url.path == "/" {
        url.path = STATUS_PATH.to_owned();
    }
    let (headers, timeout) = (args.transport.headers()?, args.timeout);
    let tls = args.transport.tls.options(HttpVersion::Http1);
    Ok(Exchange { url, unix: None, headers, tls, timeout, body_bytes_max: BODY_BYTES_MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &str = r#"{"version":"1","miss_ratio_curve":{"sampling_rate":0.01,
        "sampled_lookups":5000,"dropped":0,"window_s":600,"current":{"capacity_bytes":268435456,
        "predicted_hit_ratio":0.934,"measured_hit_ratio":0.9312},"points":[
        {"factor":1.0,"capacity_bytes":268435456,"hit_ratio":0.934,"low":0.92,"high":0.945,
         "database_reads_per_s":2960.04},
        {"factor":2.0,"capacity_bytes":536870912,"hit_ratio":0.961,"low":0.95,"high":0.97,
         "database_reads_per_s":1760.0}],"collections":{},"sentence":"The sentence."}}"#;
    const UNKNOWN: &str = r#"{"miss_ratio_curve":{"unknown":"too small to predict"}}"#;

    #[test]
    fn the_table_marks_the_capacity_in_force() {
        let Advice { shown, unknown } = as_text(KNOWN.as_bytes()).unwrap();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(unknown, None);
        assert_eq!(
            lines[1],
            "   256.0 MiB     93.4 %   92.0 to 94.5 %            2960.0  in force"
        );
        assert_eq!(lines[2], "   512.0 MiB     96.1 %   95.0 to 97.0 %            1760.0");
        assert!(shown.contains("one key in 100") && shown.contains("93.1 % was measured"));
        assert_eq!(lines.last(), Some(&"The sentence."));
    }

    #[test]
    fn an_unknown_curve_has_its_reason_and_another_document_is_refused() {
        for print in [as_text, as_json] {
            let advice = print(UNKNOWN.as_bytes()).unwrap();
            assert_eq!(advice.unknown.as_deref(), Some("too small to predict"));
            assert!(print(b"{}").is_err() && print(b"<html>").is_err());
        }
        let json: serde_json::Value =
            serde_json::from_str(&as_json(KNOWN.as_bytes()).unwrap().shown).unwrap();
        assert_eq!(json["points"][1]["factor"], 2.0, "members that are not shown are kept");
    }
}
