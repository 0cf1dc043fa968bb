//! Copies of clients that track what they read (`CLIENT TRACKING`), with rows and feed in the
//! test's hand.

use std::time::Duration;

use crate::common::redis::{RedisClient, Reply, array, with_redis};
use crate::common::service::{Running, config};
use crate::common::shelf::{
    Witness, all_invalidated, assert_quiet, invalidated, record, start, start_lasting, tracking,
};
use crate::common::{Client, DEADLINE, limits, wait_until};
use hotrow_config::{Config, Limits};
use hotrow_source::{FlushCause, Sink};
use hotrow_types::key::CollectionId;

const DAY: Duration = Duration::from_hours(24);

pub(crate) fn purge(server: &Running, target: &str) {
    let request =
        format!("POST /purge/{target} HTTP/1.1\r\nHost: 127.0.0.1\r\nHotrow-Admin: 1\r\n\r\n");
    let answer = Client::connect(server.admin).send(&request).answer();
    assert!(answer.body.contains("purged"), "{}", answer.body);
}

#[test]
fn a_client_is_informed_once_of_each_copy_that_has_changed() {
    let (server, shelf) = start_lasting(&with_redis(config()));
    let mut client = tracking(&server, "");
    let mut other = RedisClient::connect(server.redis);
    let mut witness = Witness::new(&server);
    assert_eq!(other.ask("GET products:1"), Reply::text(&record(1, 0)));
    assert_eq!(client.ask("GET products:1"), Reply::text(&record(1, 0)));
    assert_eq!(
        client.ask("MGET products:2 products:99 products:1"),
        Reply::Array(vec![Reply::text(&record(2, 0)), Reply::Null, Reply::text(&record(1, 0))])
    );
    assert_eq!(client.ask("EXISTS products:3"), Reply::Integer(1));
    shelf.set(1, 7);
    server.commit(7, 200, &[1, 5]);
    assert_eq!(client.reply(), invalidated(&["products:1"]));
    server.commit(8, 300, &[1]);
    witness.wait(&server);
    assert_quiet(&mut client);
    assert_eq!(client.ask("GET products:1"), Reply::text(&record(1, 7)));
    server.commit(9, 400, &[99, 3]);
    assert_eq!(client.reply(), invalidated(&["products:99", "products:3"]));
    server.commit(10, 500, &[1]);
    assert_eq!(client.reply(), invalidated(&["products:1"]));
    assert_quiet(&mut client);
    assert_quiet(&mut other);
    wait_until(|| server.metric("hotrow_redis_tracked_keys ") == 1);
    assert!(server.metric("hotrow_redis_tracking_bytes ") > 0);
    assert_eq!(server.metric("hotrow_redis_tracking_clients "), 2);
    assert_eq!(server.metric("hotrow_redis_invalidations_total "), 5);
    drop((client, witness));
    wait_until(|| server.metric("hotrow_redis_tracking_clients ") == 0);
    wait_until(|| server.metric("hotrow_redis_tracking_bytes ") == 0);
}

/// Race B: the log has the commit, and readers do not see it.
#[test]
fn a_change_leaves_when_it_is_visible_and_a_reply_without_it_is_not_kept() {
    let (server, shelf) = start_lasting(&with_redis(config()));
    let mut client = tracking(&server, "");
    let old = Reply::text(&record(1, 0));
    let mut witness = Witness::new(&server);
    assert_eq!(client.ask("GET products:1"), old);
    shelf.hide(&[7]);
    server.deliver(7, 200, &[1]);
    server.advance(300, Some(&[7]));
    // Another change, which is visible.
    assert_eq!(client.ask("GET products:2"), Reply::text(&record(2, 0)));
    server.deliver(8, 310, &[2]);
    server.advance(320, Some(&[7]));
    assert_eq!(client.reply(), invalidated(&["products:2"]));
    assert_quiet(&mut client);
    // Reads do not see it, and their replies must not be kept.
    for _ in 0..3 {
        assert_eq!(client.ask("GET products:1"), old);
        assert_eq!(client.reply(), invalidated(&["products:1"]));
        assert_quiet(&mut client);
    }
    // A read from before the proof, whose reply comes after it.
    shelf.shut(true);
    let reads = shelf.reads();
    client.send(array("GET products:1"));
    wait_until(|| shelf.reads() > reads);
    shelf.hide(&[]);
    shelf.set(1, 7);
    server.advance(400, Some(&[]));
    shelf.shut(false);
    assert_eq!(client.reply(), old);
    assert_eq!(client.reply(), invalidated(&["products:1"]));
    assert_quiet(&mut client);
    witness.wait(&server);
    assert_eq!(client.ask("GET products:1"), Reply::text(&record(1, 7)));
    witness.wait(&server);
    assert_quiet(&mut client);
    wait_until(|| server.metric("hotrow_redis_tracked_keys ") == 1);
}

