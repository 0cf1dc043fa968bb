//! Cost of the HTTP library alone: hyper on a current-thread runtime with the floor's answers from
//! a cache.
//!
//! Its cost above the floor is that of hyper and tokio; the product's cost above this one is its
//! own. Only the order of header fields and the refresh of the date are left to the library.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::header::{HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use quick_cache::sync::Cache;
use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;

const USAGE: &str = "usage: library ADDR RECORDS_FILE";
const PREFIX: &str = "/products/";

struct Record {
    fields: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

type Records = Cache<u64, Arc<Record>>;

/// A body in one piece.
struct Whole(Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// Parses one record of the floor's file: a line `ID HEAD_BYTES BODY_BYTES DATE_AT`, head and body,
/// a newline.
fn record(file: &[u8], at: usize) -> Option<(u64, Record, usize)> {
    let line_bytes = file.get(at..)?.iter().position(|byte| *byte == b'\n')?;
    let line = std::str::from_utf8(&file[at..at + line_bytes]).ok()?;
    let mut numbers = line.split(' ').map(|word| word.parse::<usize>().ok());
    let id = numbers.next()??;
    let head_bytes = numbers.next()??;
    let body_bytes = numbers.next()??;
    let start = at + line_bytes + 1;
    let (head, rest) = file.get(start..)?.split_at_checked(head_bytes)?;
    let mut fields = Vec::new();
    for field in
        std::str::from_utf8(head).ok()?.split("\r\n").skip(1).filter(|field| !field.is_empty())
    {
        let (name, value) = field.split_once(':')?;
        let name: HeaderName = name.parse().ok()?;
        // hyper writes these two fields itself.
        if name != "date" && name != "content-length" {
            fields.push((name, HeaderValue::from_str(value.trim()).ok()?));
        }
    }
    let body = Bytes::copy_from_slice(rest.get(..body_bytes)?);
    Some((id as u64, Record { fields, body }, start + head_bytes + body_bytes + 1))
}

fn read(path: &str) -> Result<Records, String> {
    let file = std::fs::read(path).map_err(|e| format!("cannot read records from {path}: {e}"))?;
    let mut records = Vec::new();
    let mut at = 0;
    while at < file.len() {
        let (id, record, next) =
            record(&file, at).ok_or_else(|| format!("{path} is wrong at byte {at}"))?;
        records.push((id, Arc::new(record)));
        at = next;
    }
    let cache = Cache::new(2 * records.len() + 100);
    records.into_iter().for_each(|(id, record)| cache.insert(id, record));
    Ok(cache)
}

fn answer(records: &Records, path: &str) -> Response<Whole> {
    let id = path.strip_prefix(PREFIX).and_then(|id| id.parse().ok());
    let Some(record) = id.and_then(|id: u64| records.get(&id)) else {
        let mut response = Response::new(Whole(None));
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    };
    let mut response = Response::new(Whole(Some(record.body.clone())));
    let headers = response.headers_mut();
    headers.reserve(record.fields.len());
    for (name, value) in &record.fields {
        headers.insert(name, value.clone());
    }
    response
}

async fn serve(address: SocketAddr, records: Arc<Records>) -> std::io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(1_024)?;
    let listener = TcpListener::from_std(socket.into())?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let records = records.clone();
        tokio::task::spawn_local(async move {
            let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                let response = answer(&records, request.uri().path());
                async move { Ok::<_, Infallible>(response) }
            });
            // An error ends the connection; no one needs the message.
            let _ = http1::Builder::new()
                .pipeline_flush(true)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn run() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(file), None) = (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err(USAGE.to_owned());
    };
    let address: SocketAddr =
        address.parse().map_err(|e| format!("{address:?} is no address: {e}"))?;
    let records = Arc::new(read(&file)?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(|e| e.to_string())?;
    let local = tokio::task::LocalSet::new();
    local
        .block_on(&runtime, serve(address, records))
        .map_err(|e| format!("cannot serve on {address}: {e}"))
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("library: {message}");
            ExitCode::FAILURE
        }
    }
}
