use std::path::Path;

use super::fuzzing::walk;
use super::*;

use hotrow_testkit::mutate;

/// Returns messages recorded from a server; the fuzz target of `fuzz/` starts with the same.
fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/pgoutput");
    let mut paths: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn every_recorded_message_is_decoded() {
    let corpus = corpus();
    let decoded = corpus.iter().filter(|bytes| Message::decode(bytes).is_ok()).count();
    // Two long messages were cut when they were recorded.
    assert!(corpus.len() >= 30 && decoded + 3 >= corpus.len(), "{decoded} of {}", corpus.len());
    for kind in b"BCRYIUDTO" {
        assert!(corpus.iter().any(|bytes| bytes.first() == Some(kind)), "{}", char::from(*kind));
    }
}

#[test]
fn the_front_of_a_message_is_an_error_and_no_panic() {
    for bytes in corpus().iter().filter(|bytes| Message::decode(bytes).is_ok()) {
        for end in 0..bytes.len() {
            assert!(
                Message::decode(&bytes[..end]).is_err(),
                "{:?} cut at {end}",
                bytes.escape_ascii().to_string()
            );
        }
        let longer = [bytes, &b"\0"[..]].concat();
        assert!(Message::decode(&longer).is_err());
    }
}

#[test]
fn impossible_lengths_are_refused() {
    let insert = |count: &[u8], rest: &[u8]| [b"I\0\0\0\x07N", count, rest].concat();
    assert!(Message::decode(&insert(b"\0\x01", b"n")).is_ok());
    for (count, rest) in [
        (b"\0\x02", &b"n"[..]),
        (b"\xff\xff", b"n"),
        (b"\0\x01", b"t\xff\xff\xff\xff"),
        (b"\0\x01", b"t\x7f\xff\xff\xffx"),
        (b"\0\x01", b"x"),
        (b"\0\x01", b"nn"),
    ] {
        assert!(Message::decode(&insert(count, rest)).is_err(), "{count:?} {rest:?}");
    }
    assert!(Message::decode(b"T\x7f\xff\xff\xff\0").is_err());
    assert!(Message::decode(b"T\xff\xff\xff\xff\0").is_err());
    assert!(Message::decode(b"S\0\0\0\x07\x01").is_err(), "streaming is not requested");
    assert!(Message::decode(b"Y\0\0\0\x07a\xff\0b\0").is_err());
}

#[test]
fn the_decoder_survives_mutated_messages() {
    const PIECES: [&[u8]; 6] = [&[0; 4], &[0xff; 4], &[0x7f; 4], b"n", b"t", b"u"];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/pgoutput");
    mutate::run(folder, 200_000, &PIECES, walk);
}
