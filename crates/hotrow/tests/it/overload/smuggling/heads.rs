//! First lines, hosts and header lines that parsers read in different ways.

use super::{ANSWERED, Alone, Case, HIDDEN, REFUSED, case, get, line};

const OTHER_VERSION: Alone = Alone::Closes(&[505]);
const OTHER_METHOD: Alone = Alone::Continues(&[405]);

const FIRST_LINES: &[(&str, &[u8], Alone)] = &[
    ("absolute form", b"GET http://h/products/1 HTTP/1.1", ANSWERED),
    ("absolute form of another host", b"GET http://other.test:81/products/1 HTTP/1.1", ANSWERED),
    ("absolute form with a user", b"GET http://h@other.test/products/1 HTTP/1.1", ANSWERED),
    ("asterisk form", b"OPTIONS * HTTP/1.1", Alone::Continues(&[204])),
    ("asterisk form with GET", b"GET * HTTP/1.1", REFUSED),
    ("authority form", b"CONNECT h:80 HTTP/1.1", OTHER_METHOD),
    ("authority form without a port", b"CONNECT h HTTP/1.1", REFUSED),
    ("authority form with GET", b"GET h:80 HTTP/1.1", REFUSED),
    ("no slash", b"GET products/1 HTTP/1.1", REFUSED),
    ("two slashes", b"GET //products/1 HTTP/1.1", Alone::Continues(&[404])),
    ("a fragment", b"GET /products/1#x HTTP/1.1", REFUSED),
    ("a blank in the target", b"GET /products/1 2 HTTP/1.1", REFUSED),
    ("a version in the target", b"GET /products/1 HTTP/1.1 HTTP/1.1", REFUSED),
    ("a percent sign alone", b"GET /products/% HTTP/1.1", Alone::Continues(&[400])),
    ("an encoded NUL", b"GET /products/%00 HTTP/1.1", Alone::Continues(&[400])),
    ("an encoded line end", b"GET /products/1%0d%0aX:%20y HTTP/1.1", Alone::Continues(&[400])),
    ("a backslash", b"GET \\products\\1 HTTP/1.1", REFUSED),
    ("DEL in the target", b"GET /products/\x7f HTTP/1.1", REFUSED),
    ("a control byte in the target", b"GET /products/\x01 HTTP/1.1", REFUSED),
    ("a vertical tab in the target", b"GET /products/1\x0b HTTP/1.1", REFUSED),
    ("NUL in the target", b"GET /products/1\0 HTTP/1.1", REFUSED),
    ("two blanks before the target", b"GET  /products/1 HTTP/1.1", REFUSED),
    ("two blanks before the version", b"GET /products/1  HTTP/1.1", REFUSED),
    ("tabs for blanks", b"GET\t/products/1\tHTTP/1.1", REFUSED),
    ("vertical tabs for blanks", b"GET\x0b/products/1\x0bHTTP/1.1", REFUSED),
    ("a blank behind the version", b"GET /products/1 HTTP/1.1 ", REFUSED),
    ("a tab behind the version", b"GET /products/1 HTTP/1.1\t", REFUSED),
    ("a blank before the method", b" GET /products/1 HTTP/1.1", REFUSED),
    ("a colon behind the method", b"GET: /products/1 HTTP/1.1", REFUSED),
    ("HTTP/0.9 with a version", b"GET /products/1 HTTP/0.9", OTHER_VERSION),
    ("HTTP/1.2", b"GET /products/1 HTTP/1.2", OTHER_VERSION),
    ("HTTP/2.0", b"GET /products/1 HTTP/2.0", OTHER_VERSION),
    ("HTTP/9.9", b"GET /products/1 HTTP/9.9", OTHER_VERSION),
    ("HTTP/1", b"GET /products/1 HTTP/1", REFUSED),
    ("HTTP/1.10", b"GET /products/1 HTTP/1.10", REFUSED),
    ("HTTP/01.1", b"GET /products/1 HTTP/01.1", REFUSED),
    ("HTTP/+1.1", b"GET /products/1 HTTP/+1.1", REFUSED),
    ("HTTP/1,1", b"GET /products/1 HTTP/1,1", REFUSED),
    ("a lower-case version", b"GET /products/1 http/1.1", REFUSED),
    ("another protocol", b"GET /products/1 ICY/1.1", REFUSED),
    ("a lower-case method", b"get /products/1 HTTP/1.1", OTHER_METHOD),
    ("an unknown method", b"X-TOKEN!#$%&'*+-.^_`|~1 /products HTTP/1.1", OTHER_METHOD),
    ("a method that is no token", b"G(E)T /products/1 HTTP/1.1", REFUSED),
    ("a quoted method", b"\"GET\" /products/1 HTTP/1.1", REFUSED),
    ("a method with a control byte", b"GE\x01T /products/1 HTTP/1.1", REFUSED),
    ("a method with a byte over 0x7f", b"G\xc9T /products/1 HTTP/1.1", REFUSED),
];

