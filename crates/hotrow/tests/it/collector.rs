//! A stand-in for a collector: it decodes messages of OTLP over HTTP, and answers as it is set to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hotrow_testkit::harness::{SOON, await_some};
use serde::{Deserialize, Deserializer};

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

/// A message in the form of the specification; nothing else may be in it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Message {
    pub(crate) resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ResourceSpans {
    pub(crate) resource: serde_json::Value,
    scope_spans: Vec<ScopeSpans>,
    #[serde(rename = "schemaUrl")]
    _schema_url: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScopeSpans {
    #[serde(rename = "scope")]
    _scope: serde_json::Value,
    spans: Vec<Span>,
    #[serde(rename = "schemaUrl")]
    _schema_url: String,
}

/// Ids are hexadecimal; that of a parent may be missing.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Span {
    pub(crate) trace_id: String,
    pub(crate) span_id: String,
    #[serde(default)]
    pub(crate) parent_span_id: String,
    #[serde(rename = "flags")]
    _flags: u32,
    pub(crate) name: String,
    pub(crate) kind: i32,
    #[serde(deserialize_with = "number_in_text")]
    pub(crate) start_time_unix_nano: u64,
    #[serde(deserialize_with = "number_in_text")]
    pub(crate) end_time_unix_nano: u64,
    attributes: Vec<Attribute>,
    #[serde(default)]
    pub(crate) links: Vec<Link>,
    #[serde(rename = "droppedLinksCount")]
    _dropped_links_count: u32,
    pub(crate) status: Option<Status>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Status {
    pub(crate) code: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Link {
    pub(crate) trace_id: String,
    pub(crate) span_id: String,
    #[serde(rename = "flags")]
    _flags: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Attribute {
    key: String,
    value: Value,
}

#[derive(Clone, Debug, Deserialize)]
enum Value {
    #[serde(rename = "stringValue")]
    Text(String),
    #[serde(rename = "intValue", deserialize_with = "number_in_text")]
    Number(u64),
    #[serde(rename = "boolValue")]
    Flag(bool),
}

fn number_in_text<'de, D: Deserializer<'de>>(value: D) -> Result<u64, D::Error> {
    String::deserialize(value)?.parse().map_err(serde::de::Error::custom)
}

/// One message as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// Request line and header fields.
    pub(crate) head: String,
    pub(crate) message: Message,
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
    span.trace_id == format!("{trace_id:032x}")
}

/// Returns the attributes of a span as texts.
pub(crate) fn attributes(span: &Span) -> BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::Text(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
    };
    span.attributes.iter().map(|pair| (pair.key.clone(), text(&pair.value))).collect()
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
        let message = serde_json::from_slice(&bytes).expect("a message");
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
