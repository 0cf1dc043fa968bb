use proptest::prelude::*;

use super::*;
use crate::body::BodyDecoder;
use crate::error::Malformed as M;

const LIMITS: Limits = Limits { head_bytes: 512, fields: 16, target_bytes: 64, body_bytes: 1_000 };

/// Messages in a connection's input: whole ones, the accepted bytes of the last one (never a part
/// of a head), and the refusal.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    messages: Vec<Vec<u8>>,
    open: Vec<u8>,
    refusal: Option<ParseError>,
}

impl Seen {
    /// Reads what it can of `held`, and removes it. Returns whether more input is needed.
    fn read(
        &mut self,
        held: &mut Vec<u8>,
        parser: &mut HeadParser,
        body: &mut Option<BodyDecoder>,
    ) -> Result<bool, ParseError> {
        let consumed = match body {
            Some(body) => body.decode(held, &LIMITS)?.consumed,
            None => {
                let Some(bytes) = parser.parse(held, &LIMITS)? else { return Ok(true) };
                let head = parser.head(&held[..bytes], &LIMITS)?;
                *body = Some(BodyDecoder::new(head.body));
                bytes
            }
        };
        self.open.extend(held.drain(..consumed));
        if body.as_ref().is_some_and(BodyDecoder::is_complete) {
            self.messages.push(std::mem::take(&mut self.open));
            *body = None;
            parser.reset();
        }
        Ok(held.is_empty())
    }
}

fn feed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Seen {
    let (mut parser, mut body, mut held) = (HeadParser::default(), None, Vec::new());
    let mut seen = Seen::default();
    for piece in pieces {
        held.extend_from_slice(piece);
        while !held.is_empty() {
            match seen.read(&mut held, &mut parser, &mut body) {
                Ok(false) => {}
                Ok(true) => break,
                Err(refusal) => {
                    // How much of a chunk's framing passed before it depends on the pieces.
                    seen.open.clear();
                    return Seen { refusal: Some(refusal), ..seen };
                }
            }
        }
    }
    seen
}

fn split_at<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.sort_unstable();
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    starts
        .zip(cuts.iter().copied().chain([bytes.len()]))
        .map(|(from, to)| &bytes[from..to])
        .collect()
}

fn body() -> impl Strategy<Value = (String, Vec<u8>)> {
    let bytes = prop::collection::vec(any::<u8>(), 1..60);
    prop_oneof![
        Just((String::new(), Vec::new())),
        Just(("Content-Length: 0\r\n".to_owned(), Vec::new())),
        bytes.clone().prop_map(|b| (format!("content-LENGTH:\t{} \r\n", b.len()), b)),
        (
            prop::collection::vec((bytes, "(;[a-z]{1,5}(=[a-z]{1,5})?)?"), 0..4),
            "([A-Z]{1,5}: [a-z]{0,5}\r\n){0,2}"
        )
            .prop_map(|(chunks, trailers)| {
                let mut body = Vec::new();
                for (data, extension) in chunks {
                    body.extend(format!("{:X}{extension}\r\n", data.len()).bytes());
                    body.extend(data);
                    body.extend(b"\r\n");
                }
                body.extend(format!("0\r\n{trailers}\r\n").bytes());
                ("Transfer-Encoding: Chunked\r\n".to_owned(), body)
            }),
    ]
}

fn message() -> impl Strategy<Value = Vec<u8>> {
    let fields = prop::collection::vec(("X-[a-z]{1,8}", "[ -~]{0,20}"), 0..4);
    ("(\r\n)?", "[A-Z]{3,7}", "/[a-z0-9]{0,20}", fields, body()).prop_map(
        |(before, method, target, fields, (framing, body))| {
            let fields: String =
                fields.into_iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect();
            let head =
                format!("{before}{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}{framing}\r\n");
            [head.into_bytes(), body].concat()
        },
    )
}

