//! HTTP/2 by the clients that people use (curl, h2load), and limits that it shares with HTTP/1.1.

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::frames::{Frame, Http2Client, kind, literal};
use crate::common::{Server, limits, wait_until};
use hotrow_answer::metrics::CloseCause;
use hotrow_config::Limits;
use hotrow_config::transport::{Transport, UnixSocket};

fn server(limits: Limits) -> Server {
    Server::start_over(limits, 1, Transport { http2: true, ..Transport::default() })
}

fn curl(address: SocketAddr, target: &str, arguments: &[&str]) -> Output {
    Command::new("curl")
        .args(["-sS", "--max-time", "20", "--http2-prior-knowledge"])
        .args(arguments)
        .arg(format!("http://{address}{target}"))
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn curl_gets_what_it_gets_over_http_1_1() {
    let server = server(limits());
    let got = curl(server.address, "/a?b=%2F", &["-w", " %{http_code} %{http_version}"]);
    assert_eq!(text(&got), "GET /a?b=%2F  200 2", "{got:?}");
    let body = "x".repeat(9_000);
    let posted = curl(server.address, "/b", &["-d", &body]);
    assert_eq!(text(&posted), format!("POST /b {body}"));
    let head = text(&curl(server.address, "/a", &["-I"]));
    assert!(head.starts_with("HTTP/2 200") && head.contains("date: "), "{head}");
    let size = ["-o", "/dev/null", "-w", "%{size_download}"];
    assert_eq!(text(&curl(server.address, "/big", &size)), (64 << 20).to_string());
    // Both versions on one address.
    assert_eq!(server.connect().send("GET /a HTTP/1.0\r\n\r\n").rest().statuses(), [200]);
}

#[test]
fn the_unix_socket_speaks_http2_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.sock");
    let unix = Some(UnixSocket { path: path.clone(), mode: 0o600 });
    let transport = Transport { unix, http2: true, ..Transport::default() };
    let server = Server::start_over(limits(), 1, transport);
    let path = path.display().to_string();
    let got = curl(server.address, "/a", &["--unix-socket", &path, "-w", "%{http_version}"]);
    assert_eq!(text(&got), "GET /a 2", "{got:?}");
}

#[test]
fn limits_answer_as_over_http_1_1() {
    let server = server(limits());
    let long = format!("/{}", "x".repeat(1_100));
    let fields: Vec<String> = (0..40).map(|i| format!("a{i}: b")).collect();
    let fields: Vec<&str> = fields.iter().flat_map(|field| ["-H", field]).collect();
    let large = format!("a: {}", "x".repeat(3_000));
    let twice = ["-H", &large, "-H", &large];
    let body = "x".repeat(10_001);
    for (target, arguments, status) in [
        (&*long, &[][..], 414),
        ("/a", &["-d", &body], 413),
        ("/a", &["-d", &body, "-H", "Expect: 100-continue"], 413),
        ("/a", &fields, 431),
        ("/a", &twice, 431),
        ("/a", &["-H", "Host: a@b"], 400),
    ] {
        let mut all = vec!["-o", "/dev/null", "-w", "%{http_code}"];
        all.extend(arguments);
        let got = curl(server.address, target, &all);
        let shown = &arguments[..arguments.len().min(2)];
        assert_eq!(text(&got), status.to_string(), "{target:.20} {shown:.100?}: {got:?}");
    }
}

#[test]
fn a_refused_body_ends_its_stream_and_not_the_connection() {
    let server = server(limits());
    let mut client = Http2Client::connect(server.address);
    // Over `body_bytes` in total: refused while the body is read, and by its head.
    let piece = |stream| Frame { kind: kind::DATA, flags: 0, stream, payload: vec![b'x'; 10_001] };
    client.open(1, "POST", "/a").send(&piece(1));
    let refused = client.await_frame(|frame| frame.stream == 1 && frame.ends_stream());
    assert_eq!(refused.payload, b"broken body");
    let mut head = Frame::request(3, "POST", "/a", true);
    literal(&mut head.payload, "content-length", "10001");
    client.send(&head).send(&piece(3));
    let refused = client.await_frame(|frame| frame.stream == 3 && frame.ends_stream());
    let text = String::from_utf8_lossy(&refused.payload).into_owned();
    assert!(text.contains("\"status\":413"), "{text}");
    // The client neither ends its bodies nor gives up: the server ends both streams.
    for stream in [1, 3] {
        let reset = client.await_frame(|f| f.stream == stream && f.kind == kind::RST_STREAM);
        assert_eq!(reset.payload, [0; 4], "NO_ERROR");
    }
    client.get(5, "/a");
    client.await_frame(|frame| frame.stream == 5 && frame.ends_stream());
}

