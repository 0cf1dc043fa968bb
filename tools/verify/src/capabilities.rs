//! Capabilities of a target, probed before the run writes concurrently.

use std::time::{Duration, Instant};

use crate::family::first_value;
use crate::http::{Client, Request, RequestError, Response};
use crate::observation::{Form, Outcome, Position};
use crate::read_request::ReadRequest;
use crate::record_schema::RecordSchema;

/// Time limit for an instance to be reached and to serve the row.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Time limit for a response from memory; some collections are configured not to cache.
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(3);
const MIN_POSITION: &str = "Hotrow-Min-Position";
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Capabilities that cost database reads and therefore depend on the collection's configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// `Cache-Control: no-cache` reads the database.
    pub no_cache: bool,
    /// `Hotrow-Min-Position` is honoured.
    pub min_position: bool,
    /// `Hotrow-Min-Position: now` is.
    pub strict: bool,
    /// Batches may be snapshots.
    pub snapshot: bool,
    /// Snapshots may include the other collection of the table.
    pub across: bool,
}

/// Probes a target with an existing row.
///
/// # Errors
/// The reason the collection cannot be checked there, as a message for the user.
pub(crate) fn probe(
    client: &mut Client,
    schema: &RecordSchema,
    key: u32,
) -> Result<Capabilities, String> {
    let plain = ReadRequest::plain(key).request(schema);
    let began = Instant::now();
    // A response from memory, so that one with `no-cache` differs.
    let position = loop {
        let wrong = match client.ask(&plain, |_| {}) {
            Ok(response) if response.status() == 200 => match version(&response, schema, key) {
                Ok(())
                    if outcome(&response) == Outcome::Hit || began.elapsed() > MEMORY_WAIT_MAX =>
                {
                    break response.header("hotrow-position").and_then(Position::parse);
                }
                Ok(()) => "it serves nothing from memory".to_owned(),
                Err(what) => format!("it serves the row {}, but {what}", schema.key_type.text(key)),
            },
            Ok(response) if matches!(response.status(), 401 | 403) => format!(
                "it returned {} for the row {}; give a credential that may read the collection \
                 with --token-file or --header @FILE",
                response.status(),
                schema.key_type.text(key)
            ),
            Ok(response) => format!(
                "it returned {} for the row {}",
                response.status(),
                schema.key_type.text(key)
            ),
            Err(lost) => match client.failure() {
                Some(why) => format!("no connection: {why}"),
                None => format!("there was no response ({})", lost.name()),
            },
        };
        if began.elapsed() > WAIT_MAX {
            return Err(wrong);
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    if let Some(alias) = &schema.alias {
        let request = ReadRequest::by_value(schema.keys + first_value(key)).request(schema);
        let response = client.ask(&request, |_| {}).map_err(|lost| lost.name())?;
        if response.status() != 200 {
            let status = response.status();
            return Err(format!("it returned {status} for that row by its {}", alias.column));
        }
        version(&response, schema, key)
            .map_err(|what| format!("it serves a row by its {}, but {what}", alias.column))?;
    }
    let no_cache = ask_with(client, &plain, "Cache-Control", "no-cache".to_owned())
        .map_err(|lost| lost.name());
    let no_cache = outcome(&no_cache?) != Outcome::Hit;
    let min_position = match position {
        None => false,
        Some(position) => {
            let response = ask_with(client, &plain, MIN_POSITION, position.to_string());
            response.map_err(|lost| lost.name())?.status() != 400
        }
    };
    let strict = ask_with(client, &plain, MIN_POSITION, "now".to_owned());
    let strict = is_granted(strict)?;
    let snapshot = |form| ReadRequest { form, ..ReadRequest::plain(key) }.request(schema);
    let across = client.ask(&snapshot(Form::SnapshotAcross), |_| {});
    let across = schema.other.is_some() && is_granted(across)?;
    let snapshot = is_granted(client.ask(&snapshot(Form::SnapshotGet), |_| {}))?;
    Ok(Capabilities { no_cache, min_position, strict, snapshot, across })
}

/// Returns whether a request is neither unknown nor forbidden there.
fn is_granted(response: Result<Response, RequestError>) -> Result<bool, String> {
    let status = response.map_err(|lost| lost.name())?.status();
    Ok(!matches!(status, 400 | 403 | 404 | 405))
}

/// Checks that the record has all parts as written.
fn version(response: &Response, schema: &RecordSchema, key: u32) -> Result<(), String> {
    let record = serde_json::from_slice(&response.body).map_err(|error| error.to_string())?;
    schema.content(&record, key).map(|_| ())
}

fn ask_with(
    client: &mut Client,
    plain: &Request,
    name: &'static str,
    value: String,
) -> Result<Response, RequestError> {
    let mut request = plain.clone();
    request.headers.push((name, value));
    client.ask(&request, |_| {})
}

fn outcome(response: &Response) -> Outcome {
    Outcome::parse(response.header("hotrow-cache"))
}
