//! Followers of changes over real connections, with a feed in the test's hand.

use std::time::Duration;

use crate::common::events::{followed, position, start, start_followed};
use crate::common::{Client, limits, wait_until};
use hotrow_config::follow::Follow;
use hotrow_config::transport::Transport;
use hotrow_config::{Config, Limits};
use hotrow_source::{FlushCause, Sink};
use hotrow_testkit::harness::EventStream;
use hotrow_types::key::CollectionId;

const ALL: &str = "/_changes/products";

#[test]
fn a_commit_has_one_id_on_its_last_event() {
    let server = start(&followed());
    server.begin(100);
    let mut all = EventStream::open(server.address, ALL, "");
    let mut two = EventStream::open(server.address, "/_changes/products?ids=2,9", "");
    for stream in [&mut all, &mut two] {
        let begin = stream.next_news();
        assert_eq!((begin.name.as_str(), begin.at()), ("begin", Some(100)));
        assert!(begin.id.is_some());
    }
    server.commit(7, 200, &[1, 2, 3]);
    server.commit(8, 300, &[4]);
    let events: Vec<_> = (0..4).map(|_| all.next_news()).collect();
    let changes: Vec<_> = events.iter().map(|event| event.change()).collect();
    assert_eq!(changes, [("1", 201), ("2", 201), ("3", 201), ("4", 301)]);
    let has_id: Vec<_> = events.iter().map(|event| event.id.is_some()).collect();
    assert_eq!(has_id, [false, false, true, true]);
    let event = two.next_news();
    assert_eq!((event.change(), event.id.is_some()), (("2", 201), true));
    two.heartbeat_at(305);
    server.sink.flush(CollectionId(0), FlushCause::Schema, None);
    let reset = all.next_news();
    assert_eq!((reset.name.as_str(), reset.at()), ("reset", Some(305)));
}

/// Race B: the log has the commit, and readers do not see it.
#[test]
fn a_change_waits_until_it_is_visible_and_later_ones_wait_with_it() {
    let server = start(&followed());
    server.begin(100);
    let mut stream = EventStream::open(server.address, ALL, "");
    stream.next_news();
    server.deliver(7, 200, &[1]);
    server.deliver(5, 300, &[2]);
    server.advance(400, Some(&[7]));
    // Everything before the hidden commit.
    stream.heartbeat_at(200);
    assert!(server.metric("hotrow_followed_changes_hidden_bytes ") > 0);
    server.advance(410, Some(&[]));
    assert_eq!(stream.next_news().change(), ("1", 201));
    assert_eq!(stream.next_news().change(), ("2", 301));
    stream.heartbeat_at(410);
    assert_eq!(server.metric("hotrow_followed_changes_hidden_bytes "), 0);
}

#[test]
fn a_follower_that_returns_gets_what_it_missed_or_a_reset() {
    let server = start(&followed());
    server.begin(100);
    let mut stream = EventStream::open(server.address, ALL, "");
    let begin = stream.next_news().id.unwrap();
    server.commit(7, 200, &[1, 2]);
    assert!(stream.next_news().id.is_none());
    let first = stream.next_news().id.unwrap();
    drop(stream);
    server.commit(8, 300, &[3]);
    let open =
        |id: &str| EventStream::open(server.address, ALL, &format!("Last-Event-ID: {id}\r\n"));
    assert_eq!(open(&begin).next_news().change(), ("1", 201));
    assert_eq!(open(&first).next_news().change(), ("3", 301));
    // An answer's position, in the URL.
    let target = format!("{ALL}?after={}", position(201));
    assert_eq!(EventStream::open(server.address, &target, "").next_news().change(), ("3", 301));
    let older = position(99).to_string();
    for foreign in ["0000000000000001-201-1", &older, "none of ours"] {
        let reset = open(foreign).next_news();
        assert_eq!((reset.name.as_str(), reset.at()), ("reset", Some(305)), "{foreign}");
        assert!(reset.id.is_some());
    }
    // Ahead of this instance: it waits.
    let mut ahead = open(&position(501).to_string());
    server.commit(9, 400, &[4]);
    server.commit(10, 500, &[5]);
    server.commit(11, 600, &[6]);
    assert_eq!(ahead.next_news().change(), ("6", 601));
    let bad = EventStream::request(
        server.address,
        &format!("GET {ALL}?after=7 HTTP/1.1\r\nHost: a\r\n\r\n"),
    );
    assert_eq!(bad.status(), "400");
}