proptest! {
    #[test]
    fn any_split_gives_the_messages_that_were_sent(
        messages in prop::collection::vec(message(), 1..5),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let stream = messages.concat();
        let expected = Seen { messages, ..Seen::default() };
        prop_assert_eq!(&feed(split_at(&stream, &cuts)), &expected);
        prop_assert_eq!(&feed(stream.chunks(1)), &expected);
    }

    #[test]
    fn invalid_input_gives_the_same_result_in_any_split(
        messages in prop::collection::vec(message(), 1..4),
        damage in prop::collection::vec(
            (
                any::<prop::sample::Index>(),
                prop_oneof![any::<u8>(), prop::sample::select(&b"\r\n\0 \t:;,0"[..])],
            ),
            1..4,
        ),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut stream = messages.concat();
        for (at, byte) in damage {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        let whole = feed([&stream[..]]);
        prop_assert_eq!(&feed(split_at(&stream, &cuts)), &whole);
        prop_assert_eq!(&feed(stream.chunks(1)), &whole);
    }

    #[test]
    fn no_input_panics(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        feed([&bytes[..]]);
    }
}

#[test]
fn refusals_are_distinct_and_a_refused_head_does_not_pass() {
    for (input, refusal) in [
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            M::LengthAndCoding,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
            M::LengthsDiffer,
        ),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 6\r\n\r\n", M::Length),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551616\r\n\r\n", M::Length),
        ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", M::Coding),
        ("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", M::Coding),
        ("GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", M::Folding),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", M::SpaceBeforeColon),
        ("GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", M::ControlByte),
        ("GET / HTTP/1.1\r\nHost: a\0\r\n\r\n", M::ControlByte),
        ("GET / HTTP/1.1\r\n\r\n", M::Host),
        ("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", M::Host),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", M::Host),
        ("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", M::Host),
        ("GET / HTTP/1.1\r\nHost: \u{e9}\r\n\r\n", M::Host),
        ("GET / HTTP/1.1\r\nno colon\r\n\r\n", M::Field),
        ("GET / HTTP/2.0\r\n\r\n", M::Version),
        ("GET /\r\n", M::RequestLine),
        (" / HTTP/1.1\r\nHost: a\r\n\r\n", M::RequestLine),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", M::RequestLine),
        ("GE\u{1}T / HTTP/1.1\r\nHost: a\r\n\r\n", M::ControlByte),
        ("GET /\u{7f} HTTP/1.1\r\nHost: a\r\n\r\n", M::ControlByte),
        ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", M::Coding),
        ("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", M::Host),
        ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", M::Host),
        ("GET x:80 HTTP/1.1\r\nHost: a\r\n\r\n", M::Target),
        ("CONNECT x HTTP/1.1\r\nHost: a\r\n\r\n", M::Target),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", M::Target),
    ] {
        let seen = feed([input.as_bytes()]);
        assert_eq!(
            seen,
            Seen { refusal: Some(ParseError::Malformed(refusal)), ..Seen::default() },
            "{input:?}"
        );
    }
}

#[test]
fn limits_are_exact_to_the_byte() {
    let head = |bytes: usize| {
        let start = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
        format!("{start}{}\r\n\r\n", "x".repeat(bytes - start.len() - 4))
    };
    assert_eq!(feed([head(512).as_bytes()]).messages.len(), 1);
    assert_eq!(feed([head(513).as_bytes()]).refusal, Some(ParseError::HeadBytes));
    let target = |bytes: usize| format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", "/".repeat(bytes));
    assert_eq!(feed([target(64).as_bytes()]).messages.len(), 1);
    assert_eq!(feed([target(65).as_bytes()]).refusal, Some(ParseError::TargetBytes));
    let fields =
        |n: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(n - 1));
    assert_eq!(feed([fields(16).as_bytes()]).messages.len(), 1);
    assert_eq!(feed([fields(17).as_bytes()]).refusal, Some(ParseError::HeadFields));
    let body = |n: usize| {
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {n}\r\n\r\n{}", "x".repeat(n))
    };
    assert_eq!(feed([body(1_000).as_bytes()]).messages.len(), 1);
    assert_eq!(feed([body(1_001).as_bytes()]).refusal, Some(ParseError::BodyBytes));
}

#[test]
fn a_head_that_never_ends_is_refused_as_soon_as_it_is_too_long() {
    assert_eq!(feed([&b"GET /"[..], &[b'x'; 200]]).refusal, Some(ParseError::TargetBytes));
    assert_eq!(
        feed([&b"GET / HTTP/1.1\r\nX: "[..], &[b'x'; 600]]).refusal,
        Some(ParseError::HeadBytes)
    );
    assert_eq!(feed([&b"\r\n".repeat(300)[..]]).refusal, Some(ParseError::HeadBytes));
}

