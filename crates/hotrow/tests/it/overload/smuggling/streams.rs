//! Several requests on one connection, and requests to switch its protocol.

use super::{ANSWERED, Alone, BATCH, BATCH_CHUNKED, Case, HIDDEN, case, get, post};

pub(super) fn cases() -> Vec<Case> {
    let one = get("");
    let both =
        post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", format!("0\r\n\r\n{HIDDEN}"));
    let batch = post("Content-Length: 11\r\n", BATCH);
    let chunked = post("Transfer-Encoding: chunked\r\n", BATCH_CHUNKED);
    let bad_chunk = post("Transfer-Encoding: chunked\r\n", format!("z\r\n{HIDDEN}"));
    let head = b"HEAD /products/1 HTTP/1.1\r\nHost: h\r\n\r\n".to_vec();
    let not_modified = get("If-None-Match: *\r\n");
    let old = b"GET /products/1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_vec();
    let piped = |what: &str, requests: &[&Vec<u8>], alone| {
        case(
            format!("stream: {what}"),
            requests.iter().flat_map(|r| r.iter().copied()).collect::<Vec<u8>>(),
            alone,
        )
    };
    let mut cases = vec![
        piped("bad behind good", &[&one, &one, &both], Alone::Closes(&[200, 200, 400])),
        piped("bad behind a batch", &[&batch, &both], Alone::Closes(&[200, 400])),
        piped("bad behind chunks", &[&chunked, &both], Alone::Closes(&[200, 400])),
        piped("bad chunks behind good", &[&one, &bad_chunk], Alone::Closes(&[200, 400])),
        piped("good behind bad", &[&both, &one, &one], Alone::Closes(&[400])),
        piped("twenty", &[&one; 20], Alone::Continues(&[200; 20])),
        piped(
            "batches of both kinds",
            &[&batch, &chunked, &batch, &chunked],
            Alone::Continues(&[200; 4]),
        ),
        piped("HEAD and more", &[&head, &one, &batch], Alone::Continues(&[200; 3])),
        piped("304 and more", &[&not_modified, &one], Alone::Continues(&[304, 200])),
        piped("HTTP/1.0 that is kept alive", &[&old, &one], Alone::Continues(&[200, 200])),
        piped(
            "the last of several",
            &[&one, &get("Connection: close\r\n"), &one],
            Alone::Closes(&[200, 200]),
        ),
        piped(
            "empty lines between",
            &[&one, &b"\r\n\r\n".to_vec(), &one],
            Alone::Continues(&[200, 200]),
        ),
        piped(
            "garbage between",
            &[&one, &b"garbage\r\n\r\n".to_vec(), &one],
            Alone::Closes(&[200, 400]),
        ),
    ];
    let expect = |value: &str| post(format!("Content-Length: 11\r\nExpect: {value}\r\n"), BATCH);
    let chunked_expect =
        post("Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n", BATCH_CHUNKED);
    let h2c = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
        HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n";
    let preface = [&*get(h2c), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"].concat();
    let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    cases.extend([
        case("Expect with its body", expect("100-continue"), ANSWERED),
        case("Expect in other letters", expect("100-CONTINUE"), ANSWERED),
        case("Expect of something else", expect("200-ok"), ANSWERED),
        case("Expect and chunks", chunked_expect, ANSWERED),
        case("Expect without a body", get("Expect: 100-continue\r\n"), ANSWERED),
        case(
            "Expect with a body and GET",
            [&*get("Content-Length: 11\r\nExpect: 100-continue\r\n"), BATCH.as_bytes()].concat(),
            ANSWERED,
        ),
        case(
            "Expect in HTTP/1.0",
            format!(
                "POST /products HTTP/1.0\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n\
                 {BATCH}"
            ),
            Alone::Closes(&[200]),
        ),
        case("Upgrade to h2c", get(h2c), ANSWERED),
        case("Upgrade to h2c and the preface behind", preface, Alone::Closes(&[200, 505])),
        case("Upgrade to a websocket", get(websocket), ANSWERED),
        case("Upgrade with a body", post(format!("Content-Length: 11\r\n{h2c}"), BATCH), ANSWERED),
        case(
            "CONNECT with a request behind",
            format!("CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n{HIDDEN}"),
            Alone::Continues(&[405, 200]),
        ),
    ]);
    cases
}
