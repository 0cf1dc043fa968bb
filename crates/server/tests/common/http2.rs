//! A client for HTTP/2 that sends only what a test names: one connection, one request at a time.

use std::net::SocketAddr;

use http::Request;
use http_body::Body as _;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::Answer;

pub(crate) struct Http2Connection {
    runtime: Runtime,
    sender: SendRequest<String>,
    address: SocketAddr,
}

impl Http2Connection {
    /// Connects with prior knowledge.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            let (sender, connection) =
                handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            sender
        });
        Self { runtime, sender, address }
    }

    /// Sends a request whose `fields` are lines as of HTTP/1.1. Panics if there is no answer.
    pub(crate) fn ask(&mut self, method: &str, target: &str, fields: &str, body: &str) -> Answer {
        let mut request =
            Request::builder().method(method).uri(format!("http://{}{target}", self.address));
        for line in fields.lines() {
            let (name, value) = line.split_once(": ").unwrap();
            request = request.header(name, value);
        }
        let request = request.body(body.to_owned()).unwrap();
        let Self { runtime, sender, .. } = self;
        runtime.block_on(async {
            let answer = sender.send_request(request).await.unwrap();
            let status = answer.status().as_u16();
            let fields = answer.headers().iter();
            let head = fields
                .map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap()))
                .collect::<String>()
                .to_ascii_lowercase();
            let mut incoming = answer.into_body();
            let mut body = Vec::new();
            while let Some(frame) =
                std::future::poll_fn(|cx| std::pin::Pin::new(&mut incoming).poll_frame(cx)).await
            {
                body.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
            }
            Answer { status, head, body: String::from_utf8(body).unwrap() }
        })
    }
}