#[test]
fn an_id_that_the_window_no_longer_covers_is_reset() {
    let server = start(&followed());
    server.begin(100);
    let begin = EventStream::open(server.address, ALL, "").next_news().id.unwrap();
    for n in 0..3_000 {
        server.commit(n, 1_000 + 10 * n, &[n as i64]);
    }
    assert!(server.metric("hotrow_followed_changes_window_bytes ") <= 64 << 10);
    let fields = format!("Last-Event-ID: {begin}\r\n");
    let reset = EventStream::open(server.address, ALL, &fields).next_news();
    assert_eq!((reset.name.as_str(), reset.at()), ("reset", Some(1_000 + 29_990 + 5)));
}

#[test]
fn followers_are_reset_at_a_loss_and_at_the_new_beginning() {
    let server = start(&followed());
    let mut early = EventStream::open(server.address, ALL, "");
    let before = early.next_news();
    assert_eq!((before.name.as_str(), before.at(), before.id), ("reset", None, None));
    server.begin(100);
    let begun = early.next_news();
    assert_eq!((begun.name.as_str(), begun.at()), ("reset", Some(100)));
    let id = begun.id.unwrap();
    server.lose();
    assert_eq!(early.next_news().at(), None);
    // Changes that are delivered now have no feed to vouch for them.
    server.deliver(7, 150, &[1]);
    server.begin(100);
    let again = early.next_news();
    assert_eq!((again.name.as_str(), again.at()), ("reset", Some(100)));
    // The same position, from before the loss.
    let fields = format!("Last-Event-ID: {id}\r\n");
    let reset = EventStream::open(server.address, ALL, &fields).next_news();
    assert_eq!(reset.name, "reset");
    let fields = format!("Last-Event-ID: {}\r\n", again.id.unwrap());
    let mut after = EventStream::open(server.address, ALL, &fields);
    after.heartbeat_at(100);
    server.sink.open_gap(CollectionId(0), "the test");
    assert_eq!(after.next_news().at(), None);
    server.sink.close_gap(CollectionId(0));
    server.advance(100, None);
    assert_eq!(after.next_news().at(), Some(100));
    assert!(server.metric("hotrow_follower_resets_total ") >= 6);
}

#[test]
fn heartbeats_stop_while_the_feed_is_behind() {
    let server = start_followed(&followed(), Duration::from_millis(300));
    server.begin(100);
    let mut stream = EventStream::open(server.address, ALL, "");
    stream.next_news();
    stream.heartbeat_at(100);
    // Comments alone, until the feed reports again.
    let reports = std::thread::spawn(move || {
        let mut seen = Vec::new();
        while stream.comments < 3 {
            if let Some(event) = stream.next_or_comment() {
                seen.push(event);
            }
        }
        (stream, seen)
    });
    let (mut stream, seen) = reports.join().unwrap();
    assert!(seen.iter().all(|event| event.name == "heartbeat"), "{seen:?}");
    server.advance(120, None);
    stream.heartbeat_at(120);
}

/// Changes that are released at once are one write, larger than what is copied on its way.
#[test]
fn events_go_on_after_many_at_once() {
    let server = start(&followed());
    server.begin(100);
    let in_pieces = EventStream::open(server.address, ALL, "");
    let until_closed = EventStream::request(server.address, &format!("GET {ALL} HTTP/1.0\r\n\r\n"));
    let mut streams = [in_pieces, until_closed];
    for stream in &mut streams {
        assert_eq!(stream.next_news().name, "begin");
    }
    for round in 1..=3 {
        let of_round = |n: u64| 1_000_000_000 * round + 10 * n;
        let commits = 1..=400;
        commits.clone().for_each(|n| server.deliver(n, of_round(n), &[n as i64]));
        server.advance(of_round(500), Some(&[]));
        for stream in &mut streams {
            for n in commits.clone() {
                assert_eq!(stream.next_news().change(), (&*n.to_string(), of_round(n) + 1));
            }
            stream.heartbeat_at(of_round(500));
        }
    }
}

