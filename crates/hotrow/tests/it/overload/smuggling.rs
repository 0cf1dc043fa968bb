//! Ends of messages: Hotrow alone, and behind real proxies that keep their connections to it and
//! put the requests of several clients on one.
//!
//! The cases follow RFC 9112, published request smuggling (CL.TE, TE.CL, TE.TE, 0.CL), and the
//! differences that comparisons of parsers find: chunk sizes, ends of lines, trailers, odd bytes in
//! names.

mod alone;
mod case;
mod chunks;
mod codings;
mod heads;
mod lengths;
mod proxied;
mod streams;

use case::Case;

/// Returns every case; their names are unique.
fn cases() -> Vec<Case> {
    let parts =
        [codings::cases(), lengths::cases(), chunks::cases(), heads::cases(), streams::cases()];
    let cases: Vec<Case> = parts.into_iter().flatten().collect();
    let mut names: Vec<&str> = cases.iter().map(|case| case.what.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases.len(), "two cases of one name");
    assert!(cases.len() >= 80, "{} cases", cases.len());
    cases
}
