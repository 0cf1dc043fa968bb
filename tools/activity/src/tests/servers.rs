//! Looks at real servers: a session holds a row lock, others wait for it.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hotrow_diagnose::database::{DatabaseWaits, SessionWaitKind, WaitTally};
use hotrow_testkit::{mysql, postgres};
use hotrow_trial::observe::DatabaseProbe;
use mysql_async::prelude::Queryable as _;
use tokio::runtime::{Builder, Runtime};

const WAITERS: usize = 5;
/// Generous, for parallel tests on two cores.
const PATIENCE: Duration = Duration::from_secs(60);
/// InnoDB refreshes what it shows of transactions only after 100 ms without a look at it.
const PAUSE: Duration = Duration::from_millis(150);
const TABLE: &str = "CREATE TABLE one (n INTEGER); INSERT INTO one VALUES (0)";
const UPDATE: &str = "UPDATE one SET n = n + 1 WHERE 'a name' <> ''";
const UPDATE_SHOWN: &str = "UPDATE one SET n = n + ? WHERE ? <> ?";

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn await_count(what: &str, wanted: usize, count: impl Fn() -> String) {
    let end = Instant::now() + PATIENCE;
    while count() != wanted.to_string() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {wanted} {what}");
        std::thread::sleep(PAUSE);
    }
}

fn one_look(probe: &mut dyn DatabaseProbe) -> DatabaseWaits {
    let mut tally = WaitTally::default();
    tally.add(probe.look().unwrap());
    tally.means(probe.engine()).unwrap()
}

/// Session of a client of PostgreSQL.
struct PostgresSession(Runtime, tokio_postgres::Client);

impl PostgresSession {
    fn open(url: &str) -> Self {
        let runtime = runtime();
        let client = runtime.block_on(async {
            let (client, driver) =
                tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(driver);
            client
        });
        Self(runtime, client)
    }

    fn run(&self, sql: &str) {
        self.0.block_on(self.1.batch_execute(sql)).unwrap();
    }
}

/// A PostgreSQL server where one session blocks [`WAITERS`] others.
struct LockedPostgres {
    server: postgres::Server,
    holder: PostgresSession,
    waiters: Vec<JoinHandle<()>>,
}

impl LockedPostgres {
    fn start() -> Self {
        let server = postgres::Server::start(&[]);
        server.batch(TABLE);
        let holder = PostgresSession::open(&server.url());
        holder.run(&format!("BEGIN; {UPDATE}"));
        let waiter = |_| {
            let url = server.url();
            std::thread::spawn(move || PostgresSession::open(&url).run(UPDATE))
        };
        let waiters = (0..WAITERS).map(waiter).collect();
        await_count("waiting sessions", WAITERS, || {
            server.query(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND state = \
                 'active'",
            )
        });
        Self { server, holder, waiters }
    }

    fn end(self) {
        self.holder.run("COMMIT");
        self.waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    }
}

#[test]
fn postgresql_names_the_lock_and_its_holder() {
    let locked = LockedPostgres::start();
    let mut probe = crate::connect(&locked.server.url()).unwrap();
    let waits = one_look(probe.as_mut());
    assert_eq!(waits.sessions(SessionWaitKind::Lock), WAITERS as f64, "{waits:?}");
    assert_eq!((waits.active, waits.hidden), (WAITERS as f64, 0.0), "{waits:?}");
    assert_eq!(waits.restriction, None);
    let names: Vec<String> = waits.waits.iter().map(|wait| wait.wait.words()).collect();
    assert!(names.contains(&"Lock (transactionid)".to_owned()), "{names:?}");
    assert!(waits.of(SessionWaitKind::Lock).all(|wait| wait.statement == UPDATE_SHOWN));
    let blocker = waits.blocker.unwrap();
    assert_eq!((blocker.blocked, blocker.sessions), (WAITERS as f64, 1));
    assert_eq!(blocker.doing, "idle in transaction");
    assert_eq!(blocker.statement, format!("BEGIN; {UPDATE_SHOWN}"));
    let holder =
        locked.server.query("SELECT pid FROM pg_stat_activity WHERE state LIKE 'idle in%'");
    assert_eq!(blocker.session, holder);
    locked.end();
}

#[test]
fn postgresql_counts_what_it_does_not_show() {
    let locked = LockedPostgres::start();
    locked.server.batch("CREATE ROLE watcher LOGIN");
    let mut probe = crate::connect(&locked.server.url_for("watcher", "postgres")).unwrap();
    let waits = one_look(probe.as_mut());
    assert_eq!(waits.active, 0.0, "{waits:?}");
    assert!(waits.hidden >= (WAITERS + 1) as f64, "{waits:?}");
    let restriction = waits.restriction.unwrap();
    assert!(restriction.contains("GRANT pg_read_all_stats TO \"watcher\""), "{restriction}");
    locked.server.batch("GRANT pg_read_all_stats TO watcher");
    let waits = one_look(probe.as_mut());
    assert_eq!(waits.sessions(SessionWaitKind::Lock), WAITERS as f64, "{waits:?}");
    assert_eq!((waits.hidden, waits.restriction), (0.0, None));
    assert_eq!(waits.blocker.unwrap().blocked, WAITERS as f64);
    locked.end();
}

