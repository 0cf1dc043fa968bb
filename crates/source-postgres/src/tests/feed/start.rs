use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::time::{Duration, Instant};

use super::*;
use crate::tests::harness::refusal;
use crate::tests::server::Stop;
use hotrow_source::Change;
use hotrow_types::key::Key;

/// Waits until a query returns this.
#[track_caller]
fn until(server: &Server, sql: &str, wanted: &str) {
    let end = Instant::now() + crate::tests::recorder::DEADLINE;
    while server.query(sql) != wanted {
        assert!(Instant::now() < end, "{sql} never returned {wanted}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Releases the sessions that wait for a standby, also if the test fails: its threads wait for
/// them.
struct Release<'a>(&'a Server);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        _ = self.0.try_query(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
        );
    }
}

const IN_SYNC_REP: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

#[test]
fn all_that_is_missing_is_reported_in_one_message() {
    let server = Server::start(&[("wal_level", "replica"), ("max_replication_slots", "1")]);
    server.batch(
        "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE nokey (id int); CREATE ROLE weak LOGIN;
         GRANT SELECT ON a, nokey TO weak; SELECT pg_create_physical_replication_slot('taken')",
    );
    let message = refusal(config(server.url_for("weak", "postgres"), &["a(id)", "nokey(id)"]));
    for part in [
        "`wal_level` is `replica`",
        "ALTER SYSTEM SET wal_level = 'logical'",
        "all 1 replication slots",
        "REPLICATION",
        "nokey",
        "CREATE PUBLICATION \"hotrow\"",
    ] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
    assert_eq!(server.query("SELECT count(*) FROM pg_publication"), "0", "nothing is left behind");
}

#[test]
fn too_few_wal_senders_are_reported() {
    let server = Server::start(&[("max_wal_senders", "0")]);
    server.batch("CREATE TABLE a (id int PRIMARY KEY)");
    let message = refusal(config(server.url(), &["a(id)"]));
    assert!(message.contains("raise `max_wal_senders`"), "{message}");
    assert_eq!(server.query("SELECT count(*) FROM pg_publication"), "0");
}

/// Ends the open transaction when dropped, also if the test fails.
struct OpenTransaction<'a>(&'a Server);

impl Drop for OpenTransaction<'_> {
    fn drop(&mut self) {
        let all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE application_name = 'slowpoke'";
        _ = self.0.try_query(all);
    }
}

#[test]
fn a_running_transaction_delays_the_start_and_is_named() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE u (id int)");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let sql = "SET application_name = 'slowpoke'; BEGIN; INSERT INTO u VALUES (1); \
                       SELECT pg_sleep(600); COMMIT";
            // The statement is cancelled.
            _ = server.try_query(sql);
        });
        let slowpoke = OpenTransaction(&server);
        until(&server, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1");
        let feed = Feed::launch(config(server.url(), &["a(id)"]), |_| {});
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender' \
                     AND wait_event_type = 'Lock'";
        until(&server, waits, "1");
        assert_eq!(feed.sink.since(0), [], "nothing starts before it ends");
        let blockers = crate::tests::recorder::blockers(&server, None);
        assert!(
            blockers.len() == 1
                && blockers[0].contains("slowpoke")
                && !blockers[0].contains("INSERT"),
            "{blockers:?}"
        );
        drop(slowpoke);
        feed.settle();
    });
}

