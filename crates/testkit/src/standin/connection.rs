//! Connection to one member: reads commands, executes them, and sends the answers with the faults
//! of the test.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use mongodb::bson::{Binary, Bson, Document, RawDocumentBuf, doc, raw::cstr, spec::BinarySubtype};

use super::commands::{ConnectionContext, execute, label};
use super::reads::{Answer, reply};
use super::store::{number, timestamp};
use super::wire::Request;
use super::world::{Fault, Kind, Shared};

/// Interval at which an unlimited wait checks for its end.
const CHECK_EVERY: Duration = Duration::from_millis(50);

pub fn serve(shared: &Shared, mut stream: TcpStream, context: &ConnectionContext) {
    // Without this, the two halves of an exchange wait for each other's acknowledgements.
    _ = stream.set_nodelay(true);
    while let Ok(request) = Request::read(&mut stream) {
        let name = label(&request).to_owned();
        let fault = shared.with(|world| {
            *world.counts.entry(name.clone()).or_default() += 1;
            if let Ok(client_time) = request
                .body
                .get_document("$clusterTime")
                .and_then(|time| time.get_timestamp("clusterTime"))
            {
                world.store.observe_time(number(client_time));
            }
            world.fault(&name)
        });
        let answer = match &fault {
            Some(Fault::Cut) => break,
            Some(Fault::Fail(failure)) => Err(failure.clone()),
            _ => execute(shared, context, &request),
        };
        let answer = match &fault {
            Some(Fault::Malform) => answer.map(|(reply, at)| (malformed(&reply), at)),
            _ => answer,
        };
        // A fault set during the execution also applies, for example while a `getMore` waits for
        // an event.
        let fault = fault.or_else(|| shared.lock().late_fault(&name));
        match fault {
            Some(Fault::Delay(time)) => pass(shared, time),
            Some(Fault::Hold) => hold(shared, &name),
            _ => {}
        }
        // As a server does, at the command's end: it may know more by then than a stream has looked
        // at.
        let answer = finished(shared, answer);
        if !request.unanswered && request.answer(&mut stream, &answer).is_err() {
            break;
        }
    }
    shared.with(|world| world.connections.remove(&context.connection));
    // The state keeps copies of the stream.
    _ = stream.shutdown(std::net::Shutdown::Both);
}

/// Replaces the first document of the batch by a number.
fn malformed(answer: &RawDocumentBuf) -> RawDocumentBuf {
    let mut fields = Document::try_from(answer.as_ref()).expect("a document");
    let cursor = fields.get_document_mut("cursor").expect("a reply of a cursor");
    for name in ["firstBatch", "nextBatch"] {
        if let Ok([first, ..]) = cursor.get_array_mut(name).map(Vec::as_mut_slice) {
            *first = Bson::Int32(0);
        }
    }
    reply(&fields).expect("a plain document")
}

/// Adds the times that every answer has.
fn finished(shared: &Shared, answer: Answer) -> RawDocumentBuf {
    let (mut document, operation) = match answer {
        Ok(done) => done,
        Err(failure) => (reply(&failure.reply()).expect("a plain document"), None),
    };
    let mut world = shared.lock();
    if world.kind != Kind::Standalone {
        let now = world.store.now();
        let hash = Binary { subtype: BinarySubtype::Generic, bytes: vec![0; 20] };
        let time =
            doc! { "clusterTime": timestamp(now), "signature": { "hash": hash, "keyId": 0_i64 } };
        document.append(cstr!("$clusterTime"), reply(&time).expect("a plain document"));
        document.append(cstr!("operationTime"), timestamp(operation.unwrap_or(now)));
    }
    document
}

/// Waits for `time`, or until the stand-in ends.
fn pass(shared: &Shared, time: Duration) {
    let until = Instant::now() + time;
    let mut world = shared.lock();
    loop {
        let in_time;
        (world, in_time) = shared.wait(world, until);
        if !in_time || world.ended {
            return;
        }
    }
}

/// Waits until the answers to this command are no longer held.
fn hold(shared: &Shared, name: &str) {
    let mut world = shared.lock();
    *world.held.entry(name.to_owned()).or_default() += 1;
    shared.wake();
    while world.holds(name) {
        (world, _) = shared.wait(world, Instant::now() + CHECK_EVERY);
    }
    if let Some(held) = world.held.get_mut(name) {
        *held -= 1;
    }
}
