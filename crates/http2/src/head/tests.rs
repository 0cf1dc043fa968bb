use proptest::prelude::*;

use super::*;

const BYTES_MAX: usize = 200;

fn text(fields: &[(&str, &str)]) -> Result<String, HeadFault> {
    let mut head = HeadText::default();
    head.begin(BYTES_MAX, false);
    fields.iter().for_each(|(name, value)| head.add(name.as_bytes(), value.as_bytes()));
    head.end()?;
    Ok(String::from_utf8(head.text().to_vec()).unwrap())
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "a.test:1"), (":path", "/p/7?x=%2F")];

fn with(more: &[(&str, &str)]) -> Result<String, HeadFault> {
    text(&[&GET, more].concat())
}

#[test]
fn a_head_of_http_1_1_has_the_parts_of_a_request() {
    let plain = "GET /p/7?x=%2F HTTP/1.1\r\nhost: a.test:1\r\n";
    assert_eq!(with(&[]), Ok(format!("{plain}\r\n")));
    let fields = [("host", "a.test:1"), ("accept", "a"), ("accept", "b"), ("te", "trailers")];
    let expected = format!("{plain}accept: a\r\naccept: b\r\nte: trailers\r\n\r\n");
    assert_eq!(with(&fields), Ok(expected));
    let two = format!("{plain}host: b.test\r\n\r\n");
    assert_eq!(with(&[("host", "b.test")]), Ok(two), "refused by the parser of the text");
    let none = [(":path", "/"), (":method", "GET"), (":scheme", "http"), ("host", "b")];
    assert_eq!(text(&none), Ok("GET / HTTP/1.1\r\nhost: b\r\n\r\n".to_owned()));
    let empty = [(":method", "GET"), (":scheme", "http"), (":authority", ""), (":path", "/")];
    let twice = "GET / HTTP/1.1\r\nhost: \r\nhost: \r\n\r\n";
    assert_eq!(text(&empty), Ok(twice.to_owned()), "refused by the parser of the text");
    let options = [(":method", "OPTIONS"), (":scheme", "http"), (":path", "*")];
    assert_eq!(text(&options), Ok("OPTIONS * HTTP/1.1\r\n\r\n".to_owned()));
    let connect = [(":method", "CONNECT"), (":authority", "a.test:443")];
    let expected = "CONNECT a.test:443 HTTP/1.1\r\nhost: a.test:443\r\n\r\n";
    assert_eq!(text(&connect), Ok(expected.to_owned()));
}

#[test]
fn what_breaks_the_protocol_is_malformed() {
    for more in [
        (":method", "GET"),
        (":status", "200"),
        (":protocol", "websocket"),
        ("Accept", "a"),
        ("a b", "c"),
        ("", "a"),
        ("a:", "b"),
        ("a", "b\r\nc: d"),
        ("a", "b\0"),
        ("connection", "close"),
        ("keep-alive", "1"),
        ("proxy-connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
    ] {
        assert_eq!(with(&[more]), Err(HeadFault::Malformed), "{more:?}");
    }
    let late = [&GET[..3], &[("accept", "a"), (":path", "/")]].concat();
    assert_eq!(text(&late), Err(HeadFault::Malformed));
    for missing in [0, 1, 3] {
        let mut fields = GET.to_vec();
        fields.remove(missing);
        assert_eq!(text(&fields), Err(HeadFault::Malformed), "{}", GET[missing].0);
    }
    for (path, fault) in [
        ("", HeadFault::Malformed),
        ("/a b", HeadFault::Malformed),
        ("/a\r\nb: c", HeadFault::Malformed),
        ("/a HTTP/1.1", HeadFault::Malformed),
        ("a", HeadFault::Target),
        ("*", HeadFault::Target),
        ("http://b/", HeadFault::Target),
    ] {
        let mut fields = [&GET[..], &[("accept", "a")]].concat();
        fields[3].1 = path;
        assert_eq!(text(&fields), Err(fault), "{path:?}");
    }
    let connect = [(":method", "CONNECT"), (":authority", "a:1"), (":path", "/")];
    assert_eq!(text(&connect), Err(HeadFault::Malformed));
}

#[test]
fn a_large_head_is_not_kept() {
    let long = "x".repeat(150);
    assert_eq!(with(&[("a", &long), ("b", &long)]), Err(HeadFault::TooLarge));
    let longer = format!("/{}", "x".repeat(BYTES_MAX));
    let mut fields = GET.to_vec();
    fields[3].1 = &longer;
    assert_eq!(text(&fields), Err(HeadFault::TooLarge));
    fields.push(("A", "b"));
    assert_eq!(text(&fields), Err(HeadFault::Malformed), "the graver fault");
    let mut head = HeadText::default();
    head.begin(BYTES_MAX, false);
    for (name, value) in GET {
        head.add(name.as_bytes(), value.as_bytes());
    }
    (0..10_000).for_each(|_| head.add(b"a", long.as_bytes()));
    assert!(head.text.len() <= BYTES_MAX + 8 && head.text.capacity() < 1_000);
}

#[test]
fn trailers_have_no_pseudo_fields() {
    let mut head = HeadText::default();
    head.begin(BYTES_MAX, true);
    head.add(b"a", b"b");
    assert_eq!(head.end(), Ok(()));
    head.begin(BYTES_MAX, true);
    head.add(b":path", b"/");
    assert_eq!(head.end(), Err(HeadFault::Malformed));
}

#[test]
fn behind_what_is_too_large_nothing_is_examined() {
    let value = "x".repeat(4_000);
    for is_trailer in [false, true] {
        let mut head = HeadText::default();
        head.begin(BYTES_MAX, is_trailer);
        if !is_trailer {
            for (name, value) in [(":method", "GET"), (":scheme", "http"), (":path", "/")] {
                head.add(name.as_bytes(), value.as_bytes());
            }
        }
        (0..2 * BYTES_MAX / 4_000 + 2).for_each(|_| head.add(b"a", value.as_bytes()));
        head.add(b"Not A Name", b"\0");
        assert_eq!(head.end(), Err(HeadFault::TooLarge));
    }
}

#[test]
fn what_the_connection_needs_is_noted() {
    let mut head = HeadText::default();
    head.begin(BYTES_MAX, false);
    head.add(b":method", b"HEAD");
    head.add(b"content-length", b"12");
    assert_eq!((head.is_head_request(), head.content_length()), (true, Some(12)));
    head.begin(BYTES_MAX, false);
    assert_eq!((head.is_head_request(), head.content_length()), (false, None));
}

proptest! {
    /// No bytes make a line that was not a field.
    #[test]
    fn every_line_is_a_field(
        fields in prop::collection::vec(("[a-z:]{1,8}", "[ -~\r\n\t\0]{0,12}"), 0..6),
    ) {
        let fields: Vec<_> = fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        if let Ok(text) = with(&fields) {
            prop_assert_eq!(text.split("\r\n").count(), 2 + fields.len() + 2);
            prop_assert!(!text.replace("\r\n", "").contains(['\r', '\n', '\0']));
        }
    }
}
