use proptest::prelude::*;

use super::*;

use hotrow_testkit::mutate;

/// Returns the answers in `bytes`, fed in pieces of these lengths (the last length repeats), and
/// how the stream ended.
fn answers(
    bytes: &[u8],
    pieces: &[usize],
    has_body: bool,
) -> (Vec<Response>, Result<StreamEnd, Malformed>) {
    let (mut cut, mut rest, mut i) = (Vec::new(), bytes, 0);
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(pieces[i.min(pieces.len() - 1)].clamp(1, rest.len()));
        cut.push(piece);
        (rest, i) = (later, i + 1);
    }
    fuzzing::follow(cut, has_body)
}

#[test]
fn the_parser_survives_mutated_answers() {
    const PIECES: [&[u8]; 16] = [
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.0 204 \r\n\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 18446744073709551615\r\n",
        b"Content-Length: 18446744073709551616\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"0\r\n\r\n",
        b"ffffffffffffffff\r\n",
        b"10000000000000000\r\n",
        b"5;a=b\r\nhello\r\n",
    ];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/response");
    mutate::run(folder, 200_000, &PIECES, fuzzing::answers);
}

fn whole(text: &str) -> (Vec<Response>, Result<StreamEnd, Malformed>) {
    let (at_once, byte_by_byte) =
        (answers(text.as_bytes(), &[usize::MAX], true), answers(text.as_bytes(), &[1], true));
    assert_eq!(at_once, byte_by_byte, "{text:?}");
    at_once
}

fn ok(status: u16, keep: bool) -> (Vec<Response>, Result<StreamEnd, Malformed>) {
    (vec![Response { status, keep }], Ok(StreamEnd::BetweenResponses))
}

#[test]
fn lengths_end_answers() {
    assert_eq!(whole("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), ok(200, true));
    assert_eq!(whole("HTTP/1.1 404\r\ncontent-length:0\r\n\r\n"), ok(404, true));
    assert_eq!(whole("HTTP/1.1 200 \ncontent-length: 2, 2\n\nab"), ok(200, true));
    assert_eq!(
        whole("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: x, Close\r\n\r\nhello"),
        ok(200, false)
    );
    assert_eq!(whole("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx"), ok(200, false));
    assert_eq!(
        whole("HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\nx"),
        ok(200, true)
    );
}

#[test]
fn chunks_end_answers() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        "0\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\n",
        "1;a=\"b\"\r\nx\r\nA\r\n0123456789\r\n00\r\nTrailer: 1\r\nOther: 2\r\n\r\n",
        "1\nx\n0\n\n",
    ] {
        assert_eq!(whole(&format!("{HEAD}{body}")), ok(200, true), "{body:?}");
    }
    for body in ["\r\n", "x\r\n", "1\r\nxy", "11111111111111111\r\n", "-1\r\n", "1\rx", ";\r\n"] {
        assert_eq!(whole(&format!("{HEAD}{body}")).1, Err(Malformed::Chunk), "{body:?}");
    }
    let endless = format!("{HEAD}1;{}", "x".repeat(chunked::EXTRA_BYTES_MAX as usize + 1));
    assert_eq!(whole(&endless).1, Err(Malformed::Chunk));
    let with_length = HEAD.replace("\r\n\r\n", "\r\nContent-Length: 9\r\n\r\n0\r\n\r\n");
    assert_eq!(whole(&with_length), ok(200, false));
}

#[test]
fn the_end_of_the_stream_ends_some_answers() {
    let until_close = "HTTP/1.1 200 OK\r\n\r\nany";
    assert_eq!(
        whole(until_close),
        (vec![], Ok(StreamEnd::Complete(Response { status: 200, keep: false })))
    );
    for cut in [
        "HTTP/1.1 2",
        "HTTP/1.1 200 OK\r\nA: b\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
        "HTTP/1.1 100 \r\n\r\n",
    ] {
        assert_eq!(whole(cut), (vec![], Ok(StreamEnd::Truncated)), "{cut:?}");
    }
    assert_eq!(Parser::default().end(), StreamEnd::BetweenResponses);
}

#[test]
fn some_answers_have_no_body() {
    for status in [204, 304] {
        assert_eq!(
            whole(&format!("HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\n")),
            ok(status, true)
        );
    }
    for framing in ["Content-Length: 99\r\n", "Transfer-Encoding: chunked\r\n", ""] {
        let text = format!("HTTP/1.1 200 OK\r\n{framing}\r\n");
        assert_eq!(answers(text.as_bytes(), &[1], false), ok(200, true), "HEAD, {framing:?}");
    }
}

#[test]
fn interim_answers_are_passed_over() {
    let hundred = "HTTP/1.1 100 Continue\r\n\r\n";
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(
        whole(&format!("{hundred}HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n{last}")),
        ok(200, true)
    );
    assert_eq!(whole(&format!("{}{last}", hundred.repeat(1_000))), ok(200, true));
    let more = hundred.repeat(INTERIM_MAX as usize + 1);
    assert_eq!(whole(&more).1, Err(Malformed::TooManyInterim));
    assert_eq!(whole("HTTP/1.1 101 Switching\r\n\r\n").1, Err(Malformed::Switched));
}

