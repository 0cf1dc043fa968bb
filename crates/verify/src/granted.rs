//! What a target grants: found out by asking, before anything is written while others look.

use std::time::{Duration, Instant};

use crate::ask::{Ask, Shape};
use crate::http::{Answer, Client, Lost, Request};
use crate::observation::{Outcome, Position};

/// How long an instance may take to be reached and to serve the row.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to answer from memory; some are told to keep nothing.
const MEMORY_PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What costs the database and so must be granted by the configuration of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// `Cache-Control: no-cache` reads the database.
    pub no_cache: bool,
    /// `Hotrow-Min-Position` is honoured.
    pub min_position: bool,
}

/// Asks for a row that stands.
///
/// # Errors
/// Why the collection cannot be checked there, in words for the user.
pub(crate) fn find_out(client: &mut Client, shape: &Shape, key: u32) -> Result<Granted, String> {
    let plain = Ask::plain(key).request(shape);
    let began = Instant::now();
    // An answer from memory, so that one with `no-cache` differs.
    let position = loop {
        let wrong = match client.ask(&plain, |_| {}) {
            Ok(answer) if answer.status() == 200 => match version(&answer, shape, key) {
                Ok(()) if outcome(&answer) == Outcome::Hit || began.elapsed() > MEMORY_PATIENCE => {
                    break answer.header("hotrow-position").and_then(Position::parse);
                }
                Ok(()) => "it answers nothing from memory".to_owned(),
                Err(what) => format!("it serves the row {}, but {what}", shape.key_type.text(key)),
            },
            Ok(answer) => format!("it answers {} for the row {}", answer.status(), shape.key_type.text(key)),
            Err(lost) => format!("there is no answer ({})", lost.name()),
        };
        if began.elapsed() > PATIENCE {
            return Err(wrong);
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let no_cache = ask_with(client, &plain, ("Cache-Control", "no-cache".to_owned())).map_err(|lost| lost.name());
    let no_cache = outcome(&no_cache?) != Outcome::Hit;
    let Some(position) = position else { return Ok(Granted { no_cache, min_position: false }) };
    let answer = ask_with(client, &plain, ("Hotrow-Min-Position", position.to_string())).map_err(|lost| lost.name())?;
    Ok(Granted { no_cache, min_position: answer.status() != 400 })
}

/// Whether the record is as it was written, with all three columns.
fn version(answer: &Answer, shape: &Shape, key: u32) -> Result<(), String> {
    let record = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
    crate::row::version_of(&record, &shape.key, shape.key_type, key).map(|_| ())
}

fn ask_with(client: &mut Client, plain: &Request, header: (&'static str, String)) -> Result<Answer, Lost> {
    let mut request = plain.clone();
    request.headers.push(header);
    client.ask(&request, |_| {})
}

fn outcome(answer: &Answer) -> Outcome {
    Outcome::parse(answer.header("hotrow-cache"))
}