#[test]
fn a_hidden_commit_does_not_delay_others_and_leaves_itself_in_the_end() {
    let (server, shelf) = start(&with_redis(config()), DAY, Duration::from_millis(400));
    let mut client = tracking(&server, "");
    client.ask("GET products:1");
    client.ask("GET products:2");
    shelf.hide(&[7]);
    server.deliver(7, 200, &[1]);
    server.deliver(8, 300, &[2]);
    server.advance(400, Some(&[7]));
    assert_eq!(client.reply(), invalidated(&["products:2"]));
    let mut pushed = None;
    wait_until(|| {
        server.advance(400, Some(&[7]));
        let pong = client.ask("PING");
        if let Reply::Push(_) = pong {
            pushed = Some(pong);
            client.reply();
        }
        pushed.is_some()
    });
    assert_eq!(pushed, Some(invalidated(&["products:1"])));
}

#[test]
fn what_changes_while_a_command_is_under_way_follows_its_reply() {
    let (server, shelf) = start_lasting(&with_redis(config()));
    let mut client = tracking(&server, "");
    let mut witness = Witness::new(&server);
    client.ask("GET products:5");
    for command in ["GET products:1", "MGET products:1 products:2"] {
        shelf.shut(true);
        let reads = shelf.reads();
        client.send(array(command));
        wait_until(|| shelf.reads() > reads);
        server.commit(7, 200, &[1]);
        // Of another key it comes at once.
        server.commit(8, 300, &[5]);
        assert_eq!(client.reply(), invalidated(&["products:5"]));
        shelf.shut(false);
        assert!(matches!(client.reply(), Reply::Text(_) | Reply::Array(_)));
        assert_eq!(client.reply(), invalidated(&["products:1"]));
        witness.wait(&server);
        assert_quiet(&mut client);
        client.ask("GET products:5");
    }
}

#[test]
fn a_loss_and_a_new_beginning_invalidate_everything() {
    let (server, _shelf) = start_lasting(&with_redis(config()));
    let mut client = tracking(&server, "");
    let mut empty = tracking(&server, "");
    client.ask("GET products:1");
    server.lose();
    assert_eq!(client.reply(), all_invalidated());
    // Nothing that is read now is kept.
    client.ask("GET products:1");
    assert_eq!(client.reply(), invalidated(&["products:1"]));
    server.sink.started(Some(crate::common::events::position(500)));
    client.ask("GET products:2");
    assert_eq!(client.reply(), invalidated(&["products:2"]));
    server.advance(500, None);
    // Until the worker has come to the beginning, it ends every copy.
    let mut witness = tracking(&server, "");
    for mark in 510.. {
        witness.ask("GET products:3");
        server.commit(mark, mark, &[3]);
        if witness.reply() == invalidated(&["products:3"]) {
            break;
        }
    }
    client.ask("GET products:1");
    assert_quiet(&mut client);
    assert_quiet(&mut empty);
    // With copies at the beginning too; a client without any gets nothing.
    let sent = || server.metric("hotrow_redis_invalidate_alls_total{reason=\"feed\"} ");
    let before = sent();
    server.begin(600);
    assert_eq!(client.reply(), all_invalidated());
    assert_eq!(sent(), before + 2, "the client and the witness");
    assert_quiet(&mut empty);
}

