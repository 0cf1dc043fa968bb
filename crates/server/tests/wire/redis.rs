//! Records and replies over the Redis protocol, on real connections.

use crate::common::redis::{RedisClient, Reply, array, with_redis};
use crate::common::service::{Running, config};
use crate::common::{Client, wait_until};
use hotrow_config::{Config, Limits};

fn start() -> Running {
    Running::start(&with_redis(config()))
}

#[test]
fn a_record_is_the_body_of_its_answer_over_http() {
    let service = start();
    let over_http = Client::connect(service.address)
        .send("GET /products/1 HTTP/1.1\r\nHost: a\r\n\r\n")
        .answer();
    let mut client = RedisClient::connect(service.redis);
    for version in [2, 3] {
        client.ask(&format!("HELLO {version}"));
        assert_eq!(client.ask("GET products:1"), Reply::text(&over_http.body));
        assert_eq!(client.ask("get products:1"), Reply::text(r#"{"id":1}"#));
        assert_eq!(client.ask("GET prices:1"), Reply::text(r#"{"id":1}"#));
        assert_eq!(client.ask("GET products:2"), Reply::Null);
        assert_eq!(client.ask("EXISTS products:1"), Reply::Integer(1));
        assert_eq!(client.ask("EXISTS products:2"), Reply::Integer(0));
        let several = client.ask("EXISTS products:1 products:2 prices:1 products:1");
        assert_eq!(several, Reply::Integer(3), "a key that is named twice counts twice");
    }
    let null = |client: &mut RedisClient| {
        client.send(array("GET products:2")).send(array("QUIT"));
        client.rest()
    };
    let mut client = RedisClient::connect(service.redis);
    assert_eq!(null(&mut client), "$-1\r\n+OK\r\n");
    let mut client = RedisClient::connect(service.redis);
    client.ask("HELLO 3");
    assert_eq!(null(&mut client), "_\r\n+OK\r\n");
}

#[test]
fn several_records_come_in_the_order_of_their_keys() {
    let service = start();
    let mut client = RedisClient::connect(service.redis);
    let one = Reply::text(r#"{"id":1}"#);
    for _cold_then_warm in 0..2 {
        let reply = client.ask("MGET products:1 prices:2 products:3 prices:1 products:1");
        let expected = [one.clone(), Reply::Null, Reply::Null, one.clone(), one.clone()];
        assert_eq!(reply, Reply::Array(expected.into()));
        assert_eq!(client.ask("MGET products:1"), Reply::Array(vec![one.clone()]));
    }
    let many = |count: usize| format!("MGET{}", " products:1".repeat(count));
    assert!(matches!(client.ask(&many(10)), Reply::Array(items) if items.len() == 10));
    let refused = client.ask(&many(11));
    assert_eq!(refused.error(), "ERR MGET has 11 keys; the limit is 10 (limits.max_batch)");
    let bad = client.ask("MGET products:1 products:x");
    assert!(bad.error().starts_with("ERR bad id: the id is not"), "{bad:?}");
    assert_eq!(client.ask("MGET products:1 nothing:1").word(), "ERR");
    assert_eq!(client.ask("PING"), Reply::Status("PONG".to_owned()), "it goes on");
}

#[test]
fn errors_have_the_texts_of_redis() {
    let service = start();
    let mut client = RedisClient::connect(service.redis);
    for (command, error) in [
        ("SET a b", "ERR unknown command 'SET', with args beginning with: 'a' 'b' "),
        ("GET", "ERR wrong number of arguments for 'get' command"),
        ("GET a b", "ERR wrong number of arguments for 'get' command"),
        ("MGET", "ERR wrong number of arguments for 'mget' command"),
        ("ECHO", "ERR wrong number of arguments for 'echo' command"),
        ("PING a b", "ERR wrong number of arguments for 'ping' command"),
        ("SELECT 1", "ERR DB index is out of range"),
        ("SELECT x", "ERR value is not an integer or out of range"),
        ("HELLO 4", "NOPROTO unsupported protocol version"),
        ("HELLO x", "ERR Protocol version is not an integer or out of range"),
        ("HELLO 3 AUTH a", "ERR Syntax error in HELLO option 'AUTH'"),
        (
            "AUTH a",
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        ),
        ("AUTH a b c", "ERR syntax error"),
        ("AUTH other b", "WRONGPASS invalid username-password pair or user is disabled."),
        ("CLIENT", "ERR wrong number of arguments for 'client' command"),
        ("CLIENT SETNAME", "ERR wrong number of arguments for 'client|setname' command"),
        ("CLIENT KILL a", "ERR unknown subcommand 'KILL'. Try CLIENT HELP."),
        ("CLIENT SETINFO a b", "ERR Unrecognized option 'a'"),
        ("CLIENT NO-EVICT x", "ERR syntax error"),
        ("COMMAND X", "ERR unknown subcommand 'X'. Try COMMAND HELP."),
        ("HOTROW.GET products:1 MAXPOS x", "ERR syntax error; use HOTROW.GET key MINPOS position"),
        (
            "GET products",
            "ERR a key is a collection and an id with a colon between, such as products:7",
        ),
        (
            "GET nothing:1",
            "ERR no such collection 'nothing': the part of a key before its first colon names one",
        ),
        (
            "GET products:01",
            "ERR bad id: the id is not a decimal integer of 64 bits without leading zeros",
        ),
    ] {
        assert_eq!(client.ask(command).error(), error, "{command}");
    }
    let long = client.ask(&format!("GET products:{}", "1".repeat(1025))).error().to_owned();
    assert_eq!(long, "ERR bad id: it has more than 1024 bytes (limits.target_bytes)");
    client.send("*2\r\n$3\r\nGET\r\n$10\r\nproducts:\u{0}\r\n");
    assert_eq!(client.reply().error(), "ERR bad id: the id contains a NUL byte, which no key can");
    client.send(b"*2\r\n$3\r\nGET\r\n$10\r\nproducts:\xff\r\n");
    assert_eq!(
        client.reply().error(),
        "ERR bad id: the id is not valid UTF-8 after \
        percent-decoding"
    );
}

#[test]
fn a_client_is_answered_what_it_asks_when_it_connects() {
    let service = start();
    let mut client = RedisClient::connect(service.redis);
    let Reply::Array(hello) = client.ask("HELLO") else { panic!("RESP2 has no maps") };
    assert_eq!(hello[..2], [Reply::text("server"), Reply::text("redis")]);
    let Reply::Map(hello) = client.ask("HELLO 3 AUTH default any SETNAME me") else { panic!() };
    assert_eq!(hello[4], Reply::text("hotrow"));
    assert_eq!(hello[6..8], [Reply::text("proto"), Reply::Integer(3)]);
    let Reply::Integer(id) = client.ask("CLIENT ID") else { panic!() };
    assert_eq!(hello[8..10], [Reply::text("id"), Reply::Integer(id)]);
    for (command, reply) in [
        ("PING", Reply::Status("PONG".to_owned())),
        ("PING a", Reply::text("a")),
        ("ECHO a", Reply::text("a")),
        ("SELECT 0", Reply::ok()),
        ("CLIENT GETNAME", Reply::text("me")),
        ("CLIENT SETNAME you", Reply::ok()),
        ("CLIENT GETNAME", Reply::text("you")),
        ("CLIENT SETINFO LIB-NAME test", Reply::ok()),
        ("CLIENT SETINFO lib-ver 1.2", Reply::ok()),
        ("CLIENT NO-EVICT on", Reply::ok()),
        ("CLIENT NO-TOUCH OFF", Reply::ok()),
        ("COMMAND COUNT", Reply::Integer(22)),
        ("COMMAND INFO nothing", Reply::Array(vec![Reply::Null])),
    ] {
        assert_eq!(client.ask(command), reply, "{command}");
    }
    let Reply::Text(info) = client.ask("CLIENT INFO") else { panic!() };
    let line = format!("id={id} addr=127.0.0.1 name=you db=0 resp=3 lib-name=test lib-ver=1.2\n");
    assert_eq!(info, line);
    let Reply::Text(info) = client.ask("INFO server") else { panic!() };
    assert!(info.contains("redis_version:") && info.contains("loading:0\r\n"), "{info}");
    let Reply::Array(commands) = client.ask("COMMAND") else { panic!() };
    assert_eq!(commands.len(), 22);
    assert!(matches!(client.ask("COMMAND DOCS"), Reply::Map(docs) if docs.len() == 44));
    assert_eq!(client.ask("RESET"), Reply::Status("RESET".to_owned()));
    assert_eq!(client.ask("CLIENT GETNAME"), Reply::Null);
    assert!(matches!(client.ask("HELLO"), Reply::Array(_)), "the version is the first again");
    let mut other = RedisClient::connect(service.redis);
    assert!(matches!(other.ask("CLIENT ID"), Reply::Integer(other) if other != id));
}

#[test]
fn replies_keep_the_order_of_their_commands() {
    let service = start();
    // Cold and warm keys, errors and commands without records; in one piece, and byte by byte.
    let commands = "GET products:1,PING,GET products:5,GET nope:1,MGET products:1 prices:1,\
        GET prices:9,ECHO last";
    let bytes: Vec<u8> = commands.split(',').flat_map(array).collect();
    let one = || Reply::text(r#"{"id":1}"#);
    for pieces in [bytes.len(), 1, 7] {
        let mut client = RedisClient::connect(service.redis);
        for piece in bytes.chunks(pieces) {
            client.send(piece);
        }
        assert_eq!(client.reply(), one());
        assert_eq!(client.reply(), Reply::Status("PONG".to_owned()));
        assert_eq!(client.reply(), Reply::Null);
        assert_eq!(client.reply().word(), "ERR");
        assert_eq!(client.reply(), Reply::Array(vec![one(), one()]));
        assert_eq!(client.reply(), Reply::Null);
        assert_eq!(client.reply(), Reply::text("last"));
    }
    // More than one turn, and more than one write.
    let mut client = RedisClient::connect(service.redis);
    let many = array("GET products:1").repeat(5_000);
    let mut writer = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || std::io::Write::write_all(&mut writer, &many));
    (0..5_000).for_each(|_| assert_eq!(client.reply(), one()));
    sending.join().unwrap().unwrap();
    let mut client = RedisClient::connect(service.redis);
    client.send("GET products:1\r\n\r\nPING\n").send("QUIT\r\nPING\r\n");
    assert_eq!(client.rest(), "$8\r\n{\"id\":1}\r\n+PONG\r\n+OK\r\n", "lines are commands too");
}

#[test]
fn input_that_is_no_command_ends_the_connection_with_the_reason() {
    let service = start();
    for (bytes, error) in [
        ("*x\r\n", "invalid multibulk length"),
        ("*20000\r\n", "invalid multibulk length"),
        ("*1\r\nPING\r\n", "expected '$', got 'P'"),
        ("*1\r\n$-1\r\n", "invalid bulk length"),
        ("*1\r\n$100000\r\n", "invalid bulk length"),
        ("*1\r\n$4\r\nPINGPING", "invalid bulk terminator"),
        ("GET \"a\r\n", "unbalanced quotes in request"),
    ] {
        let mut client = RedisClient::connect(service.redis);
        client.send(array("PING")).send(bytes);
        let expected = format!("+PONG\r\n-ERR Protocol error: {error}\r\n");
        assert_eq!(client.rest(), expected, "{bytes:?}");
    }
    // A browser's form.
    let mut client = RedisClient::connect(service.redis);
    client.send("POST / HTTP/1.1\r\nHost: a\r\n\r\nGET products:1\r\n");
    assert_eq!(client.rest(), "");
    let page = Client::connect(service.admin)
        .send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .answer()
        .body;
    for line in [
        "hotrow_redis_protocol_errors_total 7",
        "hotrow_redis_commands_total{command=\"ping\",outcome=\"none\"} 7",
        "hotrow_redis_commands_total{command=\"unknown\",outcome=\"error\"} 1",
        "hotrow_redis_connections_accepted_total 8",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
}

#[test]
fn a_command_may_be_large_and_is_bounded() {
    let limits = Limits { max_batch: 8_000, body_bytes: 100_000, ..config().limits };
    let service = Running::start(&with_redis(Config { limits, ..config() }));
    let mut client = RedisClient::connect(service.redis);
    let many = |count: usize| array(&format!("MGET{}", " products:1".repeat(count)));
    let Reply::Array(items) = client.send(many(5_000)).reply() else { panic!() };
    assert!(items.len() == 5_000 && items.iter().all(|item| *item == items[0]));
    client.send(many(6_000));
    assert_eq!(client.rest(), "-ERR Protocol error: too big command\r\n");
    // Commands share the memory of bodies.
    let bytes = hotrow_config::ByteLimits { bodies_total: Some(40_000), ..config().limits.bytes };
    let limits = Limits { max_batch: 8_000, body_bytes: 100_000, bytes, ..config().limits };
    let service = Running::start(&with_redis(Config { limits, ..config() }));
    let mut client = RedisClient::connect(service.redis);
    client.send(&many(5_000)[..80_000]);
    assert!(client.rest().starts_with("-BUSY commands and bodies of other clients"));
    let mut client = RedisClient::connect(service.redis);
    wait_until(|| client.ask("GET products:1") == Reply::text(r#"{"id":1}"#));
}
