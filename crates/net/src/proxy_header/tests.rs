use hotrow_testkit::mutate;

use super::ProxyHeaderError as E;
use super::*;

/// Returns a header of these parts.
fn header(version_and_command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap();
    [&SIGNATURE[..], &[version_and_command, family], &length.to_be_bytes(), rest].concat()
}

/// Source 192.0.2.1:56324, destination 192.0.2.2:443.
const ADDRESSES_4: [u8; 12] = [192, 0, 2, 1, 192, 0, 2, 2, 0xdc, 0x04, 0x01, 0xbb];

fn addresses_6(source: &str) -> Vec<u8> {
    let source: Ipv6Addr = source.parse().unwrap();
    [&source.octets()[..], &Ipv6Addr::LOCALHOST.octets(), &[0xdc, 0x04, 0x01, 0xbb]].concat()
}

#[test]
fn the_address_of_the_client_is_read() {
    let address = |text: &str| Ok(ProxiedClient::Address(text.parse().unwrap()));
    assert_eq!(parse(&header(0x21, 0x11, &ADDRESSES_4)), address("192.0.2.1"));
    let six = header(0x21, 0x21, &addresses_6("2001:db8::7"));
    assert_eq!(parse(&six), address("2001:db8::7"));
    let mapped = header(0x21, 0x21, &addresses_6("::ffff:192.0.2.1"));
    assert_eq!(parse(&mapped), address("192.0.2.1"), "one client has one identity");
    // A checksum and an empty extension.
    let extensions = [&ADDRESSES_4[..], &[3, 0, 4, 1, 2, 3, 4], &[4, 0, 0]].concat();
    assert_eq!(parse(&header(0x21, 0x11, &extensions)), address("192.0.2.1"));
}

#[test]
fn a_proxy_may_speak_for_itself() {
    for own in [header(0x20, 0x00, &[]), header(0x20, 0x11, &ADDRESSES_4), header(0x21, 0, b"xyz")]
    {
        assert_eq!(parse(&own), Ok(ProxiedClient::Proxy), "{own:?}");
    }
}

#[test]
fn everything_else_is_refused() {
    let long = vec![0; REST_BYTES_MAX + 1];
    let beyond = [&ADDRESSES_4[..], &[3, 0, 5, 1, 2, 3, 4]].concat();
    let cut = [&ADDRESSES_4[..], &[3, 0]].concat();
    for (bytes, error) in [
        (b"GET /products/1 HTTP/1.1\r\n\r\n".to_vec(), E::Absent),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n".to_vec(), E::Version1),
        (header(0x11, 0x11, &ADDRESSES_4), E::Version(1)),
        (header(0x31, 0x11, &ADDRESSES_4), E::Version(3)),
        (header(0x22, 0x11, &ADDRESSES_4), E::Command(2)),
        (header(0x21, 0x12, &ADDRESSES_4), E::Family(0x12)),
        (header(0x21, 0x31, &[0; 216]), E::Family(0x31)),
        (header(0x21, 0x11, &ADDRESSES_4[..11]), E::TooShort(11)),
        (header(0x21, 0x21, &addresses_6("::1")[..35]), E::TooShort(35)),
        (header(0x21, 0x11, &long), E::TooLong(REST_BYTES_MAX + 1)),
        (header(0x21, 0x11, &beyond), E::Extension),
        (header(0x21, 0x11, &cut), E::Extension),
    ] {
        assert_eq!(parse(&bytes), Err(error), "{bytes:?}");
    }
}

/// An accepted header, whatever its bytes, is one that another reader reads in the same way.
#[test]
fn mutated_headers_do_not_panic_and_are_read_by_the_standard() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/proxy_header");
    let pieces: [&[u8]; 5] = [SIGNATURE, &[0x21, 0x11, 0, 12], &ADDRESSES_4, &[3, 0, 4], &[0xff]];
    mutate::run(folder, 200_000, &pieces, |bytes| {
        if let Ok(ProxiedClient::Address(IpAddr::V4(v4))) = parse(bytes)
            && bytes[13] == 0x11
        {
            assert_eq!(v4.octets(), bytes[16..20]);
        }
    });
}