#[test]
fn flushes_purges_and_gaps_end_copies() {
    let (server, _shelf) = start_lasting(&with_redis(config()));
    let mut client = tracking(&server, "");
    client.ask("GET products:1");
    server.sink.flush(CollectionId(1), FlushCause::Schema, None);
    Witness::new(&server).wait(&server);
    assert_quiet(&mut client);
    server.sink.flush(CollectionId(0), FlushCause::Schema, None);
    assert_eq!(client.reply(), all_invalidated());
    client.ask("GET products:1");
    purge(&server, "products/1");
    assert_eq!(client.reply(), invalidated(&["products:1"]));
    client.ask("GET products:1");
    purge(&server, "products");
    assert_eq!(client.reply(), all_invalidated());
    client.ask("GET products:1");
    server.sink.open_gap(CollectionId(0), "the test");
    assert_eq!(client.reply(), all_invalidated());
    client.ask("GET products:1");
    assert_eq!(client.reply(), invalidated(&["products:1"]), "nothing is kept in a gap");
    server.sink.close_gap(CollectionId(0));
    client.ask("GET products:1");
    assert_quiet(&mut client);
}

#[test]
fn copies_end_with_their_ttl_and_when_the_feed_is_behind() {
    let (server, _shelf) = start(&with_redis(config()), Duration::from_millis(300), DEADLINE);
    let mut client = tracking(&server, "");
    client.ask("GET products:1");
    assert_eq!(client.reply(), invalidated(&["products:1"]));
    drop(server);
    let (server, _shelf) = start(&with_redis(config()), DAY, Duration::from_millis(300));
    let mut client = tracking(&server, "");
    wait_until(|| {
        server.advance(110, None);
        client.ask("GET products:1");
        client.ask("PING") == Reply::Status("PONG".to_owned())
    });
    assert_eq!(client.reply(), all_invalidated());
    assert!(server.metric("hotrow_redis_invalidate_alls_total{reason=\"stale\"} ") >= 1);
    client.ask("GET products:1");
    assert_eq!(client.reply(), invalidated(&["products:1"]), "the feed vouches for nothing");
    server.advance(120, None);
    client.ask("GET products:1");
    assert_eq!(client.reply(), all_invalidated(), "and is behind again");
}

#[test]
fn every_spelling_of_a_key_is_informed() {
    let (server, _shelf) = start_lasting(&with_redis(config()));
    let mut client = tracking(&server, "");
    let spellings = [
        "prices:0123456789abcdef0123456789abcdef",
        "prices:0123456789ABCDEF0123456789abcdef",
        "prices:01234567-89ab-cdef-0123-456789abcdef",
    ];
    for key in spellings {
        assert_eq!(client.ask(&format!("GET {key}")), Reply::text("{}"));
    }
    purge(&server, "prices/0123456789abcdef0123456789abcdef");
    assert_eq!(client.reply(), invalidated(&spellings));
    assert_quiet(&mut client);
}

#[test]
fn without_room_the_client_with_the_most_keys_gives_up_everything() {
    let mut config = with_redis(config());
    config.transport.redis.iter_mut().for_each(|redis| redis.tracking_bytes = 2_000);
    let (server, _shelf) = start_lasting(&config);
    let (mut large, mut small) = (tracking(&server, ""), tracking(&server, ""));
    for id in 1..=6 {
        large.ask(&format!("GET products:{id}"));
    }
    for id in 1..=3 {
        small.ask(&format!("GET products:{id}"));
    }
    assert_eq!(large.reply(), all_invalidated());
    assert_quiet(&mut small);
    server.commit(7, 200, &[1]);
    assert_eq!(small.reply(), invalidated(&["products:1"]));
    assert_quiet(&mut large);
    assert_eq!(server.metric("hotrow_redis_invalidate_alls_total{reason=\"full\"} "), 1);
}

#[test]
fn a_client_that_takes_nothing_is_closed_and_takes_little_memory() {
    let limits = Limits { write_timeout: Duration::from_millis(500), ..limits() };
    let (server, _shelf) = start_lasting(&with_redis(Config { limits, ..config() }));
    let mut client = tracking(&server, "");
    client.ask("GET products:1");
    let mut writer = client.stream.try_clone().unwrap();
    // Replies that no one takes.
    let flood = std::thread::spawn(move || {
        let gets = array("MGET products:1 products:2 products:3").repeat(1_000);
        while std::io::Write::write_all(&mut writer, &gets).is_ok() {}
    });
    let mut xid = 10;
    wait_until(|| {
        xid += 1;
        server.commit(xid, 100 * xid, &[1, 2, 3]);
        server.metric("hotrow_redis_tracking_slow_total ") == 1
    });
    flood.join().unwrap();
    wait_until(|| server.metric("hotrow_redis_tracking_bytes ") == 0);
}