#[test]
fn a_client_that_still_sends_gets_the_refusal() {
    let server = server(limits());
    // More than the client may send before it is read.
    let body = "x".repeat(100_000);
    for fields in [&[][..], &["-H", "Expect: 100-continue"]] {
        for _ in 0..20 {
            let mut all = vec!["-o", "/dev/null", "-w", "%{http_code}", "-d", &body];
            all.extend(fields);
            let got = curl(server.address, "/a", &all);
            assert_eq!(text(&got), "413", "{fields:?}: {:?}", got.stderr);
        }
    }
}

#[test]
fn many_streams_of_one_connection_are_answered() {
    let server = server(limits());
    let load = Command::new("h2load")
        .args(["-n", "5000", "-c", "4", "-m", "50", &format!("http://{}/a", server.address)])
        .output()
        .unwrap();
    let text = text(&load);
    assert!(text.contains("5000 succeeded, 0 failed, 0 errored, 0 timeout"), "{text}");
    wait_until(|| server.metrics().open() == 0);
    assert_eq!(server.metrics().accepted.get(), 4);
}

#[test]
fn an_announced_end_is_a_goaway_and_open_streams_are_answered() {
    let server = server(limits());
    let mut client = Http2Client::connect(server.address);
    client.get(1, "/wait");
    wait_until(|| server.limiter.waiting.load(Ordering::Relaxed) == 1);
    server.shutdown.leave();
    client.await_frame(|frame| frame.kind == kind::GOAWAY);
    // What the client sent before it could know is answered too.
    client.get(3, "/a");
    client.await_frame(|frame| frame.kind == kind::HEADERS && frame.stream == 3);
    server.limiter.open();
    client.await_frame(|frame| frame.kind == kind::HEADERS && frame.stream == 1);
    server.shutdown.drain();
    client.rest();
    server.join().unwrap();
}

#[test]
fn a_drain_finishes_open_streams_and_announces_the_end() {
    let server = server(limits());
    let mut client = Http2Client::connect(server.address);
    client.get(1, "/wait").get(3, "/wait");
    wait_until(|| server.limiter.waiting.load(Ordering::Relaxed) == 2);
    server.shutdown.drain();
    client.await_frame(|frame| frame.kind == kind::GOAWAY);
    server.limiter.open();
    let frames = client.rest();
    let ended = |stream| frames.iter().any(|f| f.stream == stream && f.ends_stream());
    assert!(ended(1) && ended(3), "{frames:?}");
    server.join().unwrap();
}

#[test]
fn an_idle_connection_is_told_to_go_and_pings_do_not_keep_it() {
    let limits = Limits { idle_timeout: Duration::from_millis(300), ..limits() };
    let server = server(limits);
    let mut client = Http2Client::connect(server.address);
    client.get(1, "/a").await_frame(Frame::ends_stream);
    client.await_frame_while(
        |frame| frame.kind == kind::GOAWAY,
        |client| {
            client.send(&Frame::ping());
            std::thread::sleep(Duration::from_millis(10));
        },
    );
    server.await_closed(CloseCause::Idle, 1);
}

#[test]
fn a_client_that_leaves_and_one_that_breaks_the_protocol_are_closed() {
    let server = server(limits());
    let mut client = Http2Client::connect(server.address);
    client.get(1, "/a").await_frame(Frame::ends_stream);
    drop(client);
    wait_until(|| server.metrics().open() == 0);
    let mut client = Http2Client::connect(server.address);
    // DATA on the stream of the connection.
    client.send(&Frame { kind: kind::DATA, flags: 0, stream: 0, payload: b"x".to_vec() });
    let frames = client.rest();
    assert!(frames.iter().any(|frame| frame.kind == kind::GOAWAY), "{frames:?}");
    wait_until(|| server.metrics().open() == 0);
}

#[test]
fn the_preface_counts_only_as_the_first_bytes_and_only_if_allowed() {
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let server = server(limits());
    let mut later = server.connect();
    later.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(later.answer().status, 200);
    assert_eq!(later.send(preface).rest().statuses(), [505]);
    assert_eq!(server.connect().send("\r\n").send(preface).rest().statuses(), [505]);
    let without = Server::start(limits());
    assert_eq!(without.connect().send(preface).rest().statuses(), [505]);
}

#[test]
fn a_body_that_does_not_arrive_is_408_and_other_streams_are_served() {
    let limits = Limits { body_timeout: Duration::from_millis(200), ..limits() };
    let server = server(limits);
    let mut client = Http2Client::connect(server.address);
    client.open(1, "POST", "/a").get(3, "/a");
    client.await_frame(|frame| frame.stream == 3 && frame.ends_stream());
    let answer = client.await_frame(|frame| frame.stream == 1 && frame.kind == kind::DATA);
    let body = String::from_utf8_lossy(&answer.payload).into_owned();
    assert!(body.contains("\"status\":408"), "{body}");
}
