//! Ways to track: opting in and out, broadcasts, invalidations on another connection, and
//! transactions. With the errors of each.

use std::io::Write;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use crate::common::events::followed;
use crate::common::redis::{RedisClient, Reply, array, with_redis};
use crate::common::service::config;
use crate::common::shelf::{
    all_invalidated, assert_quiet, invalidated, record, start_lasting, tracking,
};
use crate::common::{DEADLINE, wait_until};

fn status(text: &str) -> Reply {
    Reply::Status(text.to_owned())
}

#[test]
fn a_client_may_opt_in_and_out() {
    let (server, _shelf) = start_lasting(&with_redis(config()));
    let mut client = tracking(&server, "OPTIN NOLOOP");
    client.ask("GET products:1");
    assert_eq!(client.ask("CLIENT CACHING YES"), Reply::ok());
    client.ask("GET products:2");
    client.ask("GET products:3");
    server.commit(7, 200, &[1, 2, 3]);
    assert_eq!(client.reply(), invalidated(&["products:2"]));
    let mut client = tracking(&server, "OPTOUT");
    client.ask("GET products:1");
    assert_eq!(client.ask("CLIENT CACHING NO"), Reply::ok());
    client.ask("GET products:2");
    server.commit(8, 300, &[1, 2]);
    assert_eq!(client.reply(), invalidated(&["products:1"]));
    assert_eq!(client.ask("CLIENT TRACKING OFF"), Reply::ok());
    client.ask("GET products:1");
    server.commit(9, 400, &[1]);
    assert_quiet(&mut client);
}

#[test]
fn a_connection_says_how_it_tracks() {
    let (server, _shelf) = start_lasting(&with_redis(config()));
    let mut client = RedisClient::connect(server.redis);
    client.ask("HELLO 3");
    let info = |client: &mut RedisClient| {
        let Reply::Map(map) = client.ask("CLIENT TRACKINGINFO") else { panic!("no map") };
        let [_, Reply::Array(flags), _, Reply::Integer(redirect), _, Reply::Array(prefixes)] =
            &map[..]
        else {
            panic!("{map:?}")
        };
        let flags: Vec<String> = flags.iter().map(|flag| format!("{flag:?}")).collect();
        (flags.join(" "), *redirect, prefixes.len())
    };
    assert_eq!(info(&mut client), ("Text(\"off\")".to_owned(), -1, 0));
    assert_eq!(client.ask("CLIENT GETREDIR"), Reply::Integer(-1));
    client.ask("CLIENT TRACKING on OPTIN");
    client.ask("CLIENT CACHING YES");
    let expected = r#"Text("on") Text("optin") Text("caching-yes")"#;
    assert_eq!(info(&mut client), (expected.to_owned(), 0, 0));
    assert_eq!(client.ask("CLIENT GETREDIR"), Reply::Integer(0));
}