#[test]
fn a_fold_is_a_blank() {
    let body = "\r\n\r\nhello";
    for head in [
        "Policy: default-src 'self';\r\n  img-src *\r\nContent-Length: 5",
        "Content-Length:\r\n\t5",
        "Content-Length: 5\r\n \r\n ",
        "Content-Length: 5\r\nA: b\n c: d\n\te",
        "Transfer-Encoding:\r\n chunked\r\n\r\n5\r\nhello\r\n0",
    ] {
        let rest = if head.starts_with('T') { "\r\n\r\n" } else { body };
        assert_eq!(whole(&format!("HTTP/1.1 200 OK\r\n{head}{rest}")), ok(200, true), "{head:?}");
    }
    // A number that a fold divides is two.
    let divided = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n 2\r\n\r\n";
    assert_eq!(whole(divided).1, Err(Malformed::ContentLength));
    let closes = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: x,\r\n close\r\n\r\n";
    assert_eq!(whole(closes), ok(200, false));
}

#[test]
fn bytes_that_are_not_http_are_refused() {
    for text in [
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/2 200\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000\r\n\r\n",
        "HTTP/1.1 099 \r\n\r\n",
        "\r\n",
    ] {
        assert_eq!(whole(text).1, Err(Malformed::StatusLine), "{text:?}");
    }
    assert_eq!(
        answers(b"\x15\x03\x01", &[1], true).1,
        Err(Malformed::StatusLine),
        "at once, without a line break"
    );
    let with = |line: &str| whole(&format!("HTTP/1.1 200 OK\r\n{line}\r\n\r\n")).1;
    for line in ["no colon", ": no name", " folded: x", "blank : x"] {
        assert_eq!(with(line), Err(Malformed::HeaderLine), "{line:?}");
    }
    for value in ["", "-1", "+1", "1 1", "1, 2", "18446744073709551616", "0x1"] {
        assert_eq!(
            with(&format!("Content-Length: {value}")),
            Err(Malformed::ContentLength),
            "{value:?}"
        );
    }
    assert_eq!(with("Transfer-Encoding: gzip, chunked"), Err(Malformed::TransferEncoding));
    assert_eq!(
        with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        Err(Malformed::TransferEncoding)
    );
    let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(HEAD_BYTES_MAX));
    assert_eq!(whole(&endless).1, Err(Malformed::HeadTooLong));
    assert_eq!(with(&format!("A: {}", "x".repeat(HEAD_BYTES_MAX))), Err(Malformed::HeadTooLong));
}

#[test]
fn pipelined_answers_come_apart() {
    let one = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    let two = "HTTP/1.1 201 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
    let (found, end) = whole(&[one, two, one].concat());
    assert_eq!(found.iter().map(|a| a.status).collect::<Vec<_>>(), [200, 201, 200]);
    assert_eq!(end, Ok(StreamEnd::BetweenResponses));
}

proptest! {
    #[test]
    fn any_split_gives_the_same(
        bodies in prop::collection::vec((200_u16..600, 0_usize..300, any::<bool>()), 1..5),
        pieces in prop::collection::vec(1_usize..200, 1..50),
    ) {
        let mut text = String::new();
        for (status, length, chunked) in &bodies {
            text.push_str(&format!("HTTP/1.1 {status} reason\r\nDate: x\r\n"));
            match (*status, chunked) {
                (204 | 304, _) => text.push_str("\r\n"),
                (_, false) => text.push_str(&format!("Content-Length: \
                                                      {length}\r\n\r\n{}", "b".repeat(*length))),
                (_, true) if *length == 0 => text.push_str("Transfer-Encoding: \
                                                            chunked\r\n\r\n0\r\n\r\n"),
                (_, true) => text.push_str(&format!(
                    "Transfer-Encoding: \
                     chunked\r\n\r\n{length:x}\r\n{}\r\n0\r\n\r\n", "b".repeat(*length)
                )),
            }
        }
        let (found, end) = answers(text.as_bytes(), &pieces, true);
        prop_assert_eq!(end, Ok(StreamEnd::BetweenResponses));
        let statuses: Vec<_> = found.iter().map(|a| a.status).collect();
        prop_assert_eq!(statuses, bodies.iter().map(|b| b.0).collect::<Vec<_>>());
    }

    /// Mangled answers: no panic, and no split changes what is found.
    #[test]
    fn mangled_answers_are_judged_alike(
        mut bytes in prop::sample::select(vec![
            b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\n\r\nhello, \
              world".to_vec(),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x\r\nbody\r\n0\r\nT: \
              1\r\n\r\n".to_vec(),
        ]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        piece in 1_usize..20,
        has_body: bool,
    ) {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let whole = answers(&bytes, &[usize::MAX], has_body);
        prop_assert_eq!(whole, answers(&bytes, &[piece], has_body));
    }
}
