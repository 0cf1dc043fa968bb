//! Serves one fixed answer, so that what our layers cost beyond hyper can be measured: the same service on our connections
//! (`ours`) and on hyper's own with nothing between (`plain`).
//!
//! ```text
//! taskset -c 0 target/release/examples/fixed_answer ours 127.0.0.1:9090 &
//! taskset -c 1 wrk -t1 -c50 -d10 http://127.0.0.1:9090/products/1
//! ```
//! After the seconds given as third argument (default 3,600) it prints the CPU time that it used.
// `plain` must read into hyper's own buffer, as other servers do, and hyper offers that only unsafely.
#![allow(unsafe_code)]

use std::convert::Infallible;
use std::error::Error;
use std::future::{Ready, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hotrow_server::config::{Config, Limits};
use hotrow_server::drain::Shutdown;
use hotrow_server::listen::Listeners;
use hotrow_server::worker::run_workers;
use http_body::{Frame, SizeHint};
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};

const ANSWER: &str = r#"{"id":12345,"name":"A product with a name of usual length","description":"Some words that say what it is, long enough that the whole record is as large as the records that others measure w.","price_cents":129900,"currency":"EUR","stock":17,"tags":["one","two","three"],"updated_at":"2025-01-01T00:00:00Z","active":true}"#;
const _: () = assert!(ANSWER.len() == 319);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [mode, address, rest @ ..] = &args[..] else {
        return Err("usage: fixed_answer ours|plain ADDRESS [SECONDS]".into());
    };
    let address: SocketAddr = address.parse()?;
    let lifetime = Duration::from_secs(rest.first().map_or(Ok(3600), |s| s.parse())?);
    match mode.as_str() {
        "ours" => ours(address, lifetime)?,
        "plain" => plain(address, lifetime)?,
        other => return Err(format!("{other}: neither `ours` nor `plain`").into()),
    }
    println!("{mode}: cpu_s {:.4}", cpu_s());
    Ok(())
}

fn ours(address: SocketAddr, lifetime: Duration) -> Result<(), Box<dyn Error>> {
    let limits = Limits {
        connections: 10_000,
        requests_in_flight: 10_000,
        header_bytes: 16 * 1024,
        headers: 64,
        target_bytes: 8 * 1024,
        body_bytes: 1 << 20,
        header_timeout: Duration::from_secs(10),
        body_timeout: Duration::from_secs(30),
        idle_timeout: Duration::from_secs(75),
        write_timeout: Duration::from_secs(30),
        request_timeout: Duration::from_secs(5),
        drain_timeout: Duration::from_secs(10),
        max_batch: 1000,
        position_wait: Duration::from_secs(1),
        privileged_waiters: 100,
    };
    let config =
        Config { data: address, admin: address, admin_token: None, workers: 1, limits, collections: Vec::new() };
    let shutdown = Shutdown::new();
    let workers = run_workers(&config, Listeners::bind(address, 1)?, |_| service_fn(answer), &shutdown)?;
    std::thread::spawn(move || {
        std::thread::sleep(lifetime);
        shutdown.drain();
    });
    Ok(workers.join()?)
}

fn plain(address: SocketAddr, lifetime: Duration) -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await?;
        let serve = async {
            loop {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                tokio::task::spawn_local(async move {
                    let io = Plain(stream);
                    // A broken connection ends; the measurement shows it.
                    let _ = http1::Builder::new().serve_connection(io, service_fn(answer)).await;
                });
            }
        };
        tokio::time::timeout(lifetime, serve).await.unwrap_or(Ok(()))
    })
}

fn answer(_: Request<Incoming>) -> Ready<Result<Response<Fixed>, Infallible>> {
    let mut response = Response::new(Fixed(Some(Bytes::from_static(ANSWER.as_bytes()))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    ready(Ok(response))
}

/// A body of one piece.
struct Fixed(Option<Bytes>);

impl Body for Fixed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// A socket for hyper with nothing in between.
struct Plain(TcpStream);

impl hyper::rt::Read for Plain {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut to: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // SAFETY: tokio's buffer writes initialized bytes only, and takes none back.
        let read = unsafe {
            let mut buf = ReadBuf::uninit(to.as_mut());
            ready!(Pin::new(&mut self.0).poll_read(cx, &mut buf))?;
            buf.filled().len()
        };
        // SAFETY: that many bytes have been read into it.
        unsafe { to.advance(read) };
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Plain {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// User and system time of this process.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
