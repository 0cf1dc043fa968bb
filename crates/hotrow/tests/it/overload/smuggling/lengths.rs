//! Disguised, repeated, too large and invalid `Content-Length`.

use super::{ANSWERED, Alone, BATCH, Case, HIDDEN, REFUSED, case, get, line, post};

/// Values of a `Content-Length` over a body of 11 bytes. Parsers differ: some read 11 in each, some
/// nothing, some another number.
const NO_NUMBER: &[(&str, &[u8])] = &[
    ("a list of equal ones", b"11, 11"),
    ("a list of different ones", b"11, 12"),
    ("a comma behind", b"11,"),
    ("a comma before", b",11"),
    ("a plus", b"+11"),
    ("a minus", b"-11"),
    ("minus nought", b"-0"),
    ("hexadecimal", b"0x0b"),
    ("hexadecimal digits", b"0b"),
    ("an exponent", b"1e1"),
    ("a fraction", b"11.0"),
    ("a blank in it", b"1 1"),
    ("a semicolon behind", b"11;"),
    ("quoted", b"\"11\""),
    ("nothing", b""),
    ("an underscore", b"1_1"),
    ("a vertical tab before", b"\x0b11"),
    ("a form feed behind", b"11\x0c"),
    ("NUL behind", b"11\0"),
    ("digits of another script", "١١".as_bytes()),
    ("2^64", b"18446744073709551616"),
    ("2^64 + 11", b"18446744073709551627"),
    ("50 digits", b"99999999999999999999999999999999999999999999999999"),
    ("folded", b"\r\n 11"),
    ("folded in its middle", b"1\r\n 1"),
];

const TOO_LONG: &[(&str, &str)] = &[
    ("one byte over the limit", "1048577"),
    ("2^31 + 11", "2147483659"),
    ("2^32 + 11", "4294967307"),
    ("2^63 - 1", "9223372036854775807"),
    ("2^64 - 1", "18446744073709551615"),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (what, value) in NO_NUMBER {
        let field = [b"Content-Length: ".as_slice(), *value, b"\r\n"].concat();
        cases.push(case(format!("length: {what}"), post(field, BATCH), REFUSED));
    }
    for (what, value) in TOO_LONG {
        let request = post(format!("Content-Length: {value}\r\n"), BATCH);
        cases.push(case(format!("length: {what}"), request, Alone::Closes(&[413])));
    }
    let field = |field: &[u8]| post([field, b"\r\n"].concat(), BATCH);
    cases.extend([
        case(
            "length: leading noughts",
            field(b"Content-Length: 0000000000000000000000011"),
            ANSWERED,
        ),
        case("length: blanks around it", field(b"Content-Length: \t 11 \t"), ANSWERED),
        case("length: in other letters", field(b"cONTENT-lENGTH:11"), ANSWERED),
        case("length: behind a bare LF", field(b"X: y\nContent-Length: 11"), ANSWERED),
        case(
            "length: twice the same",
            field(b"Content-Length: 11\r\nContent-Length: 11"),
            ANSWERED,
        ),
        case(
            "length: twice the same in other digits",
            field(b"Content-Length: 11\r\nContent-Length: 011"),
            ANSWERED,
        ),
        case(
            "length: two, the second longer",
            field(b"Content-Length: 11\r\nContent-Length: 50"),
            REFUSED,
        ),
        case(
            "length: two, the first longer",
            field(b"Content-Length: 50\r\nContent-Length: 11"),
            REFUSED,
        ),
        case("length: two, one nought", field(b"Content-Length: 0\r\nContent-Length: 11"), REFUSED),
        case(
            "length: two in other letters",
            field(b"Content-Length: 11\r\ncontent-length: 12"),
            REFUSED,
        ),
        case("length: a blank before the colon", field(b"Content-Length : 11"), REFUSED),
        case("length: a tab before the colon", field(b"Content-Length\t: 11"), REFUSED),
        case("length: a vertical tab before the colon", field(b"Content-Length\x0b: 11"), REFUSED),
        case("length: behind a bare CR", field(b"X: y\rContent-Length: 11"), REFUSED),
        case(
            "length: in the fold of another header",
            field(b"X: y\r\n Content-Length: 11"),
            REFUSED,
        ),
        case("length: none, with a body", post("", BATCH), Alone::Closes(&[400, 400])),
        case("length: an underscore in the name", get("Content_Length: 11\r\n"), ANSWERED),
        case(
            "length: longer than what comes",
            post("Content-Length: 5000\r\n", BATCH),
            Alone::Open,
        ),
    ]);
    cases.extend(with_get());
    cases
}

/// Returns requests with a body where none is expected.
fn with_get() -> Vec<Case> {
    let length = HIDDEN.len();
    let get_with = |body: &str| {
        [&*get(format!("Content-Length: {}\r\n", body.len())), body.as_bytes()].concat()
    };
    vec![
        case("GET with a body", get_with(BATCH), ANSWERED),
        case("GET with a request as its body", get_with(HIDDEN), ANSWERED),
        case("GET with length 0", get("Content-Length: 0\r\n"), ANSWERED),
        case(
            "GET with a request as its body in HTTP/1.0",
            format!("GET /products/1 HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{HIDDEN}"),
            Alone::Closes(&[200]),
        ),
        case(
            "HEAD with a request as its body",
            format!(
                "HEAD /products/1 HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{HIDDEN}"
            ),
            ANSWERED,
        ),
        case(
            "DELETE with a request as its body",
            format!(
                "DELETE /products/1 HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{HIDDEN}"
            ),
            Alone::Continues(&[405]),
        ),
        case(
            "OPTIONS with a request as its body",
            format!(
                "OPTIONS /products/1 HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n\
                 {HIDDEN}"
            ),
            Alone::Continues(&[405]),
        ),
        case(
            "POST with length 0 to a record",
            "POST /products/1 HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
            Alone::Continues(&[405]),
        ),
        case("the first line alone", line("GET /products/1 HTTP/1.1"), ANSWERED),
    ]
}
