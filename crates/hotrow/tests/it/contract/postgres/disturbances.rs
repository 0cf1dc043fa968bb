//! Disturbances of PostgreSQL: those of all engines, and those of its streams and tables.

use crate::backend::postgres::Postgres;
use crate::contract::disturbances::{Disturbance, of_connections, of_processes};
use crate::contract::sql::of_tables;
use hotrow_testkit::proxy::{BOTH, Class, Direction, FEED};

/// Returns all disturbances.
pub(super) fn all() -> Vec<Disturbance<Postgres>> {
    let mut all = of_connections();
    all.extend(of_processes());
    all.extend(of_tables());
    let own: Vec<Disturbance<Postgres>> = vec![
        Disturbance::calmed("stream cut", true, |run, _, _| {
            run.database.proxy.cut(&[Class::Replication]);
        }),
        // The feed's queries get no answer while its stream continues.
        Disturbance::calmed("probes held", false, |run, _, _| {
            run.database.proxy.hold(&[Class::FeedSql], &BOTH);
        }),
        // The feed's messages do not reach the server.
        Disturbance::calmed("feed muted", false, |run, _, _| {
            run.database.proxy.hold(&FEED, &[Direction::ToServer]);
        }),
        Disturbance::calmed("readers cut", false, |run, _, _| {
            run.database.proxy.cut(&[Class::Readers]);
        }),
        Disturbance::calmed("stream terminated", true, |run, _, _| {
            // Ends no session if the feed is just connecting.
            let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_replication";
            run.database.server.batch(sql);
        }),
    ];
    all.extend(own);
    all
}
