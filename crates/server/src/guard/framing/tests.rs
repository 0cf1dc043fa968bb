use proptest::prelude::*;

use super::*;
use crate::guard::refusal::Malformed as M;
use crate::guard::tests::limits;

/// Output of a framer for input in pieces: whole messages, the passed bytes of the last one, and
/// the refusal.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    messages: Vec<Vec<u8>>,
    open: Vec<u8>,
    refusal: Option<Rejection>,
}

fn feed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Seen {
    let mut framer = Framer::default();
    let mut seen = Seen::default();
    let mut held = Vec::new();
    for piece in pieces {
        held.extend_from_slice(piece);
        while !held.is_empty() && seen.refusal.is_none() {
            let passed = framer.advance(&held, &limits());
            seen.open.extend(held.drain(..passed.bytes));
            match passed.state {
                MessageState::More => break,
                MessageState::End => seen.messages.push(std::mem::take(&mut seen.open)),
                MessageState::Refused(refusal) => seen.refusal = Some(refusal),
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
        ("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", M::Host),
        ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", M::Host),
        ("GET x:80 HTTP/1.1\r\nHost: a\r\n\r\n", M::Target),
        ("CONNECT x HTTP/1.1\r\nHost: a\r\n\r\n", M::Target),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", M::Target),
    ] {
        let seen = feed([input.as_bytes()]);
        assert_eq!(
            seen,
            Seen { refusal: Some(Rejection::Malformed(refusal)), ..Seen::default() },
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
    assert_eq!(feed([head(513).as_bytes()]).refusal, Some(Rejection::HeadBytes));
    let target = |bytes: usize| format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", "/".repeat(bytes));
    assert_eq!(feed([target(64).as_bytes()]).messages.len(), 1);
    assert_eq!(feed([target(65).as_bytes()]).refusal, Some(Rejection::TargetBytes));
    let fields =
        |n: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(n - 1));
    assert_eq!(feed([fields(16).as_bytes()]).messages.len(), 1);
    assert_eq!(feed([fields(17).as_bytes()]).refusal, Some(Rejection::HeadFields));
    let body = |n: usize| {
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {n}\r\n\r\n{}", "x".repeat(n))
    };
    assert_eq!(feed([body(1_000).as_bytes()]).messages.len(), 1);
    assert_eq!(feed([body(1_001).as_bytes()]).refusal, Some(Rejection::BodyBytes));
}

#[test]
fn a_head_that_never_ends_is_refused_as_soon_as_it_is_too_long() {
    assert_eq!(feed([&b"GET /"[..], &[b'x'; 200]]).refusal, Some(Rejection::TargetBytes));
    assert_eq!(
        feed([&b"GET / HTTP/1.1\r\nX: "[..], &[b'x'; 600]]).refusal,
        Some(Rejection::HeadBytes)
    );
    assert_eq!(feed([&b"\r\n".repeat(300)[..]]).refusal, Some(Rejection::HeadBytes));
}

#[test]
fn chunked_bodies_are_followed_strictly() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for good in [
        "0\r\n\r\n",
        "1\r\nx\r\n0\r\n\r\n",
        "1 ;a=b\r\nx\r\n0;c=\"d\"\r\nT: v\r\n\r\n",
        "0000000000000001\r\nx\r\n0\r\n\r\n",
    ] {
        let seen = feed([head.as_bytes(), good.as_bytes()]);
        assert_eq!((seen.messages.len(), seen.refusal), (1, None), "{good:?}");
    }
    let long_extension = format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(2_000));
    let long_trailer = format!("0\r\nT: {}\r\n\r\n", "v".repeat(600));
    for bad in [
        "\r\n",
        "x\r\n",
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
            (0, Some(Rejection::Malformed(M::Chunk))),
            "{bad:?}"
        );
    }
}

/// The data of such a chunk may never arrive, so waiting for it would only hold the connection.
#[test]
fn oversized_chunks_are_refused_by_their_size_alone() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (body, refusal) in [
        ("ffffffffffffffff", Rejection::Malformed(M::Chunk)),
        ("8000000000000000", Rejection::Malformed(M::Chunk)),
        ("7fffffffffffffff\r\n", Rejection::BodyBytes),
        ("3e9\r\n", Rejection::BodyBytes),
        ("3e9;a=b\r\n", Rejection::BodyBytes),
        ("1\r\nx\r\n3e8\r\n", Rejection::BodyBytes),
    ] {
        assert_eq!(feed([head.as_bytes(), body.as_bytes()]).refusal, Some(refusal), "{body:?}");
    }
    let whole = format!("3e8\r\n{}\r\n0\r\n\r\n", "x".repeat(1_000));
    assert_eq!(feed([head.as_bytes(), whole.as_bytes()]).messages.len(), 1, "as many as may be");
}

/// A benchmark: run it with `--release -- --ignored --nocapture` for the cost of inspecting a head.
#[test]
#[ignore = "measures"]
fn cost_of_a_head() {
    let wrk = "GET /products/12345 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";
    let usual = "GET /products/12345 HTTP/1.1\r\nHost: shop.example.com\r\nUser-Agent: \
                 client/1.0\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n\r\n";
    for (name, head) in [("1 header", wrk), ("4 headers", usual)] {
        let mut framer = Framer::default();
        let limits = limits();
        let best = (0..20).map(|_| {
            let start = std::time::Instant::now();
            for _ in 0..100_000 {
                std::hint::black_box(
                    framer.advance(std::hint::black_box(head.as_bytes()), &limits),
                );
            }
            start.elapsed().as_nanos() / 100_000
        });
        println!("{name}: {} ns", best.min().unwrap());
    }
}
