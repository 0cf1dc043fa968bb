//! Disguised `Transfer-Encoding`, alone and with a `Content-Length`.

use super::{ANSWERED, Alone, BATCH, BATCH_CHUNKED, Case, HIDDEN, REFUSED, case, post};

/// Disguised fields. Each is sent twice: with a length that hides a request from parsers that use
/// the length, and without one, where a request is hidden from parsers that use the coding.
const DISGUISED: &[(&str, &[u8])] = &[
    ("xchunked", b"Transfer-Encoding: xchunked"),
    ("chunkedx", b"Transfer-Encoding: chunkedx"),
    ("chunk", b"Transfer-Encoding: chunk"),
    ("identity", b"Transfer-Encoding: identity"),
    ("chunked, identity", b"Transfer-Encoding: chunked, identity"),
    ("identity, chunked", b"Transfer-Encoding: identity, chunked"),
    ("gzip, chunked", b"Transfer-Encoding: gzip, chunked"),
    ("chunked, chunked", b"Transfer-Encoding: chunked, chunked"),
    ("quoted", b"Transfer-Encoding: \"chunked\""),
    ("a parameter", b"Transfer-Encoding: chunked;a=b"),
    ("a comma behind", b"Transfer-Encoding: chunked,"),
    ("a comma before", b"Transfer-Encoding: ,chunked"),
    ("no value", b"Transfer-Encoding:"),
    ("a vertical tab before the value", b"Transfer-Encoding: \x0bchunked"),
    ("a vertical tab behind the value", b"Transfer-Encoding: chunked\x0b"),
    ("a form feed before the value", b"Transfer-Encoding: \x0cchunked"),
    ("a non-breaking space before the value", b"Transfer-Encoding: \xa0chunked"),
    ("a byte 0xff before the value", b"Transfer-Encoding: \xffchunked"),
    ("NUL behind the value", b"Transfer-Encoding: chunked\0"),
    ("NUL in the value", b"Transfer-Encoding: chu\0nked"),
    ("NUL before the name", b"\0Transfer-Encoding: chunked"),
    ("a soft hyphen in the name", b"Transfer-\xadEncoding: chunked"),
    ("a blank before the colon", b"Transfer-Encoding : chunked"),
    ("a tab before the colon", b"Transfer-Encoding\t: chunked"),
    ("a vertical tab before the colon", b"Transfer-Encoding\x0b: chunked"),
    ("a blank in the name", b"Transfer Encoding: chunked"),
    ("no colon", b"Transfer-Encoding chunked"),
    ("a blank before the name", b" Transfer-Encoding: chunked"),
    ("a tab before the name", b"\tTransfer-Encoding: chunked"),
    ("a folded value", b"Transfer-Encoding:\r\n chunked"),
    ("a value folded by a tab", b"Transfer-Encoding:\r\n\tchunked"),
    ("a value folded in its middle", b"Transfer-Encoding: chunked\r\n , identity"),
    ("in the fold of another header", b"X: y\r\n Transfer-Encoding: chunked"),
    ("behind a bare CR", b"X: y\rTransfer-Encoding: chunked"),
    ("behind CR CR LF", b"X: y\r\r\nTransfer-Encoding: chunked"),
    ("twice, the second unknown", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x"),
    ("twice, the first unknown", b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked"),
    ("twice chunked", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
];

/// Fields understood as chunked.
const PLAIN: &[(&str, &[u8])] = &[
    ("in other letters", b"tRANSFER-eNCODING: ChUnKeD"),
    ("no blank behind the colon", b"Transfer-Encoding:chunked"),
    ("blanks and tabs around the value", b"Transfer-Encoding: \t chunked \t"),
    ("behind a bare LF", b"X: y\nTransfer-Encoding: chunked"),
];

/// Other fields, without meaning for the body.
const NO_CODING: &[(&str, &[u8])] = &[
    ("an underscore in the name", b"Transfer_Encoding: chunked"),
    ("a longer name", b"X-Transfer-Encoding: chunked"),
    ("a shorter name", b"Transfer-Encodin: chunked"),
    ("TE", b"TE: chunked"),
    ("Content-Encoding", b"Content-Encoding: chunked"),
];

pub(super) fn cases() -> Vec<Case> {
    let ended = |fields: &[u8]| [fields, b"\r\n"].concat();
    let behind = format!("0\r\n\r\n{HIDDEN}");
    let before = format!("{:x}\r\n{HIDDEN}\r\n0\r\n\r\n", HIDDEN.len());
    let length = format!("Content-Length: {}\r\n", behind.len());
    let mut cases = Vec::new();
    for (what, coding) in DISGUISED {
        let both = [length.as_bytes(), &ended(coding)].concat();
        cases.push(case(format!("coding and length: {what}"), post(both, &behind), REFUSED));
        cases.push(case(format!("coding: {what}"), post(ended(coding), &before), REFUSED));
    }
    for (what, coding) in PLAIN {
        cases.push(case(format!("coding: {what}"), post(ended(coding), BATCH_CHUNKED), ANSWERED));
        let both = [length.as_bytes(), &ended(coding)].concat();
        cases.push(case(format!("coding and length: {what}"), post(both, &behind), REFUSED));
    }
    for (what, other) in NO_CODING {
        let fields = [b"Content-Length: 11\r\n".as_slice(), &ended(other)].concat();
        cases.push(case(format!("no coding: {what}"), post(fields, BATCH), ANSWERED));
    }
    cases.extend([
        case("CL.TE", post(format!("{length}Transfer-Encoding: chunked\r\n"), &behind), REFUSED),
        case(
            "TE.CL",
            post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", &before),
            REFUSED,
        ),
        case("TE.0", post("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", &before), REFUSED),
        case(
            "TE between two lengths",
            post(format!("{length}Transfer-Encoding: chunked\r\n{length}"), &behind),
            REFUSED,
        ),
        case(
            "coding in HTTP/1.0",
            format!(
                "POST /products HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
                 {BATCH_CHUNKED}"
            ),
            REFUSED,
        ),
        case(
            "coding and length in HTTP/1.0",
            format!(
                "POST /products HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n{length}\r\n\
                 {behind}"
            ),
            REFUSED,
        ),
        case(
            "coding in HTTP/1.0 that is to be kept alive",
            format!(
                "POST /products HTTP/1.0\r\nConnection: keep-alive\r\n\
                 Transfer-Encoding: chunked\r\n\r\n{BATCH_CHUNKED}"
            ),
            REFUSED,
        ),
        // A body of several chunks after a GET is not read, and unread bytes end the connection.
        case("chunked and GET", get_chunked(BATCH_CHUNKED), Alone::Closes(&[200])),
        case("chunked and empty, GET", get_chunked("0\r\n\r\n"), ANSWERED),
        case(
            "chunked, with a hidden request as its data, GET",
            get_chunked(&before),
            Alone::Closes(&[200]),
        ),
    ]);
    cases
}

fn get_chunked(body: &str) -> String {
    format!("GET /products/1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
}
