//! Refusals before any request is sent, and unreachable targets.

use std::time::{Duration, Instant};

use super::*;

/// Each invalid argument has its message, before any request is sent.
#[test]
fn invalid_arguments_are_refused_with_a_reason() {
    let (address, seen) = server(OK);
    let url = format!("http://{address}/");
    let with_id = format!("{url}{{id}}");
    let secure = format!("https://{address}/");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "\n").expect("writable");
    let empty = empty.to_str().expect("UTF-8");
    let cases: &[(&[&str], &str)] = &[
        (&["ftp://a/"], "only http://, https:// and unix:"),
        (&["127.0.0.1"], "must begin with http://, https:// or unix:"),
        (&["http://a:99999/"], "port must be between 1 and 65535"),
        (&["--rate", "0", &url], "0 requests per second is not possible"),
        (&["--rate", "1e12", &url], "is not possible"),
        (&["--rate", "1..2", "-n", "5", &url], "add --duration"),
        (&["-d", "5", &url], "with a unit"),
        (&["-d", "0s", &url], "nothing ends this run"),
        (&["-c", "1", "-t", "2", &url], "2 threads need as many connections"),
        (&["-c", "999999", &url], "connections"),
        (&["--pipeline", "2", "--no-keepalive", &url], "leave --no-keepalive out"),
        (&["--body", "@/nonexistent/file", &url], "/nonexistent/file cannot be read: No such file"),
        (&["--ids-file", "/nonexistent/file", &with_id], "/nonexistent/file cannot be read"),
        (&["--ids-file", empty, &with_id], "the file of ids is empty"),
        (&[&with_id], "--ids FROM..TO"),
        (&["--ids", "1..5", &url], "no URL has {id}"),
        (&["--ids", "5..1", &with_id], "5..1 is empty"),
        (&["--distribution", "zipf:x", &with_id], "zipf:0.99"),
        (&["-m", "GE T", &url], "no HTTP method"),
        (&["-H", "Content-Length: 5", &url], "cannot be set by hand"),
        (&["-H", "no colon", &url], "must have a colon"),
        (&["-H", "Authorization: Bearer hush", &url], "--token-file"),
        (&["--token-file", "/nonexistent/file", &url], "/nonexistent/file cannot be read"),
        (&["--token-file", empty, &url], "must hold one token"),
        (&["--streams", "2", &url], "--http2"),
        (&["--http2", "--pipeline", "2", &url], "cannot be used with"),
        (&["--http2", "--streams", "1001", &url], "--streams must be between 1 and 1000"),
        (&["--http2", "--no-keepalive", &url], "leave --no-keepalive out"),
        (&["unix:a.sock", &url], "an absolute path"),
        (&["--insecure", &url], "for https:// URLs"),
        (&["--cert", "/nonexistent/file", &secure], "--key"),
        (&["--cacert", "/nonexistent/file", &secure], "/nonexistent/file has no certificates"),
        (&[&url, "http://127.0.0.2/"], "not the same server"),
        (&["x*http://a/", &url], "weight"),
        (&["--timeout", "0s", &url], "--timeout must be longer"),
        (&["--expect-status", "99", &url], "from 200 to 999"),
        (&["-n", "0", "-d", "1s", &url], "--requests 0 sends nothing"),
        (&["--slo", "p99=5ms", &url], "compares nothing"),
        (&["--slo", "p99<5", &url], "us, ms or s"),
        (&["--slo", "rate>=99%", &url], "add --rate"),
        (
            &["--hdr", "/nonexistent/file", &url],
            "/nonexistent/file cannot be written: No such file",
        ),
        (
            &["--csv", folder.path().to_str().expect("UTF-8"), &url],
            "cannot be written: Is a directory",
        ),
        (&["--csv", empty, "--hdr", empty, &url], "the same file"),
        (&["--json", "--percentiles", &url], "cannot be used with"),
        (&["--calibrate", &url], "cannot be used with"),
        (&["--calibrate", "-c", "1", "-t", "2"], "2 threads need as many connections"),
        (&["--calibrate", "-c", "600000"], "open files"),
    ];
    for (arguments, words) in cases {
        let (status, out, err) = load(arguments);
        assert_eq!((status, out.as_str()), (Some(2), ""), "{arguments:?}: {err}");
        assert!(err.contains(words), "{arguments:?}: expected {words:?}, got {err}");
    }
    assert_eq!(seen.load(SeqCst), 0);
}

#[test]
fn an_unreachable_target_is_reported_within_seconds() {
    let closed_address =
        TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
    let (plain, _) = server(OK);
    let begun = Instant::now();
    for (arguments, words) in [
        (vec![format!("http://{closed_address}/")], "refused"),
        (vec!["http://unknown.invalid/".to_owned()], "unknown.invalid is unknown"),
        (
            vec![
                "--unix-socket".to_owned(),
                "/nonexistent/socket".to_owned(),
                "http://a/".to_owned(),
            ],
            "there is no socket /nonexistent/socket",
        ),
        (vec!["--insecure".to_owned(), format!("https://{plain}/")], "does not speak TLS"),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (status, out, err) = load(&arguments);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{arguments:?}: {err}");
        assert!(err.contains(words), "{arguments:?}: expected {words:?}, got {err}");
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
fn a_server_without_http_yields_no_result() {
    let (address, _) = server("220 mail.example ESMTP\r\n");
    let (status, out, _) = load(&["-n", "10", "-c", "2", &format!("http://{address}/")]);
    assert_eq!(status, Some(1));
    assert!(
        out.contains("is this an HTTP server?")
            && out.contains("FAILED: no request was answered as expected"),
        "{out}"
    );
}

/// The target neither accepts nor refuses connections.
#[test]
fn a_filtered_port_is_reported_within_seconds() {
    let listener =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    listener.listen(0).expect("it listens");
    let address = listener.local_addr().expect("bound").as_socket().expect("an address");
    // Once the queue is full, the kernel drops further connection requests.
    let fill_timeout = Duration::from_millis(200);
    let mut queued = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, fill_timeout) {
        queued.push(stream);
        assert!(queued.len() < 100, "the queue does not fill");
    }
    let begun = Instant::now();
    let (status, out, err) =
        load(&["--timeout", "500ms", "-c", "3", &format!("http://{address}/")]);
    assert_eq!((status, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.contains("was not open within"), "{err}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// A rate that the machine cannot reach: the reached rate is reported, and unsent requests are
/// counted.
#[test]
fn an_unreachable_rate_is_reported_with_the_reached_rate() {
    let (address, _) = server(OK);
    let (status, out, _) = load(&[
        "--json",
        "-d",
        "500ms",
        "-c",
        "4",
        "--rate",
        "9000000",
        &format!("http://{address}/"),
    ]);
    let report = json(&out);
    assert_conserved(&report);
    assert_eq!(status, Some(0));
    let verdict = report["verdict"].as_str().expect("a text");
    assert!(verdict.starts_with("Not kept: ") && verdict.contains("were never sent"), "{verdict}");
    assert!(report["rate_ratio"].as_f64().is_some_and(|ratio| ratio < 0.5), "{report:#}");
}