#[test]
fn errors_have_the_texts_of_redis() {
    let (server, _shelf) = start_lasting(&with_redis(followed()));
    let mut client = RedisClient::connect(server.redis);
    let needs = "ERR CLIENT TRACKING ON needs HELLO 3, or REDIRECT to a connection that has \
        subscribed to __redis__:invalidate";
    assert_eq!(client.ask("CLIENT TRACKING ON").error(), needs);
    client.ask("HELLO 3");
    for (command, error) in [
        ("CLIENT TRACKING MAYBE", "ERR syntax error"),
        ("CLIENT TRACKING ON ALWAYS", "ERR syntax error"),
        ("CLIENT TRACKING ON REDIRECT", "ERR syntax error"),
        (
            "CLIENT TRACKING ON REDIRECT 999999",
            "ERR The client ID you want redirect to does not exist",
        ),
        (
            "CLIENT TRACKING ON REDIRECT 1 REDIRECT 2",
            "ERR A client can only redirect to a single other client",
        ),
        (
            "CLIENT TRACKING ON PREFIX products:",
            "ERR PREFIX option requires BCAST mode to be enabled",
        ),
        ("CLIENT TRACKING ON BCAST OPTIN", "ERR OPTIN and OPTOUT are not compatible with BCAST"),
        (
            "CLIENT TRACKING ON OPTIN OPTOUT",
            "ERR You can't specify both OPTIN mode and OPTOUT mode",
        ),
        (
            "CLIENT TRACKING ON BCAST PREFIX products: PREFIX products:1",
            "ERR Prefix 'products:' overlaps with another provided prefix 'products:1'. Prefixes \
             for a single client must not overlap.",
        ),
        ("CLIENT TRACKING ON BCAST PREFIX x", "ERR no key of this server begins with 'x'"),
        (
            "CLIENT CACHING YES",
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN \
             or OPTOUT mode enabled",
        ),
        (
            "SUBSCRIBE news",
            "ERR the only channel is __redis__:invalidate: this server publishes \
            nothing but invalidations of CLIENT TRACKING",
        ),
        ("EXEC", "ERR EXEC without MULTI"),
        ("DISCARD", "ERR DISCARD without MULTI"),
    ] {
        assert_eq!(client.ask(command).error(), error, "{command}");
    }
    let prices = client.ask("CLIENT TRACKING ON BCAST");
    assert!(prices.error().starts_with("ERR BCAST needs collections.prices.changes"), "{prices:?}");
    client.ask("CLIENT TRACKING ON OPTIN");
    for (command, error) in [
        (
            "CLIENT TRACKING ON OPTOUT",
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, \
             and then re-enabling it with a different mode.",
        ),
        (
            "CLIENT TRACKING ON BCAST",
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and \
             then re-enabling it with a different mode.",
        ),
        (
            "CLIENT CACHING NO",
            "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        ),
        ("CLIENT CACHING PERHAPS", "ERR syntax error"),
        (
            "HELLO 2",
            "ERR HELLO 2 is not possible while the connection tracks without REDIRECT; send \
             CLIENT TRACKING OFF first",
        ),
    ] {
        assert_eq!(client.ask(command).error(), error, "{command}");
    }
}

#[test]
fn a_broadcasting_client_gets_all_keys_with_its_prefix() {
    let (server, shelf) = start_lasting(&with_redis(followed()));
    let mut client = tracking(&server, "BCAST PREFIX products:1 PREFIX products:2");
    let mut all = tracking(&server, "BCAST PREFIX products:");
    server.commit(7, 200, &[1, 3, 12, 2]);
    assert_eq!(client.reply(), invalidated(&["products:1", "products:12", "products:2"]));
    let four = ["products:1", "products:3", "products:12", "products:2"];
    assert_eq!(all.reply(), invalidated(&four));
    // Without a read in between.
    server.commit(8, 300, &[1]);
    assert_eq!(client.reply(), invalidated(&["products:1"]));
    assert_eq!(all.reply(), invalidated(&["products:1"]));
    // A reply that does not see a change.
    shelf.hide(&[9]);
    server.deliver(9, 400, &[1]);
    assert_eq!(client.ask("GET products:1"), Reply::text(&record(1, 0)));
    assert_eq!(client.reply(), invalidated(&["products:1"]));
    shelf.hide(&[]);
    server.advance(500, Some(&[]));
    assert_eq!(client.reply(), invalidated(&["products:1"]));
    // A key under way.
    shelf.shut(true);
    let reads = shelf.reads();
    client.send(array("GET products:1"));
    wait_until(|| shelf.reads() > reads);
    assert_eq!(all.reply(), invalidated(&["products:1"]), "of transaction 9");
    server.commit(10, 600, &[1]);
    // The worker has the change before the reply: later it would be a second invalidation.
    assert_eq!(all.reply(), invalidated(&["products:1"]));
    shelf.shut(false);
    assert!(matches!(client.reply(), Reply::Text(_)));
    assert_eq!(client.reply(), invalidated(&["products:1"]));
    server.lose();
    assert_eq!(client.reply(), all_invalidated());
}

#[test]
fn invalidations_can_go_to_another_connection() {
    let (server, _shelf) = start_lasting(&with_redis(config()));
    let mut target = RedisClient::connect(server.redis);
    let Reply::Integer(id) = target.ask("CLIENT ID") else { panic!("no number") };
    let subscribed = |count| {
        Reply::Array(vec![
            Reply::text("subscribe"),
            Reply::text("__redis__:invalidate"),
            Reply::Integer(count),
        ])
    };
    assert_eq!(target.ask("SUBSCRIBE __redis__:invalidate"), subscribed(1));
    let refused = target.ask("GET products:1");
    assert_eq!(
        refused.error(),
        "ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
         are allowed in this context"
    );
    let pong = Reply::Array(vec![Reply::text("pong"), Reply::text("")]);
    assert_eq!(target.ask("PING"), pong);
    let mut old = RedisClient::connect(server.redis);
    assert_eq!(old.ask(&format!("CLIENT TRACKING ON REDIRECT {id}")), Reply::ok());
    let mut new = tracking(&server, &format!("REDIRECT {id}"));
    assert_eq!(new.ask("CLIENT GETREDIR"), Reply::Integer(id));
    old.ask("GET products:1");
    new.ask("GET products:2");
    server.commit(7, 200, &[1]);
    assert_eq!(target.reply(), message(Reply::Array(vec![Reply::text("products:1")])));
    server.commit(8, 300, &[2]);
    assert_eq!(target.reply(), message(Reply::Array(vec![Reply::text("products:2")])));
    new.ask("GET products:2");
    server.lose();
    assert_eq!(target.reply(), message(Reply::Null));
    server.begin(400);
    drop(target);
    wait_until(|| {
        let gone = new.ask(&format!("CLIENT TRACKING ON REDIRECT {id}"));
        gone.error() == "ERR The client ID you want redirect to does not exist"
    });
    new.ask("GET products:2");
    server.commit(9, 500, &[2]);
    let broken = vec![Reply::text("tracking-redir-broken"), Reply::Integer(id)];
    assert_eq!(new.reply(), Reply::Push(broken));
    let Reply::Map(info) = new.ask("CLIENT TRACKINGINFO") else { panic!("no map") };
    assert!(format!("{info:?}").contains("broken_redirect"), "{info:?}");
}

fn message(keys: Reply) -> Reply {
    Reply::Array(vec![Reply::text("message"), Reply::text("__redis__:invalidate"), keys])
}

/// Otherwise the copies of its client would last for ever, and nothing would say so.
#[test]
fn the_end_of_a_session_that_redirects_ends_all_copies() {
    let mut config = with_redis(config());
    config.limits.idle_timeout = Duration::from_secs(2);
    config.limits.write_timeout = Duration::from_millis(300);
    config.limits.header_timeout = Duration::from_millis(300);
    let (server, _shelf) = start_lasting(&config);
    let mut target = RedisClient::connect(server.redis);
    let Reply::Integer(id) = target.ask("CLIENT ID") else { panic!("no number") };
    target.ask("SUBSCRIBE __redis__:invalidate");
    let tracked = || {
        let mut data = RedisClient::connect(server.redis);
        assert_eq!(data.ask(&format!("CLIENT TRACKING ON REDIRECT {id}")), Reply::ok());
        data.ask("GET products:1");
        data
    };
    let mut ends_with = |how: &str, mut end: Box<dyn FnMut(&mut RedisClient)>| {
        let mut data = tracked();
        end(&mut data);
        // It must not be idle itself.
        let pong = Reply::Array(vec![Reply::text("pong"), Reply::text("")]);
        let begun = Instant::now();
        while begun.elapsed() < DEADLINE {
            match target.ask("PING") {
                reply if reply == pong => std::thread::sleep(Duration::from_millis(10)),
                reply => {
                    assert_eq!((reply, target.reply()), (message(Reply::Null), pong), "{how}");
                    return;
                }
            }
        }
        panic!("{how}: no null");
    };
    for command in ["RESET", "QUIT", "CLIENT TRACKING OFF"] {
        ends_with(command, Box::new(|data| _ = data.ask(command)));
    }
    ends_with(
        "HELLO 3, and no REDIRECT",
        Box::new(|data| {
            data.ask("HELLO 3");
            assert_eq!(data.ask("CLIENT TRACKING ON"), Reply::ok());
        }),
    );
    ends_with("no end: it was idle", Box::new(|_| {}));
    ends_with("closed", Box::new(|data| data.stream.shutdown(Shutdown::Both).unwrap()));
    ends_with("no command", Box::new(|data| _ = data.send("*1\r\n+x\r\n")));
    ends_with("half of a command", Box::new(|data| _ = data.send("*2\r\n$3\r\nGET\r\n")));
    ends_with(
        "slow",
        Box::new(|data| {
            let many = array("GET products:1").repeat(1_000);
            while data.stream.write_all(&many).is_ok() {}
        }),
    );
}

/// As rueidis reads: the lifetime of a record with it, in a transaction, after opting in.
#[test]
fn a_transaction_is_served_in_one_piece() {
    let (server, shelf) = start_lasting(&with_redis(config()));
    let mut client = tracking(&server, "OPTIN");
    let commands = ["CLIENT CACHING YES", "MULTI", "PTTL products:1", "GET products:1", "EXEC"];
    shelf.shut(true);
    let reads = shelf.reads();
    for command in commands {
        client.send(array(command));
    }
    wait_until(|| shelf.reads() > reads);
    server.commit(7, 200, &[1]);
    shelf.shut(false);
    assert_eq!(client.reply(), Reply::ok());
    assert_eq!(client.reply(), Reply::ok());
    assert_eq!(client.reply(), status("QUEUED"));
    assert_eq!(client.reply(), status("QUEUED"));
    let Reply::Array(replies) = client.reply() else { panic!("no array") };
    assert!(matches!(replies[0], Reply::Integer(ms) if ms > 0), "{replies:?}");
    assert_eq!(replies[1], Reply::text(&record(1, 0)));
    assert_eq!(client.reply(), invalidated(&["products:1"]));
    // The worker may come to that commit only now, and invalidates what it finds once more.
    let mut witness = tracking(&server, "");
    witness.ask("GET products:3");
    server.commit(8, 250, &[3]);
    assert_eq!(witness.reply(), invalidated(&["products:3"]));
    client.send(array("PING"));
    while client.reply() != status("PONG") {}
    for command in commands {
        client.send(array(command));
    }
    let replies: Vec<Reply> = (0..5).map(|_| client.reply()).collect();
    assert!(matches!(&replies[4], Reply::Array(two) if two.len() == 2), "{replies:?}");
    client.ask("GET products:2");
    server.commit(9, 300, &[1, 2]);
    assert_eq!(client.reply(), invalidated(&["products:1"]), "opting in ends with EXEC");
    assert_eq!(client.ask("TTL products:99"), Reply::Integer(-2));
    client.ask("MULTI");
    assert_eq!(client.ask("NOTHING").word(), "ERR");
    assert_eq!(client.ask("GET products:1"), status("QUEUED"));
    let aborted = "EXECABORT Transaction discarded because of previous errors.";
    assert_eq!(client.ask("EXEC").error(), aborted);
    client.ask("MULTI");
    assert_eq!(client.ask("MULTI").error(), "ERR MULTI calls can not be nested");
    assert_eq!(client.ask("EXEC"), Reply::Array(Vec::new()));
    client.ask("MULTI");
    assert_eq!(client.ask("DISCARD"), Reply::ok());
    assert_quiet(&mut client);
}
