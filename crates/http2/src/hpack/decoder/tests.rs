use proptest::prelude::*;

use super::*;
use crate::hpack::huffman::tests::encode as huffman;

type Fields = Vec<(String, String)>;

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, CompressionError> {
    let mut fields = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut scratch = Vec::new();
    decoder.decode(block, &mut scratch, |name, value| fields.push((text(name), text(value))))?;
    Ok(fields)
}

fn bytes(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        digits.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|two| two[0] << 4 | two[1]).collect()
}

fn fields(text: &str) -> Fields {
    text.lines()
        .map(|line| line.split_once('=').unwrap())
        .map(|(name, value)| (name.trim().to_owned(), value.to_owned()))
        .collect()
}

/// The heads of one connection are decoded by one decoder.
fn check(examples: &[(&str, &str)]) {
    let mut decoder = Decoder::default();
    for (block, expected) in examples {
        assert_eq!(decode(&mut decoder, &bytes(block)), Ok(fields(expected)), "{block}");
    }
}

#[test]
fn single_fields_of_the_standard() {
    // RFC 7541 appendix C.2.
    check(&[(
        "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
        "custom-key=custom-header",
    )]);
    check(&[("040c 2f73 616d 706c 652f 7061 7468", ":path=/sample/path")]);
    check(&[("1008 7061 7373 776f 7264 0673 6563 7265 74", "password=secret")]);
    check(&[("82", ":method=GET")]);
}

const FIRST: &str = ":method=GET\n:scheme=http\n:path=/\n:authority=www.example.com";
const SECOND: &str =
    ":method=GET\n:scheme=http\n:path=/\n:authority=www.example.com\ncache-control=no-cache";
const THIRD: &str = ":method=GET\n:scheme=https\n:path=/index.html\n:authority=www.example.com\n\
                     custom-key=custom-value";

#[test]
fn requests_of_the_standard() {
    // RFC 7541 appendix C.3.
    check(&[
        ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", FIRST),
        ("8286 84be 5808 6e6f 2d63 6163 6865", SECOND),
        ("8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", THIRD),
    ]);
    // Appendix C.4: the same with the Huffman code.
    check(&[
        ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", FIRST),
        ("8286 84be 5886 a8eb 1064 9cbf", SECOND),
        ("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", THIRD),
    ]);
}

#[test]
fn responses_of_the_standard_evict() {
    // RFC 7541 appendix C.6, whose table has 256 bytes: the change of size is written here.
    check(&[
        (
            "3fe101 4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 \
             82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
            ":status=302\ncache-control=private\ndate=Mon, 21 Oct 2013 20:13:21 GMT\n\
             location=https://www.example.com",
        ),
        (
            "4883 640e ffc1 c0bf",
            ":status=307\ncache-control=private\ndate=Mon, 21 Oct 2013 20:13:21 GMT\n\
             location=https://www.example.com",
        ),
        (
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad \
             94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 \
             65c0 03ed 4ee5 b106 3d50 07",
            ":status=200\ncache-control=private\ndate=Mon, 21 Oct 2013 20:13:22 GMT\n\
             location=https://www.example.com\ncontent-encoding=gzip\n\
             set-cookie=foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
        ),
    ]);
}

#[test]
fn what_breaks_the_format_is_refused() {
    for block in [
        "80",             // index 0
        "be",             // an empty dynamic table
        "7f00",           // the same for a name
        "3fe21f",         // a table of 4,097 bytes
        "8220",           // a change of size behind a field
        "0401",           // a value that is cut off
        "00",             // no name
        "ff80808080",     // an integer without end
        "0485ffffffffff", // the end of the string
    ] {
        let result = decode(&mut Decoder::default(), &bytes(block));
        assert_eq!(result, Err(CompressionError), "{block}");
    }
    assert_eq!(decode(&mut Decoder::default(), &bytes("3fe21f")), Err(CompressionError));
    assert_eq!(decode(&mut Decoder::default(), &bytes("203fe01f")), Ok(vec![]), "4,095 bytes");
}

#[test]
fn a_head_copies_names_of_the_table_only_so_often() {
    let mut block = vec![0x40, 0x7f, 0xa1, 0x1e];
    block.extend([b'a'; 4_000]);
    block.extend([1, b'b']);
    let with = |times| [&block[..], &[0x7e, 0].repeat(times)].concat();
    assert_eq!(decode(&mut Decoder::default(), &with(10)).map(|fields| fields.len()), Ok(11));
    assert_eq!(decode(&mut Decoder::default(), &with(1_000)), Err(CompressionError));
}

proptest! {
    #[test]
    fn no_bytes_panic_and_little_memory_is_used(
        blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..5),
    ) {
        let mut decoder = Decoder::default();
        for block in blocks {
            let mut scratch = Vec::new();
            if decoder.decode(&block, &mut scratch, |_, _| {}).is_err() {
                break;
            }
            prop_assert!(scratch.len() <= block.len() * 2);
        }
    }

    #[test]
    fn literals_are_decoded_as_they_were_written(
        name in "[a-z]{1,20}", value in "[ -~]{0,40}", is_coded in any::<bool>(),
        first in prop::sample::select(vec![0x00_u8, 0x10, 0x40]),
    ) {
        let mut block = vec![first];
        for text in [&name, &value] {
            let coded = huffman(text.as_bytes());
            let (flag, text) =
                if is_coded { (0x80, &coded[..]) } else { (0, text.as_bytes()) };
            integer::encode(&mut block, flag, 7, text.len());
            block.extend_from_slice(text);
        }
        if first == 0x40 {
            block.push(0x80 | 62);
        }
        let field = (name, value);
        let times = if first == 0x40 { 2 } else { 1 };
        prop_assert_eq!(decode(&mut Decoder::default(), &block), Ok(vec![field; times]));
    }
}