#[test]
fn what_cannot_be_followed_is_refused_with_the_reason() {
    let follow = Follow { ids: 2, ..followed().follow };
    let transport = Transport { http2: true, ..Transport::default() };
    let server = start(&Config { follow, transport, ..followed() });
    server.begin(100);
    for (line, status, why) in [
        ("GET /_changes/prices", "404", "collections.NAME.changes"),
        ("GET /_changes/other", "404", "no collection of that name"),
        ("GET /_changes", "404", ""),
        ("POST /_changes/products", "405", "GET"),
        ("HEAD /_changes/products", "405", ""),
        ("GET /_changes/products?ids=1,2,3", "400", "follow.ids"),
        ("GET /_changes/products?ids=", "400", ""),
        ("GET /_changes/products?ids=a", "400", "integer"),
    ] {
        let request = format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let mut client = Client::connect(server.address);
        client.send(&request);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut client.0, &mut text).unwrap();
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{line}: {text}");
        assert!(text.contains(why), "{line}: {text}");
    }
}

#[test]
fn followers_are_bounded_in_all_and_per_client() {
    for (follow, status) in [
        (Follow { followers: 2, ..followed().follow }, "503"),
        (Follow { followers_per_client: 2, ..followed().follow }, "429"),
    ] {
        let server = start(&Config { follow, ..followed() });
        server.begin(100);
        let kept: Vec<_> = (0..2).map(|_| EventStream::open(server.address, ALL, "")).collect();
        let request = format!("GET {ALL} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let refused = EventStream::request(server.address, &request);
        assert_eq!(refused.status(), status, "{}", refused.head);
        assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
        assert_eq!(server.metric("hotrow_followers_refused_total "), 1);
        assert_eq!(server.metric("hotrow_followers "), 2);
        drop(kept);
        // A heartbeat finds that they have gone.
        wait_until(|| server.metric("hotrow_followers ") == 0);
        assert_eq!(server.metric("hotrow_followers_ended_total{reason=\"client\"} "), 2);
        EventStream::open(server.address, ALL, "");
    }
}

#[test]
fn a_follower_that_takes_nothing_is_dropped_and_others_are_not() {
    let limits = Limits { write_timeout: Duration::from_millis(500), ..limits() };
    // The others stay within it, however fast the changes come.
    let follow = Follow { window_bytes: 256 << 20, ..followed().follow };
    let server = start(&Config { limits, follow, ..followed() });
    server.begin(100);
    let mut stuck = EventStream::open(server.address, ALL, "");
    stuck.next_news();
    let mut good = EventStream::open(server.address, "/_changes/products?ids=0", "");
    good.next_news();
    let mut n = 0;
    wait_until(|| {
        for _ in 0..20 {
            n += 1;
            let ids: Vec<i64> = (1..500).collect();
            server.commit(n, 1_000 + 10 * n, &ids);
        }
        server.metric("hotrow_followers_ended_total{reason=\"slow\"} ") == 1
    });
    server.commit(n + 1, 1_000 + 10 * (n + 1), &[0]);
    assert_eq!(good.next_news().change(), ("0", 1_001 + 10 * (n + 1)));
}

#[test]
fn a_drain_ends_followers_cleanly() {
    let server = start(&followed());
    server.begin(100);
    let mut stream = EventStream::open(server.address, ALL, "");
    stream.next_news();
    let mut old =
        EventStream::request(server.address, &format!("GET {ALL} HTTP/1.0\r\nHost: a\r\n\r\n"));
    assert!(!old.head.contains("transfer-encoding"), "{}", old.head);
    assert_eq!(old.next_news().name, "begin");
    server.shutdown.leave();
    for stream in [&mut stream, &mut old] {
        let end = stream.next_news();
        assert_eq!((end.name.as_str(), &end.data["reason"]), ("end", &"draining".into()));
        assert_eq!(stream.next_event(), None);
        assert!(stream.has_ended);
    }
    assert_eq!(server.metric("hotrow_followers_ended_total{reason=\"draining\"} "), 2);
}
