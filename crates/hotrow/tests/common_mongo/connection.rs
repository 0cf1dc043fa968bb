//! One connection to one member: reads commands, has them carried out, sends the answers, with the trouble that the test
//! wants.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use mongodb::bson::{Binary, RawDocumentBuf, doc, raw::cstr, spec::BinarySubtype};

use super::commands::{Seat, carry_out, label};
use super::reads::{Answer, reply};
use super::store::{number, timestamp};
use super::wire::Request;
use super::world::{Kind, Shared, Trouble};

/// How often one who waits without end looks whether there is an end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Serves a connection until it is closed.
pub(super) fn serve(shared: &Shared, mut stream: TcpStream, seat: &Seat) {
    // Without this the two halves of a conversation wait for each other's acknowledgements.
    _ = stream.set_nodelay(true);
    while let Ok(request) = Request::read(&mut stream) {
        let name = label(&request).to_owned();
        let trouble = shared.with(|world| {
            *world.counts.entry(name.clone()).or_default() += 1;
            if let Ok(heard) =
                request.body.get_document("$clusterTime").and_then(|time| time.get_timestamp("clusterTime"))
            {
                world.store.hear(number(heard));
            }
            world.trouble(&name)
        });
        let answer = match &trouble {
            Some(Trouble::Cut) => break,
            Some(Trouble::Fail(failure)) => Err(failure.clone()),
            _ => carry_out(shared, seat, &request),
        };
        let answer = finished(shared, answer);
        // A trouble that came while it was carried out, as happens to who waits for an event.
        let trouble = trouble.or_else(|| shared.lock().late_trouble(&name));
        match trouble {
            Some(Trouble::Delay(time)) => pass(shared, time),
            Some(Trouble::Hold) => hold(shared, &name),
            _ => {}
        }
        if !request.unanswered && request.answer(&mut stream, &answer).is_err() {
            break;
        }
    }
    shared.with(|world| world.connections.remove(&seat.connection));
    // Copies of it are kept elsewhere.
    _ = stream.shutdown(std::net::Shutdown::Both);
}

/// The answer with the times that every answer carries.
fn finished(shared: &Shared, answer: Answer) -> RawDocumentBuf {
    let (mut whole, operation) = match answer {
        Ok(done) => done,
        Err(failure) => (reply(&failure.reply()).expect("a plain document"), None),
    };
    let mut world = shared.lock();
    if world.kind != Kind::Standalone {
        let now = world.store.now();
        let hash = Binary { subtype: BinarySubtype::Generic, bytes: vec![0; 20] };
        let time = doc! { "clusterTime": timestamp(now), "signature": { "hash": hash, "keyId": 0_i64 } };
        whole.append(cstr!("$clusterTime"), reply(&time).expect("a plain document"));
        whole.append(cstr!("operationTime"), timestamp(operation.unwrap_or(now)));
    }
    whole
}

/// Lets time pass, or the end come.
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
        (world, _) = shared.wait(world, Instant::now() + LOOK_EVERY);
    }
    if let Some(held) = world.held.get_mut(name) {
        *held -= 1;
    }
}