#[test]
fn chunked_bodies_are_followed_strictly() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for good in [
        "0\r\n\r\n",
        "1\r\nx\r\n0\r\n\r\n",
        "1 ;a=b\r\nx\r\n0;c=\"d\"\r\nT: v\r\n\r\n",
        "000000000000000A\r\nxxxxxxxxxx\r\n000\r\n\r\n",
    ] {
        let seen = feed([head.as_bytes(), good.as_bytes()]);
        assert_eq!((seen.messages.len(), seen.refusal), (1, None), "{good:?}");
    }
    let long_extension = format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(2_000));
    let long_trailer = format!("0\r\nT: {}\r\n\r\n", "v".repeat(600));
    for bad in [
        "\r\n",
        "x\r\n",
        " 1\r\nx\r\n",
        "+1\r\nx\r\n",
        "0x1\r\nx\r\n",
        "1\nx\r\n",
        "1 \r\nx\r\n",
        "1\r\nxx\r\n",
        "1\r\nx\n",
        "-1\r\n",
        "00000000000000001\r\nx\r\n",
        "1;a\0\r\nx\r\n",
        "1;a\nx\r\n",
        "0\r\n T: v\r\n\r\n",
        "0\r\nT: v\n\r\n",
        "0\r\nT\r\n\r\n",
        "0\r\n: v\r\n\r\n",
        "0\r\nT : v\r\n\r\n",
        "0\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "0\r\n\rx",
        "1\r\rx",
        &long_extension,
        &long_trailer,
    ] {
        let seen = feed([head.as_bytes(), bad.as_bytes()]);
        assert_eq!(
            (seen.messages.len(), seen.refusal),
            (0, Some(ParseError::Malformed(M::Chunk))),
            "{bad:?}"
        );
    }
}

/// The data of such a chunk may never arrive, so waiting for it would only hold the connection.
#[test]
fn oversized_chunks_are_refused_by_their_size_alone() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (body, refusal) in [
        ("ffffffffffffffff", ParseError::Malformed(M::Chunk)),
        ("8000000000000000", ParseError::Malformed(M::Chunk)),
        ("7fffffffffffffff\r\n", ParseError::BodyBytes),
        ("3e9\r\n", ParseError::BodyBytes),
        ("3e9;a=b\r\n", ParseError::BodyBytes),
        ("1\r\nx\r\n3e8\r\n", ParseError::BodyBytes),
    ] {
        assert_eq!(feed([head.as_bytes(), body.as_bytes()]).refusal, Some(refusal), "{body:?}");
    }
    let whole = format!("3e8\r\n{}\r\n0\r\n\r\n", "x".repeat(1_000));
    assert_eq!(feed([head.as_bytes(), whole.as_bytes()]).messages.len(), 1, "as many as may be");
}

/// Every request that we accept is one that two others accept, with the same parts.
fn compare_with_httparse(bytes: &[u8]) {
    let mut parser = HeadParser::default();
    let Ok(Some(size)) = parser.parse(bytes, &LIMITS) else { return };
    let Ok(head) = parser.head(&bytes[..size], &LIMITS) else { return };
    let mut places = [httparse::EMPTY_HEADER; 16];
    let mut other = httparse::Request::new(&mut places);
    let parsed = other.parse(&bytes[..size]);
    assert_eq!(parsed, Ok(httparse::Status::Complete(size)), "{:?}", bytes.escape_ascii());
    assert_eq!(other.method.map(str::as_bytes), Some(head.method()));
    assert_eq!(other.path, Some(head.target()));
    assert_eq!(other.version, Some(u8::from(head.version == Version::Http11)));
    let ours: Vec<_> = head.fields().iter().collect();
    let theirs: Vec<_> =
        other.headers.iter().map(|field| (field.name.as_bytes(), field.value)).collect();
    assert_eq!(ours, theirs);
    assert!(head.method() == b"CONNECT" || head.target().parse::<http::Uri>().is_ok());
}