#[test]
fn postgresql_is_asked_again_after_a_lost_connection() {
    let server = postgres::Server::start(&[]);
    let mut probe = crate::connect(&server.url()).unwrap();
    server.batch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hotrow'",
    );
    await_count("sessions", 0, || {
        server.query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hotrow'")
    });
    assert!(probe.look().is_err());
    assert!(probe.look().is_ok());
}

#[test]
fn postgresql_refuses_a_wrong_password_without_repeating_it() {
    let server = postgres::Server::start(&[]);
    server.batch("CREATE ROLE watcher LOGIN PASSWORD 'right'");
    server
        .set_hba("host all watcher 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n");
    let at = |user: &str| format!("postgres://{user}@127.0.0.1:{}/postgres", server.port());
    let refused = crate::connect(&at("watcher:s3cret")).err().unwrap();
    assert!(refused.contains("password authentication failed"), "{refused}");
    assert!(!refused.contains("s3cret"), "{refused}");
    assert!(crate::connect(&at("watcher:right")).is_ok());
    let refused = crate::connect(&format!("{}?sslmode=require", at("postgres")));
    assert!(refused.err().unwrap().contains("sslmode can be disable or prefer"));
}

/// A MariaDB server where one session blocks [`WAITERS`] others.
struct LockedMariadb {
    server: mysql::Server,
    holder: (Runtime, mysql_async::Conn),
    waiters: Vec<JoinHandle<()>>,
}

fn mariadb_session(url: &str) -> (Runtime, mysql_async::Conn) {
    let runtime = runtime();
    let opts = mysql_async::Opts::from_url(url).unwrap();
    let opts = mysql_async::OptsBuilder::from_opts(opts).prefer_socket(false);
    let connection = runtime.block_on(mysql_async::Conn::new(opts)).unwrap();
    (runtime, connection)
}

impl LockedMariadb {
    fn start() -> Self {
        // The default time limit of a lock wait could end it on a busy machine.
        let server = mysql::Server::start(&[("innodb-lock-wait-timeout", "600")]);
        server.batch(TABLE);
        let mut holder = mariadb_session(&server.superuser_url());
        for sql in ["START TRANSACTION", UPDATE] {
            holder.0.block_on(holder.1.query_drop(sql)).unwrap();
        }
        let waiter = |_| {
            let url = server.superuser_url();
            std::thread::spawn(move || {
                let (runtime, mut connection) = mariadb_session(&url);
                runtime.block_on(connection.query_drop(UPDATE)).unwrap();
            })
        };
        let waiters = (0..WAITERS).map(waiter).collect();
        await_count("waiting transactions", WAITERS, || {
            server.query(
                "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'",
            )
        });
        Self { server, holder, waiters }
    }

    fn end(mut self) {
        self.holder.0.block_on(self.holder.1.query_drop("COMMIT")).unwrap();
        self.waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    }
}

#[test]
fn mariadb_names_the_lock_and_its_holder() {
    let mut locked = LockedMariadb::start();
    let mut probe = crate::connect(&locked.server.superuser_url()).unwrap();
    let waits = one_look(probe.as_mut());
    assert_eq!(waits.sessions(SessionWaitKind::Lock), WAITERS as f64, "{waits:?}");
    assert_eq!((waits.active, waits.restriction.as_deref()), (WAITERS as f64, None), "{waits:?}");
    assert_eq!(waits.waits[0].wait.words(), "Lock (InnoDB row lock)");
    assert_eq!(waits.waits[0].statement, UPDATE_SHOWN);
    let blocker = waits.blocker.unwrap();
    assert_eq!((blocker.blocked, blocker.doing.as_str()), (WAITERS as f64, "idle in transaction"));
    let (runtime, connection) = &mut locked.holder;
    let holder: Option<u64> =
        runtime.block_on(connection.query_first("SELECT CONNECTION_ID()")).unwrap();
    assert_eq!(Some(blocker.session), holder.map(|id| id.to_string()));
    locked.end();
}

#[test]
fn mariadb_without_the_privilege_says_so() {
    let locked = LockedMariadb::start();
    let mut probe = crate::connect(&locked.server.url()).unwrap();
    let restriction = one_look(probe.as_mut()).restriction.unwrap();
    assert!(restriction.contains("GRANT PROCESS ON *.* TO"), "{restriction}");
    let wrong = locked.server.url_for("root", "s3cret");
    let refused = crate::connect(&wrong).err().unwrap();
    assert!(refused.contains("Access denied") && !refused.contains("s3cret"), "{refused}");
    locked.end();
}
