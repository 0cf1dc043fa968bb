//! A stand-in for a collector: it decodes messages of OTLP over HTTP, and answers as it is set to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hotrow_testkit::harness::{SOON, await_some};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// How the stand-in answers.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    /// With this status, header fields and body.
    Answer(u16, &'static str, Vec<u8>),
    /// With bytes that are no HTTP.
    Garbage,
    /// Never, while the connection is open.
    Silence,
}

impl Behaviour {
    pub(crate) fn ok() -> Self {
        Self::Answer(200, "", Vec::new())
    }
}

/// One message as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// Request line and header fields.
    pub(crate) head: String,
    pub(crate) message: ExportTraceServiceRequest,
    /// Bytes of the message.
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug)]
struct State {
    behaviour: Behaviour,
    received: Vec<Received>,
}

/// The stand-in. Its threads end with the test program.
pub(crate) struct Collector {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Collector {
    pub(crate) fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(Mutex::new(State { behaviour, received: Vec::new() }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(&stream, &state));
            }
        });
        Self { address, state }
    }

    /// Returns the value of `trace.endpoint`.
    pub(crate) fn endpoint(&self) -> String {
        format!("\"http://{}/v1/traces\"", self.address)
    }

    pub(crate) fn behave(&self, behaviour: Behaviour) {
        self.state.lock().unwrap().behaviour = behaviour;
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.state.lock().unwrap().received.clone()
    }

    /// Returns all spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let received = self.received();
        let resources = received.into_iter().flat_map(|received| received.message.resource_spans);
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }

    /// Waits until a span satisfies the condition.
    #[track_caller]
    pub(crate) fn await_span(&self, what: &str, is_it: impl Fn(&Span) -> bool) -> Span {
        await_some(what, SOON, || self.spans().into_iter().find(&is_it))
    }

    /// Waits for the server span of a trace.
    #[track_caller]
    pub(crate) fn await_server_span(&self, trace_id: u128) -> Span {
        self.await_span("a server span", |span| of(span, trace_id) && span.kind == SERVER)
    }
}

pub(crate) const INTERNAL: i32 = 1;
pub(crate) const SERVER: i32 = 2;
pub(crate) const CLIENT: i32 = 3;

/// Span of the caller in all requests.
pub(crate) const PARENT: u64 = 0x00f0_67aa_0ba9_02b7;

/// Returns a value of `traceparent` for a trace of this number.
pub(crate) fn traceparent(trace_id: u128, is_sampled: bool) -> String {
    format!("00-{trace_id:032x}-{PARENT:016x}-{:02x}", u8::from(is_sampled))
}

/// Returns whether a span is of this trace.
pub(crate) fn of(span: &Span, trace_id: u128) -> bool {
    span.trace_id == trace_id.to_be_bytes()
}

/// Returns the attributes of a span as texts.
pub(crate) fn attributes(span: &Span) -> BTreeMap<String, String> {
    let text = |value: Option<Value>| match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        other => panic!("{other:?}"),
    };
    let pairs = span.attributes.iter().cloned();
    pairs.map(|pair| (pair.key, text(pair.value.and_then(|value| value.value)))).collect()
}

/// Answers the requests of one connection.
fn serve(stream: &TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        loop {
            let begun = head.len();
            if !reader.read_line(&mut head).is_ok_and(|bytes| bytes > 0) {
                return;
            }
            if head[begun..].trim().is_empty() {
                break;
            }
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        let mut bytes = vec![0; length.expect("a length")];
        if reader.read_exact(&mut bytes).is_err() {
            return;
        }
        let message = ExportTraceServiceRequest::decode(&bytes[..]).expect("a message");
        let mut state = state.lock().unwrap();
        state.received.push(Received { head, message, bytes });
        let behaviour = state.behaviour.clone();
        drop(state);
        let mut stream = stream;
        let answered = match behaviour {
            Behaviour::Answer(status, fields, body) => {
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{fields}\r\n");
                stream.write_all(&[head.as_bytes(), &body].concat())
            }
            Behaviour::Garbage => stream.write_all(b"\x00\x01garbage\r\n\r\n"),
            Behaviour::Silence => {
                // Until the client gives up.
                stream.set_read_timeout(Some(Duration::from_secs(600))).expect("a time-out");
                _ = reader.read(&mut [0]);
                return;
            }
        };
        if answered.is_err() {
            return;
        }
    }
}
