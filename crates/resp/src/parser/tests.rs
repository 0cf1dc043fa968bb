use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { arguments: 4, argument_bytes: 20, command_bytes: 64 };

/// Bytes of a command, and its arguments.
type Parsed<T> = Result<Option<(usize, Vec<T>)>, ProtocolError>;

/// Parses one command from bytes that arrive in these pieces.
fn parse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Parsed<Vec<u8>> {
    let (mut parser, mut bytes) = (Parser::default(), Vec::new());
    for piece in pieces {
        bytes.extend_from_slice(piece);
        if let Some(used) = parser.parse(&bytes, &LIMITS)? {
            let arguments = parser.arguments(&bytes).from(0).map(<[u8]>::to_vec).collect();
            return Ok(Some((used, arguments)));
        }
    }
    Ok(None)
}

fn whole(text: &str) -> Parsed<String> {
    let parsed = parse([text.as_bytes()])?;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ok(parsed.map(|(used, arguments)| (used, arguments.into_iter().map(text).collect())))
}

#[test]
fn arrays_are_commands() {
    for (bytes, arguments) in [
        ("*1\r\n$4\r\nPING\r\n", &["PING"][..]),
        ("*2\r\n$3\r\nGET\r\n$3\r\na:1\r\n", &["GET", "a:1"]),
        ("*2\r\n$3\r\nGET\r\n$0\r\n\r\n", &["GET", ""]),
        ("*2\r\n$3\r\nGET\r\n$4\r\n\r\n\r\n\r\n", &["GET", "\r\n\r\n"]),
        ("*0\r\n", &[]),
        ("*-1\r\n", &[]),
    ] {
        let (used, found) = whole(bytes).unwrap().unwrap();
        assert_eq!(used, bytes.len(), "{bytes:?}");
        assert_eq!(found, arguments, "{bytes:?}");
        let more = format!("{bytes}*1\r\n");
        assert_eq!(whole(&more).unwrap().unwrap().0, bytes.len(), "what follows is another");
        for cut in 0..bytes.len() {
            assert_eq!(whole(&bytes[..cut]), Ok(None), "{:?}", &bytes[..cut]);
        }
    }
}

#[test]
fn lines_are_commands() {
    for (line, arguments) in [
        ("PING\r\n", &["PING"][..]),
        ("PING\n", &["PING"]),
        ("  GET \t a:1 \r\n", &["GET", "a:1"]),
        ("GET \"a b\"\r\n", &["GET", "a b"]),
        ("GET \"\\x41\\n\\\"\\q\"\r\n", &["GET", "A\n\"q"]),
        ("GET 'a\\'b\\n'\r\n", &["GET", "a'b\\n"]),
        ("GET ab\"c\"\r\n", &["GET", "abc"]),
        ("GET \"\"\r\n", &["GET", ""]),
        ("\r\n", &[]),
        ("\n", &[]),
        (" \t\r\n", &[]),
    ] {
        let (used, found) = whole(line).unwrap().unwrap();
        assert_eq!(used, line.len(), "{line:?}");
        assert_eq!(found, arguments, "{line:?}");
    }
    for line in ["GET \"a\r\n", "GET 'a\n", "GET \"a\"b\r\n", "GET \"a\\\r\n", "GET 'a'b\n"] {
        assert_eq!(whole(line), Err(ProtocolError::Quotes), "{line:?}");
    }
    assert_eq!(whole("a b c d e\r\n"), Err(ProtocolError::MultibulkLength));
    assert_eq!(whole(&format!("{}\n", "a".repeat(21))), Err(ProtocolError::BulkLength));
}

#[test]
fn what_two_readers_could_understand_differently_is_refused() {
    use ProtocolError::{BulkLength, CountLine, Dollar, LengthLine, MultibulkLength, Terminator};
    for (bytes, error) in [
        ("*\r\n", MultibulkLength),
        ("*x\r\n", MultibulkLength),
        ("*+1\r\n", MultibulkLength),
        ("*01\r\n", MultibulkLength),
        ("*-0\r\n", MultibulkLength),
        ("*1 \r\n", MultibulkLength),
        ("*1\n", MultibulkLength),
        ("*1\rx", MultibulkLength),
        ("*5\r\n", MultibulkLength),
        ("*9223372036854775808\r\n", MultibulkLength),
        ("*1111111111111111111111111111111111", CountLine),
        ("*1\r\n+OK\r\n", Dollar(b'+')),
        ("*2\r\n$3\r\nGET\r\n*1\r\n", Dollar(b'*')),
        ("*1\r\n$-1\r\n", BulkLength),
        ("*1\r\n$x\r\n", BulkLength),
        ("*1\r\n$21\r\n", BulkLength),
        ("*1\r\n$00\r\n", BulkLength),
        ("*1\r\n$1111111111111111111111111111111111", LengthLine),
        ("*1\r\n$3\r\nGETX", Terminator),
        ("*1\r\n$3\r\nGET\n\n", Terminator),
        ("*1\r\n$3\r\nGET\rX", Terminator),
    ] {
        assert_eq!(whole(bytes), Err(error), "{bytes:?}");
    }
}

#[test]
fn a_command_is_bounded_before_its_bytes_arrive() {
    let argument = format!("$20\r\n{}\r\n", "a".repeat(20));
    assert!(whole(&format!("*2\r\n{argument}{argument}")).unwrap().is_some());
    let three = format!("*3\r\n{argument}{argument}$20\r\n");
    assert_eq!(whole(&three), Err(ProtocolError::CommandBytes));
    let long = "a ".repeat(40);
    assert_eq!(whole(&long), Err(ProtocolError::InlineBytes));
    assert_eq!(whole(&format!("{long}\n")), Err(ProtocolError::InlineBytes));
}

#[test]
fn memory_is_kept_for_usual_commands_only() {
    let limits = Limits { arguments: 10_000, argument_bytes: 20, command_bytes: 1 << 20 };
    let mut parser = Parser::default();
    let bytes = format!("*10000\r\n{}", "$1\r\na\r\n".repeat(10_000));
    assert_eq!(parser.parse(bytes.as_bytes(), &limits), Ok(Some(bytes.len())));
    assert!(parser.memory_bytes() >= 10_000 * size_of::<Place>());
    parser.reset();
    assert!(parser.memory_bytes() <= (KEPT_PLACES_MAX + 1) * size_of::<Place>());
}

proptest! {
    #[test]
    fn pieces_are_understood_as_the_whole(
        bytes in "[*$0-9\r\nGETab:\"' x\\\\-]{0,60}",
        cuts in proptest::collection::vec(0_usize..60, 0..6),
    ) {
        let bytes = bytes.as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|ends| &bytes[ends[0]..ends[1]]);
        prop_assert_eq!(parse(pieces), parse([bytes]));
    }

    #[test]
    fn every_command_is_found_again(
        arguments in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..10), 0..4),
        cut in 1_usize..8,
    ) {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in &arguments {
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        let expected = Ok(Some((bytes.len(), arguments)));
        prop_assert_eq!(parse(bytes.chunks(cut)), expected);
    }
}