const HEADERS: &[(&str, &[u8], Alone)] = &[
    ("two hosts", b"Host: h\r\n", REFUSED),
    ("two different hosts", b"Host: other\r\n", REFUSED),
    ("a host in other letters", b"hOST: other\r\n", REFUSED),
    ("a blank before the host's colon", b"Host : other\r\n", REFUSED),
    ("no colon", b"X\r\n", REFUSED),
    ("no name", b": x\r\n", REFUSED),
    ("a colon alone", b":\r\n", REFUSED),
    ("a blank in the name", b"X Y: x\r\n", REFUSED),
    ("a bracket in the name", b"X(Y): x\r\n", REFUSED),
    ("a quote in the name", b"\"X\": x\r\n", REFUSED),
    ("DEL in the name", b"X\x7f: x\r\n", REFUSED),
    ("a byte over 0x7f in the name", b"X\xe9: x\r\n", REFUSED),
    ("a control byte in the name", b"X\x01: x\r\n", REFUSED),
    ("NUL in the name", b"X\0Y: x\r\n", REFUSED),
    ("NUL in the value", b"X: a\0b\r\n", REFUSED),
    ("a control byte in the value", b"X: a\x01b\r\n", REFUSED),
    ("DEL in the value", b"X: a\x7fb\r\n", REFUSED),
    ("bytes over 0x7f in the value", b"X: \xe9\xff\x80\r\n", ANSWERED),
    ("a bare CR in the value", b"X: a\rb\r\n", REFUSED),
    ("a bare CR before the name", b"\rX: a\r\n", REFUSED),
    ("CR CR LF", b"X: a\r\r\n", REFUSED),
    ("a bare LF", b"X: a\nY: b\r\n", ANSWERED),
    ("LF CR LF", b"X: a\n\rY: b\r\n", REFUSED),
    ("folding", b"X: a\r\n b\r\n", REFUSED),
    ("folding by a tab", b"X: a\r\n\tb\r\n", REFUSED),
    ("a line of blanks", b"X: a\r\n  \r\n", REFUSED),
    ("an empty value", b"X:\r\nY: \r\n", ANSWERED),
    ("names with odd but lawful bytes", b"X!#$%&'*+-.^_`|~: y\r\n", ANSWERED),
    (
        "Connection: Content-Length",
        b"Connection: Content-Length\r\nContent-Length: 0\r\n",
        ANSWERED,
    ),
    ("Connection: Host", b"Connection: keep-alive, Host, X\r\nX: y\r\n", ANSWERED),
    ("Connection: Transfer-Encoding", b"Connection: Transfer-Encoding\r\n", ANSWERED),
    ("Connection with bytes that are none of a token", b"Connection: \"close\", {}\r\n", ANSWERED),
    ("Connection: close", b"Connection: close\r\n", Alone::Closes(&[200])),
    ("Connection: CLOSE in a list", b"Connection: x, CLOSE\r\n", Alone::Closes(&[200])),
    (
        "Keep-Alive and Proxy-Connection",
        b"Keep-Alive: max=1\r\nProxy-Connection: close\r\n",
        ANSWERED,
    ),
    ("another method in a header", b"X-HTTP-Method-Override: DELETE\r\n", ANSWERED),
    (
        "another path in a header",
        b"X-Original-URL: /products/2\r\nX-Rewrite-URL: /products/2\r\n",
        ANSWERED,
    ),
    ("Range", b"Range: bytes=0-3\r\n", ANSWERED),
];

