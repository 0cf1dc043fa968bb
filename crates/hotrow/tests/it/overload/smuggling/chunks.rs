//! Chunked bodies: sizes, extensions, ends of lines, trailers.

use super::{ANSWERED, Alone, Case, HIDDEN, REFUSED, case, post};

/// The size exceeds the limit on bodies.
const TOO_LARGE: Alone = Alone::Closes(&[413]);

const CASES: &[(&str, &str, Alone)] = &[
    ("sound", "b\r\n{\"ids\":[1]}\r\n0\r\n\r\n", ANSWERED),
    ("upper-case digits", "B\r\n{\"ids\":[1]}\r\n0\r\n\r\n", ANSWERED),
    ("leading noughts", "00000000000b\r\n{\"ids\":[1]}\r\n000\r\n\r\n", ANSWERED),
    ("two chunks", "5\r\n{\"ids\r\n6\r\n\":[1]}\r\n0\r\n\r\n", ANSWERED),
    ("an extension", "b;a=b\r\n{\"ids\":[1]}\r\n0;c\r\n\r\n", ANSWERED),
    ("a quoted extension", "b;a=\"x;y\"\r\n{\"ids\":[1]}\r\n0\r\n\r\n", ANSWERED),
    ("a blank before an extension", "b ;a\r\n{\"ids\":[1]}\r\n0\r\n\r\n", ANSWERED),
    ("a trailer", "b\r\n{\"ids\":[1]}\r\n0\r\nX: y\r\n\r\n", ANSWERED),
    ("a length in the trailers", "b\r\n{\"ids\":[1]}\r\n0\r\nContent-Length: 50\r\n\r\n", ANSWERED),
    (
        "a coding in the trailers",
        "b\r\n{\"ids\":[1]}\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
        ANSWERED,
    ),
    ("a host in the trailers", "b\r\n{\"ids\":[1]}\r\n0\r\nHost: other\r\n\r\n", ANSWERED),
    ("an empty line behind", "b\r\n{\"ids\":[1]}\r\n0\r\n\r\n\r\n", ANSWERED),
    ("no size", "\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("no digits", "x\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("a prefix", "0xb\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("a plus", "+b\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("a minus", "-b\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("an underscore", "0_b\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("a blank before the size", " b\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("a blank behind the size", "b \r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("a tab behind the size", "b\t\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("a comma behind the size", "b,b\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("a non-digit behind the size", "bg\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("NUL behind the size", "b\0\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("2^64 + 11", "1000000000000000b\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("2^64 - 11", "fffffffffffffff5\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("2^63 + 11", "800000000000000b\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("2^32 + 11", "10000000b\r\n{\"ids\":[1]}\r\n0\r\n\r\n", TOO_LARGE),
    ("too short a size", "a\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("too long a size", "c\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("no end of the data", "b\r\n{\"ids\":[1]}0\r\n\r\n", REFUSED),
    ("a bare LF behind the size", "b\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("a bare LF behind the data", "b\r\n{\"ids\":[1]}\n0\r\n\r\n", REFUSED),
    ("bare LFs behind the last size", "b\r\n{\"ids\":[1]}\r\n0\n\n", REFUSED),
    ("a bare LF at the very end", "b\r\n{\"ids\":[1]}\r\n0\r\n\n", REFUSED),
    ("a bare CR behind the size", "b\r{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("a bare CR at the very end", "b\r\n{\"ids\":[1]}\r\n0\r\n\rX", REFUSED),
    ("CR CR LF behind the size", "b\r\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("other bytes for the end of the data", "b\r\n{\"ids\":[1]}xx0\r\n\r\n", REFUSED),
    ("LF in an extension", "b;\nx\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("CR in an extension", "b;a\rx\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    ("NUL in an extension", "b;a\0\r\n{\"ids\":[1]}\r\n0\r\n\r\n", REFUSED),
    (
        "a quoted line end in an extension",
        "b;a=\"\r\n{\"ids\":[1]}\r\n0\r\n\r\n\"\r\n",
        Alone::Closes(&[200, 400]),
    ),
    ("an empty extension", "b;\r\n{\"ids\":[1]}\r\n0\r\n\r\n", ANSWERED),
    ("the last line missing", "b\r\n{\"ids\":[1]}\r\n0\r\n", REFUSED),
    ("a trailer without a colon", "b\r\n{\"ids\":[1]}\r\n0\r\nX\r\n\r\n", REFUSED),
    ("a trailer without a name", "b\r\n{\"ids\":[1]}\r\n0\r\n: y\r\n\r\n", REFUSED),
    (
        "a trailer with a blank before its colon",
        "b\r\n{\"ids\":[1]}\r\n0\r\nX : y\r\n\r\n",
        REFUSED,
    ),
    ("a folded trailer", "b\r\n{\"ids\":[1]}\r\n0\r\nX: y\r\n z\r\n\r\n", REFUSED),
    ("a bare LF behind a trailer", "b\r\n{\"ids\":[1]}\r\n0\r\nX: y\n\r\n", REFUSED),
    ("a bare CR in a trailer", "b\r\n{\"ids\":[1]}\r\n0\r\nX: y\rz\r\n\r\n", REFUSED),
    ("no end at all", "b\r\n{\"ids\":[1]}\r\n", REFUSED),
];

pub(super) fn cases() -> Vec<Case> {
    const CODING: &str = "Transfer-Encoding: chunked\r\n";
    let chunked = |(what, body, alone): &(&str, &str, Alone)| {
        case(format!("chunks: {what}"), post(CODING, body), *alone)
    };
    let mut cases: Vec<Case> = CASES.iter().map(chunked).collect();
    let extension = format!("b;{}\r\n{{\"ids\":[1]}}\r\n0\r\n\r\n", "e".repeat(5_000));
    let trailer = format!("b\r\n{{\"ids\":[1]}}\r\n0\r\nX: {}\r\n\r\n", "y".repeat(20_000));
    let noughts = format!("{}b\r\n{{\"ids\":[1]}}\r\n0\r\n\r\n", "0".repeat(300));
    let hidden = format!("b\r\n{{\"ids\":[1]}}\r\n0\r\n\r\n{HIDDEN}");
    cases.extend([
        case("chunks: an endless extension", post(CODING, extension), REFUSED),
        case("chunks: an endless trailer", post(CODING, trailer), REFUSED),
        case("chunks: endless noughts", post(CODING, noughts), REFUSED),
        case("chunks: a request behind them", post(CODING, hidden), Alone::Continues(&[200, 200])),
        case(
            "chunks: announced trailers",
            post("Transfer-Encoding: chunked\r\nTrailer: X\r\nTE: trailers\r\n", {
                "b\r\n{\"ids\":[1]}\r\n0\r\nX: y\r\n\r\n"
            }),
            ANSWERED,
        ),
    ]);
    cases
}