proptest! {
    #[test]
    fn accepted_heads_are_those_of_another_parser(
        message in message(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let mut message = message;
        for (at, byte) in damage {
            let at = at.index(message.len());
            message[at] = byte;
        }
        compare_with_httparse(&message);
    }
}

#[test]
fn connections_are_kept_as_the_version_and_the_options_say() {
    for (version, options, kept) in [
        ("1.1", "", true),
        ("1.0", "", false),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: te, Close\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive\r\nConnection: close\r\n", false),
    ] {
        let bytes = format!("GET / HTTP/{version}\r\nHost: a\r\n{options}\r\n").into_bytes();
        let mut parser = HeadParser::default();
        assert_eq!(parser.parse(&bytes, &LIMITS), Ok(Some(bytes.len())));
        let head = parser.head(&bytes, &LIMITS).expect("no body");
        assert_eq!(head.keeps_alive(), kept, "{version} {options:?}");
    }
}

#[test]
fn parts_of_a_head_are_found() {
    let bytes =
        b"\r\nPOST http://h/a%2F?b HTTP/1.1\r\nHost: h\r\nEXPECT: 100-Continue\r\nX:\t y z \r\n\
        Content-Length: 3\r\n\r\nabc";
    let mut parser = HeadParser::default();
    assert_eq!(parser.parse(bytes, &LIMITS), Ok(Some(bytes.len() - 3)));
    let head = parser.head(bytes, &LIMITS).expect("a small body");
    assert_eq!((head.method(), head.target()), (&b"POST"[..], "http://h/a%2F?b"));
    assert_eq!(head.path_and_query(), ("/a%2F", Some("b")));
    assert_eq!(head.fields().get("x"), Some(&b"y z"[..]));
    assert_eq!((head.body, head.expects_continue()), (BodyLength::Bytes(3), true));
    assert!(is_head_request(b"\r\nHEAD / ") && !is_head_request(b"HEADS / "));
}

#[test]
fn invalid_names_values_and_methods_are_refused() {
    for (line, refusal) in [
        ("GET / HTTP/1.1\r\nHost: a\r\nna me: x\r\n\r\n", M::Field),
        ("GET / HTTP/1.1\r\nHost: a\r\nn\u{e4}me: x\r\n\r\n", M::Field),
        ("GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n", M::Field),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: \u{7f}\r\n\r\n", M::ControlByte),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: \u{1}\r\n\r\n", M::ControlByte),
        ("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", M::RequestLine),
        ("GET /<a> HTTP/1.1\r\nHost: a\r\n\r\n", M::Target),
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", M::Target),
    ] {
        assert_eq!(feed([line.as_bytes()]).refusal, Some(ParseError::Malformed(refusal)), "{line}");
    }
}

/// A host that was valid before is not examined again; any other one is.
#[test]
fn each_new_host_is_examined() {
    let of = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let bad = Err(ParseError::Malformed(Malformed::Host));
    let mut parser = HeadParser::default();
    let mut parse = |text: &str| {
        parser.reset();
        parser.parse(text.as_bytes(), &LIMITS).map(|size| size.is_some())
    };
    let long = "a".repeat(300);
    for host in ["a", "a", "a:1", "b", "", "", &long, &long] {
        assert_eq!(parse(&of(host)), Ok(true), "{host}");
        for other in ["a/b", "a:b", "a b", &format!("{host}/")] {
            assert_eq!(parse(&of(other)), bad, "{other} after {host}");
        }
        if host.len() < 100 {
            let twice = format!("GET / HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n\r\n");
            assert_eq!(parse(&twice), bad, "{host}");
        }
    }
    assert_eq!(parse("GET / HTTP/1.1\r\n\r\n"), bad);
}

/// A benchmark: run it with `--release -- --ignored --nocapture` for the cost of inspecting a head.
#[test]
#[ignore = "measures"]
fn cost_of_a_head() {
    let wrk = "GET /products/12345 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";
    let usual = "GET /products/12345 HTTP/1.1\r\nHost: shop.example.com\r\nUser-Agent: \
                 client/1.0\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n\r\n";
    for (name, head) in [("1 header", wrk), ("4 headers", usual)] {
        let mut parser = HeadParser::default();
        let best = (0..20).map(|_| {
            let start = std::time::Instant::now();
            for _ in 0..100_000 {
                parser.reset();
                let _ = std::hint::black_box(
                    parser.parse(std::hint::black_box(head.as_bytes()), &LIMITS),
                );
            }
            start.elapsed().as_nanos() / 100_000
        });
        println!("{name}: {} ns", best.min().unwrap());
    }
}