/// A commit that lies before the slot's first position without being visible yet is never
/// delivered: a reader could cache the state before it for good. The slot waits for the
/// transactions that run when its creation begins, and for those that run when these have ended,
/// but not for one that begins during the second wait.
#[test]
fn the_start_waits_until_all_before_it_is_visible() {
    let settings = [
        ("synchronous_standby_names", "absent"),
        ("synchronous_commit", "local"),
        ("max_prepared_transactions", "2"),
    ];
    let server = Server::start(&settings);
    server.batch(
        "CREATE TABLE a (id int PRIMARY KEY, n int); INSERT INTO a VALUES (1, 0); \
         CREATE TABLE u (id int)",
    );
    let runs = |name: &str| {
        server.batch(&format!("BEGIN; INSERT INTO u VALUES (1); PREPARE TRANSACTION '{name}'"))
    };
    let await_log = |what: &str| {
        let end = Instant::now() + crate::tests::recorder::DEADLINE;
        while !server.log().contains(what) {
            assert!(Instant::now() < end, "{what} was never logged: {}", server.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    runs("first");
    let feed = Feed::launch(config(server.url(), &["a(id)"]), |_| {});
    await_log("found initial starting point");
    let blockers = crate::tests::recorder::blockers(&server, None);
    assert!(
        blockers.len() == 1 && blockers[0].contains("prepared transaction 'first'"),
        "{blockers:?}"
    );
    runs("second");
    server.batch("COMMIT PREPARED 'first'");
    await_log("found initial consistent point");
    std::thread::scope(|scope| {
        let _release = Release(&server);
        // It is in the log and waits for a standby that does not exist.
        scope.spawn(|| {
            server.try_query(
                "SET application_name = 'racer'; SET synchronous_commit = on; UPDATE a SET n = 1",
            )
        });
        until(&server, IN_SYNC_REP, "1");
        server.batch("COMMIT PREPARED 'second'");
        await_log("logical decoding found consistent point");
        until(
            &server,
            "SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn IS NOT NULL",
            "1",
        );
        // Each of these takes longer than a poll of the fence.
        for _ in 0..20 {
            assert_eq!(server.query("SELECT n FROM a"), "0", "it is not visible");
            assert_eq!(feed.sink.since(0), [], "nothing starts before it is visible");
        }
        let blockers = crate::tests::recorder::blockers(&server, None);
        assert!(
            blockers.len() == 1 && blockers[0].contains("racer") && blockers[0].contains("SyncRep"),
            "{blockers:?}"
        );
        server.batch(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
        );
        feed.settle();
        assert_eq!(server.query("SELECT n FROM a"), "1");
        let changes =
            feed.sink.since(0).into_iter().filter(|e| matches!(e, Event::Change(_))).count();
        assert_eq!(changes, 0, "it was not delivered, which is why the start had to wait");
    });
}

/// Race B: the feed delivers a change that readers cannot see yet, with a mark that their snapshots
/// do not contain.
#[test]
fn a_change_that_is_delivered_before_it_is_visible_carries_its_mark() {
    let server =
        Server::start(&[("synchronous_standby_names", "absent"), ("synchronous_commit", "local")]);
    server.batch("CREATE TABLE a (id int PRIMARY KEY, n int); INSERT INTO a VALUES (1, 0)");
    let feed = Feed::start(&server, &["a(id)"]);
    std::thread::scope(|scope| {
        let _release = Release(&server);
        scope.spawn(|| server.try_query("SET synchronous_commit = on; UPDATE a SET n = 1"));
        let mark = feed.sink.wait("the change", |events| {
            events.iter().find_map(|e| if let Event::Change(c) = e { Some(c.mark) } else { None })
        });
        let ChangeId::Transaction { .. } = mark else { panic!("{mark:?}") };
        until(&server, IN_SYNC_REP, "1");
        assert_eq!(server.query("SELECT n FROM a"), "0");
        // Later probes pass, and their snapshots do not contain it.
        feed.settle();
        assert!(!feed.sink.visible().contains(&mark));
        assert!(
            !feed.version_of_a_read(0, 1).contains(&mark),
            "the fence of such a read rejects it"
        );
        server.batch(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
        );
        until(&server, "SELECT n FROM a", "1");
        feed.settle();
        feed.settle();
        assert!(feed.sink.visible().contains(&mark));
        assert!(feed.version_of_a_read(0, 1).contains(&mark));
    });
}

/// Transaction numbers past 2^32, and the wrap of their lower half during a session.
#[test]
fn transactions_are_widened_across_the_wrap() {
    for (epoch, next) in [("1", "100000"), ("7", "4294967250")] {
        let mut server = Server::start(&[]);
        server.batch("CREATE TABLE a (id int PRIMARY KEY); VACUUM FREEZE");
        count_on_from(&mut server, epoch, next);
        let feed = Feed::start(&server, &["a(id)"]);
        let from = feed.sink.len();
        let insert =
            |id: u32| format!("INSERT INTO a VALUES ({id}) RETURNING pg_current_xact_id();\n");
        let xids = server.query(&(0..100).map(insert).collect::<String>());
        feed.settle();
        let change = |(id, xid): (i64, &str)| (feed.int(0, id), xid.parse().unwrap());
        let wanted: Vec<(Key, u64)> = (0..).zip(xids.lines()).map(change).collect();
        assert_eq!(wanted.len(), 100);
        let events = feed.sink.since(from);
        let delivered = events.iter().map(|event| match event {
            Event::Change(Change { key, mark: ChangeId::Transaction { xid, .. } }) => {
                (key.clone(), *xid)
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(delivered.collect::<Vec<_>>(), wanted);
        let past_wrap = xids
            .lines()
            .filter(|xid| xid.parse::<u64>().unwrap() >> 32 == epoch.parse::<u64>().unwrap() + 1);
        assert_eq!(past_wrap.count() > 0, epoch == "7", "{xids}");
    }
}

/// Sets the number of the server's next transaction. All existing rows must be frozen.
fn count_on_from(server: &mut Server, epoch: &str, next: &str) {
    const SEGMENT_TRANSACTIONS: u64 = 1 << 20;
    let postmaster = server.processes()[0];
    let bin = std::fs::read_link(format!("/proc/{postmaster}/exe")).unwrap();
    let owner = std::fs::metadata(server.data()).unwrap();
    server.stop(Stop::Fast);
    // The status of transactions is in files of 2^20 each, and that of the new number does not
    // exist.
    let segment = next.parse::<u64>().unwrap() / SEGMENT_TRANSACTIONS;
    server.write_file(&format!("pg_xact/{segment:04X}"), &vec![0; 1 << 18]);
    let mut reset = std::process::Command::new(bin.with_file_name("pg_resetwal"));
    reset.arg("-D").arg(server.data()).args(["-e", epoch, "-x", next]).current_dir("/");
    if owner.uid() != rustix::process::getuid().as_raw() {
        reset.uid(owner.uid()).gid(owner.gid());
    }
    let output = reset.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    server.restart();
}
