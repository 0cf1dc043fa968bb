//! Contract through the change hub: relays find their place in the binary log by what the stream
//! has.

use crate::backend::Backend as _;
use crate::backend::maria::Maria;
use crate::contract::disturbances::Disturbance;
use crate::contract::hub::{BehindHub, Hubbed, of_relays};
use crate::contract::mixed;
use hotrow_testkit::harness::{Config, SOON, await_until};
use hotrow_testkit::mysql::Stop;
use hotrow_testkit::proxy::CLASSES;

#[test]
fn contract_holds_through_the_hub() {
    mixed::contract_holds_under_every_disturbance::<Hubbed<Maria>>();
}

#[ignore = "long: 1 million reads, 100 thousand changes, each disturbance ten times"]
#[test]
fn contract_holds_in_a_long_run_through_the_hub() {
    mixed::contract_holds_in_a_long_run::<Hubbed<Maria>>();
}

impl BehindHub for Maria {
    const HUB_NAME: &str = "mariadb-hub";

    fn relay_config(config: Config) -> Config {
        config
    }

    fn of_short_form() -> Vec<Disturbance<Hubbed<Self>>> {
        let mut all = of_relays();
        all.extend(Self::of_place());
        all
    }

    fn of_place() -> Vec<Disturbance<Hubbed<Self>>> {
        vec![
            Disturbance::calmed("stream killed", false, |run, _, _| {
                run.database.primary.kill_streams();
            }),
            Disturbance::calmed("stream cut", false, |run, _, _| {
                run.database.primary.feed.cut(&CLASSES);
            }),
            Disturbance::calmed("log purged", false, |run, _, _| {
                let maria = &run.database.primary;
                let file = maria.begin_log_file();
                // Refused while a stream reads an older file.
                let sql = format!("PURGE BINARY LOGS TO '{file}'");
                _ = maria.server.try_query(&sql);
            }),
            Disturbance::calmed("log purged without a stream", false, |run, _, _| {
                let maria = &run.database.primary;
                maria.refuse_feed();
                let file = maria.begin_log_file();
                let sql = format!("PURGE BINARY LOGS TO '{file}'");
                await_until("the log to be purged", SOON, || {
                    maria.kill_streams();
                    _ = maria.server.try_query(&sql);
                    maria.server.query("SHOW BINARY LOGS").lines().count() == 1
                });
            }),
            Disturbance {
                name: "server restarted",
                ends_the_feed: true,
                begin: |run, _, _| run.database.primary.server.stop(Stop::Fast),
                end: |run, _| run.restart(),
            },
        ]
    }
}
