//! A PostgreSQL server, with a proxy between it and the service.

use std::time::Duration;

use crate::backend::Backend;
use hotrow_testkit::harness::Config;
use hotrow_testkit::postgres::{ROLE, Server};
use hotrow_testkit::proxy::{BOTH, CLASSES, Class, Direction, FEED, Proxy};

/// Settings under which only [`Postgres::writer_url`]'s commits can be hidden.
pub(crate) const SETTINGS: [(&str, &str); 1] = [("synchronous_commit", "local")];
/// The superuser whose commits wait for the standby, if one is named.
const WRITER: &str = "writer";
/// Setting that names a standby; the one that is named does not exist.
const STANDBY: &str = "synchronous_standby_names";

/// SQL that makes a position for a writer, as in docs/postgres.md.
const POSITION: &str = "SELECT lpad(to_hex(system_identifier
        # ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint
        # (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint), 16, '0')
    || '-' || (pg_current_wal_insert_lsn() - '0/0'::pg_lsn) FROM pg_control_system()";

/// A server with its proxy.
pub(crate) struct Postgres {
    /// First field, so that it is dropped before the server.
    pub(crate) proxy: Proxy,
    pub(crate) server: Server,
}

impl Postgres {
    /// Puts a proxy before a share of the program's server: for tests that do not stop it, hide its
    /// commits or look at its other sessions.
    pub(crate) fn shared() -> Self {
        let server = Server::any();
        server.make_owner_role();
        Self::over(server)
    }

    /// Puts a proxy before a server.
    pub(crate) fn over(server: Server) -> Self {
        Self { proxy: Proxy::start(server.port()), server }
    }

    /// Like [`Self::over`], for a server with [`SETTINGS`], whose commits can be hidden.
    pub(crate) fn with_writer(server: Server) -> Self {
        server.batch(&format!(
            "CREATE ROLE {WRITER} SUPERUSER LOGIN; \
             ALTER ROLE {WRITER} SET synchronous_commit = 'on'"
        ));
        Self::over(server)
    }

    /// Returns the URL of a writer whose commits [`Backend::hide_commits`] applies to; it bypasses
    /// the proxy.
    pub(crate) fn writer_url(&self) -> String {
        self.server.url_for(WRITER, "postgres")
    }

    /// Returns the log's end as a position, as a writer makes it after its COMMIT.
    #[track_caller]
    pub(crate) fn position(&self) -> String {
        self.server.query(POSITION)
    }
}

impl Backend for Postgres {
    const FEED_RESUMES: bool = false;

    fn start() -> Self {
        let server = Server::start(&SETTINGS);
        server.make_owner_role();
        server.assert_role_is_ordinary();
        Self::with_writer(server)
    }

    fn config(&self) -> Config {
        Config::over(&self.server.url_through(self.proxy.port(), ROLE))
    }

    fn delay_reads(&self, delay: Duration) {
        self.proxy.delay(&[Class::Readers], &BOTH, delay);
    }

    fn hold_reads(&self) {
        self.proxy.hold(&[Class::Readers], &[Direction::ToService]);
    }

    fn holds_a_read(&self) -> bool {
        self.proxy.waiting(Class::Readers, Direction::ToService) > 0
    }

    fn delay_feed(&self, delay: Duration) {
        self.proxy.delay(&[Class::Replication], &[Direction::ToService], delay);
    }

    fn hold_feed(&self) {
        self.proxy.hold(&[Class::Replication], &[Direction::ToService]);
    }

    fn refuse_feed(&self) {
        self.proxy.refuse(&FEED, true);
        self.proxy.cut(&FEED);
    }

    fn cut(&self) {
        self.proxy.cut(&CLASSES);
    }

    fn clear_faults(&self) {
        self.proxy.clear_faults();
    }

    fn hide_commits(&self) {
        self.server.set(&[(STANDBY, "no_such_standby")]);
    }

    fn show_commits(&self) {
        self.server.set(&[(STANDBY, "")]);
    }

    fn kill(&mut self) {
        self.server.kill9();
    }

    fn restart(&mut self) {
        self.server.restart();
    }

    fn pause(&self) {
        self.server.pause();
    }

    fn resume(&self) {
        self.server.resume();
    }
}
