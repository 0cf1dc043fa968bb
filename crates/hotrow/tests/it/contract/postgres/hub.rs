//! Contract through the change hub, with a slot that stays.

use crate::backend::postgres::Postgres;
use crate::contract::disturbances::{Disturbance, of_processes};
use crate::contract::hub::{BehindHub, Hubbed, of_nats, of_relays};
use crate::contract::mixed;
use hotrow_testkit::harness::{Config, SOON, await_until};
use hotrow_testkit::proxy::Class;

#[test]
fn contract_holds_through_the_hub() {
    mixed::contract_holds_under_every_disturbance::<Hubbed<Postgres>>();
}

#[ignore = "long: 1 million reads, 100 thousand changes, each disturbance ten times"]
#[test]
fn contract_holds_in_a_long_run_through_the_hub() {
    mixed::contract_holds_in_a_long_run::<Hubbed<Postgres>>();
}

impl BehindHub for Postgres {
    const HUB_NAME: &str = "postgres-hub";

    fn relay_config(config: Config) -> Config {
        config.set("hub.slot", "\"relays\"")
    }

    fn of_short_form() -> Vec<Disturbance<Hubbed<Self>>> {
        let mut all = of_processes();
        all.extend(of_nats());
        all.extend(of_relays());
        all.extend(Self::of_place());
        all
    }

    fn of_place() -> Vec<Disturbance<Hubbed<Self>>> {
        vec![
            Disturbance::calmed("slot's session ended", false, |run, _, _| {
                let sql = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots \
                           WHERE active_pid IS NOT NULL";
                run.database.primary.server.batch(sql);
            }),
            Disturbance::calmed("slot dropped", false, |run, _, _| {
                let sql = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots \
                           WHERE active_pid IS NOT NULL; \
                           SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots";
                let server = &run.database.primary.server;
                await_until("the slot to be dropped", SOON, || server.try_query(sql).is_ok());
            }),
            Disturbance::calmed("stream cut", false, |run, _, _| {
                run.database.primary.proxy.cut(&[Class::Replication]);
            }),
        ]
    }
}
