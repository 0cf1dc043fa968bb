//! What a client may repeat, and what it may not.

use super::*;
use crate::CONTINUATIONS_MAX;

/// Returns how often the client may send the frames that `bytes` makes.
fn allowed(peer: &mut Peer, mut bytes: impl FnMut(u32) -> Vec<u8>) -> u32 {
    let times = (0..1_000_000).find(|i| match peer.ask(&bytes(*i)) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error, ConnectionError::Flood);
            true
        }
    });
    times.expect("a flood")
}

#[test]
fn floods_end_the_connection() {
    let burst = CONTROL_FRAMES_BURST - 1;
    for flood in [
        frame(kind::PING, 0, 0, &[0; 8]),
        frame(kind::PING, flag::ACK, 0, &[0; 8]),
        frame(kind::SETTINGS, 0, 0, &[]),
        frame(kind::SETTINGS, flag::ACK, 0, &[]),
        frame(kind::PRIORITY, 0, 9, &[0; 5]),
        frame(kind::GOAWAY, 0, 0, &[0; 8]),
        frame(99, 0, 0, b"unknown"),
        window_update(0, 1),
    ] {
        let mut peer = Peer::new();
        assert_eq!(allowed(&mut peer, |_| flood.clone()), burst, "{flood:?}");
    }
    let mut peer = Peer::new();
    peer.open(1);
    assert_eq!(allowed(&mut peer, |_| data(1, b"", false)), burst);
    let mut peer = Peer::new();
    let rapid = (0..).find(|i| {
        peer.open(2 * i + 1);
        peer.ask(&reset(2 * i + 1)) == Err(ConnectionError::Flood)
    });
    assert_eq!(rapid, Some(RESETS_BURST), "of streams that are open");
    let broken = |i: u32| frame(kind::HEADERS, 5, 2 * i + 1, &block(&[("A", "b")]));
    assert_eq!(allowed(&mut Peer::new(), broken), RESETS_BURST);
    let mut peer = Peer::new();
    (0..STREAMS_MAX as u32).for_each(|i| _ = peer.open(2 * i + 1));
    let refused = |i: u32| request(2 * (STREAMS_MAX as u32 + i) + 1, true);
    assert_eq!(allowed(&mut peer, refused), burst);
    // A second later some are allowed again.
    for (flood, times) in
        [(&(|_| frame(kind::PING, 0, 0, &[0; 8])) as Frames<'_>, burst), (&broken, RESETS_BURST)]
    {
        let mut peer = Peer::new();
        (0..times).for_each(|i| _ = peer.ask(&flood(i)).unwrap());
        assert_eq!(peer.ask_at(&flood(times), 2 * NOW_NS), Ok(Event::None));
    }
}

/// The frames of a client's turn.
type Frames<'a> = &'a dyn Fn(u32) -> Vec<u8>;

/// What an obedient client sends for each answer that it gets, without a pause.
#[test]
fn obedient_clients_are_no_flood() {
    let id = |i: u32| 2 * i + 1;
    let clients: [(&str, Frames<'_>); 8] = [
        ("a window of the connection", &|_| window_update(0, 300)),
        ("windows of ended streams", &|i| window_update(id(i), 300).repeat(3)),
        ("resets of ended streams", &|i| reset(id(i)).repeat(3)),
        ("a ping", &|_| frame(kind::PING, 0, 0, &[0; 8])),
        ("settings", &|_| frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])),
        ("priorities", &|i| frame(kind::PRIORITY, 0, id(i), &[0; 5]).repeat(2)),
        ("unknown frames", &|i| frame(16, 0, 0, &id(i).to_be_bytes())),
        ("broken requests of another client", &|_| Vec::new()),
    ];
    for (name, frames) in clients {
        let mut peer = Peer::new();
        for i in 0..10 * CONTROL_FRAMES_BURST {
            peer.ask(&request(id(2 * i), true)).unwrap();
            let _ = peer.server.begin_head(&mut Vec::new());
            peer.server.sent_at_once(300);
            peer.ask(&frames(2 * i)).expect(name);
            if name.starts_with("broken") {
                let broken = frame(kind::HEADERS, 5, id(2 * i + 1), &block(&[("A", "b")]));
                assert_eq!(peer.ask(&broken), Ok(Event::None), "{name}");
            }
            peer.out.clear();
        }
    }
}

/// One of two requests is given up before its answer, and uploads begin with an empty frame.
#[test]
fn obedient_clients_may_give_up_requests() {
    let mut peer = Peer::new();
    for i in 0..10 * RESETS_BURST {
        let answered = peer.open(4 * i + 1);
        peer.open(4 * i + 3);
        peer.ask(&[data(4 * i + 1, b"", false), data(4 * i + 1, b"a", true)].concat()).unwrap();
        let _ = peer.server.begin_head(&mut Vec::new());
        peer.server.close(answered);
        assert!(matches!(peer.ask(&reset(4 * i + 3)), Ok(Event::Closed(_))));
    }
}

#[test]
fn a_head_without_end_ends_the_connection() {
    let begin = frame(kind::HEADERS, 0, 1, &block(&[]));
    let mut peer = Peer::new();
    peer.ask(&begin).unwrap();
    let empty = frame(kind::CONTINUATION, 0, 1, &[]);
    assert_eq!(allowed(&mut peer, |_| empty.clone()), CONTINUATIONS_MAX as u32);
    let mut peer = Peer::new();
    peer.ask(&begin).unwrap();
    let long = frame(kind::CONTINUATION, 0, 1, &[0; 10_000]);
    assert_eq!(allowed(&mut peer, |_| long.clone()), 1);
}
