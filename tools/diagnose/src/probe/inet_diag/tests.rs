use super::*;

/// An answer of Linux 6.18: one connection, then the end.
fn recorded() -> Vec<u8> {
    let text = include_str!("../../../fixtures/inet_diag/linux-6.18.hex");
    let digits: Vec<u8> =
        text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn parsed(bytes: &[u8]) -> (Vec<DiagConnection>, DumpStatus) {
    let mut found = Vec::new();
    let part = parse(bytes, |connection| found.push(connection));
    (found, part)
}

#[cfg(target_endian = "little")]
#[test]
fn a_recorded_answer_is_read() {
    let (found, part) = parsed(&recorded());
    let expected = DiagConnection {
        inode: 174_331,
        rtt: Duration::from_micros(36),
        rtt_min: Some(Duration::from_micros(11)),
        retransmitted: 0,
        sending: Some(Sending::default()),
    };
    assert_eq!((found, part), (vec![expected], DumpStatus::Done));
}

#[test]
fn sockets_of_both_families_are_read() {
    let message = |family: u8, state: SocketState, local: &[u8], [rqueue, wqueue]: [u32; 2]| {
        let mut body = [0; ANSWER_BYTES];
        (body[0], body[offset::STATE], body[offset::RETRANSMITS]) = (family, state as u8, 3);
        body[offset::TIMER] = if state == SocketState::Established { RETRANSMISSION } else { 0 };
        body[offset::LOCAL_PORT..offset::LOCAL].copy_from_slice(&[0x1f, 0x90, 0xc0, 0x01]);
        body[offset::LOCAL..offset::LOCAL + local.len()].copy_from_slice(local);
        body[offset::RQUEUE..offset::WQUEUE].copy_from_slice(&rqueue.to_ne_bytes());
        body[offset::WQUEUE..offset::WQUEUE + 4].copy_from_slice(&wqueue.to_ne_bytes());
        body[offset::INODE..].copy_from_slice(&4711_u32.to_ne_bytes());
        let mut bytes = ((HEADING_BYTES + ANSWER_BYTES) as u32).to_ne_bytes().to_vec();
        bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    };
    let mapped = "::ffff:10.0.0.1".parse::<Ipv6Addr>().unwrap().octets();
    let bytes = [
        message(2, SocketState::Listening, &[127, 0, 0, 1], [3, 2]),
        message(10, SocketState::Established, &mapped, [7, 9]),
        message(2, SocketState::Established, &[0; 4], [0, 0])[..20].to_vec(),
    ];
    let mut found = Vec::new();
    assert_eq!(
        parse_sockets(&bytes.concat(), |socket| found.push(socket)),
        DumpStatus::Refused(0),
        "the last is cut"
    );
    let (listener, open) = (found[0], found[1]);
    assert_eq!((listener.local, listener.peer.port()), ("127.0.0.1:8080".parse().unwrap(), 0xc001));
    assert_eq!((listener.unread, listener.backlog, listener.unsent_bytes), (3, Some(2), 0));
    assert_eq!(
        (open.local, open.state),
        ("10.0.0.1:8080".parse().unwrap(), SocketState::Established)
    );
    assert_eq!((open.unread, open.backlog, open.unsent_bytes), (7, None, 9));
    assert_eq!((open.inode, open.retransmits, found.len()), (4711, 3, 2));
}

#[cfg(target_endian = "little")]
#[test]
fn older_kernels_report_less() {
    // `tcp_info` ended after `total_retrans` before 3.15, and after `min_rtt` with its fields in
    // 4.9.
    let whole = recorded();
    let (found, _) = parsed(&whole);
    for (info_bytes, rtt_min, sending) in [(104, None, None), (168, found[0].rtt_min, None)] {
        let at = whole
            .windows(4)
            .position(|window| window == [0x1c, 0x01, 0x02, 0x00])
            .expect("the attribute's heading");
        let mut cut = whole[..at + 4 + info_bytes].to_vec();
        cut[at..at + 2].copy_from_slice(&((4 + info_bytes) as u16).to_ne_bytes());
        let length = cut.len() as u32;
        cut[..4].copy_from_slice(&length.to_ne_bytes());
        assert_eq!(
            parsed(&cut),
            (vec![DiagConnection { rtt_min, sending, ..found[0] }], DumpStatus::More)
        );
    }
}

#[test]
fn refusals_and_invalid_bytes_end_the_answer() {
    let message = |kind: u16, body: &[u8]| {
        let mut bytes = ((HEADING_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    };
    assert_eq!(parsed(&message(NLMSG_ERROR, &(-2_i32).to_ne_bytes())).1, DumpStatus::Refused(2));
    assert_eq!(parsed(&message(NLMSG_DONE, &(-2_i32).to_ne_bytes())).1, DumpStatus::Refused(2));
    assert_eq!(parsed(&message(NLMSG_DONE, &0_i32.to_ne_bytes())).1, DumpStatus::Done);
    assert_eq!(
        parsed(&message(NLMSG_ERROR, &i32::MIN.to_ne_bytes())).1,
        DumpStatus::Refused(i32::MAX)
    );
    assert_eq!(parsed(&message(NLMSG_ERROR, &[])).1, DumpStatus::Refused(0));
    assert_eq!(parsed(&message(SOCK_DIAG_BY_FAMILY, &[0; 9])), (Vec::new(), DumpStatus::More));
    assert_eq!(parsed(&[]).1, DumpStatus::More);
    let whole = recorded();
    for length in 1..whole.len() {
        parsed(&whole[..length]);
        parse_sockets(&whole[..length], drop);
        let mut other = whole.clone();
        for value in [0, 1, 3, 4, 0x7f, 0xff] {
            other[length] = value;
            parsed(&other);
            parse_sockets(&other, drop);
        }
    }
    assert_eq!(parsed(&whole[..17]), (Vec::new(), DumpStatus::Refused(0)));
}

#[test]
fn the_request_has_the_kernels_form() {
    let bytes = request(Family::V6, DiagQuery::Connections);
    assert_eq!(bytes.len(), 72);
    assert_eq!(
        (u32_at(&bytes, 0), u16_at(&bytes, 4), u16_at(&bytes, 6)),
        (Some(72), Some(20), Some(0x301))
    );
    assert_eq!((bytes[16..20].to_vec(), u32_at(&bytes, 20)), (vec![10, 6, 2, 0], Some(2)));
    let states = |wanted| u32_at(&request(Family::V4, wanted), 20);
    assert_eq!(
        (states(DiagQuery::Sockets), states(DiagQuery::TimeWait)),
        (Some(0x1fbe), Some(0x40))
    );
}
