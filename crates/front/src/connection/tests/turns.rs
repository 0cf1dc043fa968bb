//! Tests of the work of one turn, in requests that a poll of a connection begins.

use hotrow_config::Limits;
use std::future::{Future, ready};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use hotrow_answer::body::Body;
use hotrow_net::direct::Direct;
use http::Response;
use tokio::net::UnixStream;

use crate::connection::serve::HttpService;
use crate::connection::worker_context::WorkerContext;
use crate::connection::*;

/// Answers at once.
struct Quick;

impl HttpService for Quick {
    type Body = Body;

    fn call(
        &self,
        _: http::Request<hotrow_answer::request::RequestBody>,
    ) -> Pin<Box<dyn Future<Output = Response<Self::Body>>>> {
        Box::pin(ready(Response::new(Body::Empty)))
    }
}

/// Returns the requests that each turn begins, until all `count` have begun.
async fn by_turn(sent: &[u8], count: u64) -> Vec<u64> {
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.write_all(sent).unwrap();
    let worker =
        WorkerContext::new(Limits::small(), Arc::default(), hotrow_measure::clock::Nanos::now());
    let registry = Registry::new(Rc::new(worker.with(true, Arc::default())));
    let registered = registry.enter(&Arc::default(), 1).unwrap();
    let activity = Rc::clone(registered.activity());
    let stream = Direct(UnixStream::from_std(ours).unwrap());
    let client = Peer::Address(Ipv4Addr::LOCALHOST.into()).into();
    let mut served = pin!(serve(stream, client, Rc::new(Quick), registered));
    let mut turns = Vec::new();
    while activity.requests() < count {
        let before = activity.requests();
        assert!(served.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        turns.push(activity.requests() - before);
        tokio::task::yield_now().await;
    }
    turns
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Requests of HTTP/2 with these further fields.
fn http2(count: u32, fields: &[u8]) -> Vec<u8> {
    let block = [b"\x82\x86\x84\x01\x01a", fields].concat();
    let requests = (0..count).flat_map(|at| frame(1, 5, 2 * at + 1, &block));
    hotrow_http2::PREFACE.iter().copied().chain(frame(4, 0, 0, &[])).chain(requests).collect()
}

#[tokio::test]
async fn a_turn_begins_as_many_requests_as_its_work_allows() {
    let pipelined = |target: &str| format!("GET /{target} HTTP/1.1\r\nhost: a\r\n\r\n").repeat(100);
    let most = |turns: Vec<u64>| turns.into_iter().max().unwrap();
    assert!((24..=32).contains(&most(by_turn(pipelined("a").as_bytes(), 100).await)));
    let long = "1,".repeat(25);
    assert!(most(by_turn(pipelined(&long).as_bytes(), 100).await) < 32);
    assert!((24..=32).contains(&most(by_turn(&http2(100, &[]), 100).await)));
    // A field of 2,000 bytes in the decoder's table, and a byte for each use of it.
    let unfolds = [b"\x40\x01a\x7f\xd1\x0e", &[b'b'; 2_000][..], &[0xbe; 8_000]].concat();
    assert_eq!(most(by_turn(&http2(10, &unfolds), 10).await), 1);
}