/// Complete heads.
const HEADS: &[(&str, &[u8], Alone)] = &[
    ("no host", b"GET /products/1 HTTP/1.1\r\n\r\n", REFUSED),
    ("no host in absolute form", b"GET http://h/products/1 HTTP/1.1\r\n\r\n", REFUSED),
    ("no host in HTTP/1.0", b"GET /products/1 HTTP/1.0\r\n\r\n", Alone::Closes(&[200])),
    ("two hosts in HTTP/1.0", b"GET /products/1 HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", REFUSED),
    ("an empty host", b"GET /products/1 HTTP/1.1\r\nHost:\r\n\r\n", ANSWERED),
    ("two hosts in one", b"GET /products/1 HTTP/1.1\r\nHost: a, b\r\n\r\n", REFUSED),
    ("a blank in the host", b"GET /products/1 HTTP/1.1\r\nHost: a b\r\n\r\n", REFUSED),
    ("a path in the host", b"GET /products/1 HTTP/1.1\r\nHost: a/products/2\r\n\r\n", REFUSED),
    ("a user in the host", b"GET /products/1 HTTP/1.1\r\nHost: a@b\r\n\r\n", REFUSED),
    ("a byte over 0x7f in the host", b"GET /products/1 HTTP/1.1\r\nHost: \xe9\r\n\r\n", REFUSED),
    ("an address as host", b"GET /products/1 HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", ANSWERED),
    ("a blank before the first header", b"GET /products/1 HTTP/1.1\r\n Host: h\r\n\r\n", REFUSED),
    ("a bare LF behind the first line", b"GET /products/1 HTTP/1.1\nHost: h\r\n\r\n", ANSWERED),
    ("bare LFs only", b"GET /products/1 HTTP/1.1\nHost: h\n\n", ANSWERED),
    ("a bare LF for the empty line", b"GET /products/1 HTTP/1.1\r\nHost: h\r\n\n", ANSWERED),
    ("a bare CR behind the first line", b"GET /products/1 HTTP/1.1\rHost: h\r\n\r\n", REFUSED),
    (
        "a bare CR for the empty line",
        b"GET /products/1 HTTP/1.1\r\nHost: h\r\n\rX: y\r\n\r\n",
        REFUSED,
    ),
    ("empty lines before", b"\r\n\r\nGET /products/1 HTTP/1.1\r\nHost: h\r\n\r\n", ANSWERED),
    ("bare LFs before", b"\n\nGET /products/1 HTTP/1.1\r\nHost: h\r\n\r\n", ANSWERED),
    ("a bare CR before", b"\rGET /products/1 HTTP/1.1\r\nHost: h\r\n\r\n", REFUSED),
    ("NUL before", b"\0GET /products/1 HTTP/1.1\r\nHost: h\r\n\r\n", REFUSED),
    ("a blank line before", b" \r\nGET /products/1 HTTP/1.1\r\nHost: h\r\n\r\n", REFUSED),
    ("HTTP/0.9", b"GET /products/1\r\n", REFUSED),
    ("HTTP/0.9 with headers", b"GET /products/1\r\nHost: h\r\n\r\n", REFUSED),
    ("HTTP/2 by prior knowledge", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", OTHER_VERSION),
    ("an answer", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", REFUSED),
    ("TLS", b"\x16\x03\x01\x02\0\x01\0\x01\n\r\n\r\n", REFUSED),
    ("SSH", b"SSH-2.0-OpenSSH_9.2\r\n\r\n", REFUSED),
];

pub(super) fn cases() -> Vec<Case> {
    let named = |kind: &str, what: &str| format!("{kind}: {what}");
    let mut cases = Vec::new();
    cases.extend(
        FIRST_LINES
            .iter()
            .map(|(what, first, alone)| case(named("first line", what), line(first), *alone)),
    );
    cases.extend(
        HEADERS
            .iter()
            .map(|(what, fields, alone)| case(named("header", what), get(fields), *alone)),
    );
    cases.extend(HEADS.iter().map(|(what, head, alone)| case(named("head", what), *head, *alone)));
    let fields = |n: usize| (0..n).map(|i| format!("X-{i}: y\r\n")).collect::<String>();
    cases.extend([
        case(
            "first line: too long a target",
            line(format!("GET /{} HTTP/1.1", "x".repeat(9_000))),
            Alone::Closes(&[414]),
        ),
        case(
            "first line: too long a method",
            line(format!("{} / HTTP/1.1", "X".repeat(9_000))),
            Alone::Closes(&[414]),
        ),
        case("first line: endless", "G".repeat(70_000), Alone::Closes(&[414])),
        case("header: as many as may be", get(fields(63)), ANSWERED),
        case("header: one too many", get(fields(64)), Alone::Closes(&[431])),
        case("header: a thousand", get(fields(1_000)), Alone::Closes(&[431])),
        case(
            "header: too long a value",
            get(format!("X: {}\r\n", "y".repeat(17_000))),
            Alone::Closes(&[431]),
        ),
        case(
            "header: too long a name",
            get(format!("{}: y\r\n", "X".repeat(17_000))),
            Alone::Closes(&[431]),
        ),
        case(
            "header: a request in its value",
            get(format!("X: {}\r\n", HIDDEN.replace("\r\n", " "))),
            ANSWERED,
        ),
    ]);
    cases
}
