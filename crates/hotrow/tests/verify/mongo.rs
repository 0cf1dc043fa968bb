//! Over the stand-in for MongoDB (see docs/mongodb.md for what it cannot show).

use std::time::{Duration, Instant};

use crate::checker::{ALL_RULES, Checker, assert_all_rules, assert_self_checked, granting};
use crate::harness::{Config, Server};
use crate::standin::Standin;

#[test]
fn a_sound_service_passes_while_its_deployment_is_disturbed() {
    let mut standin = Standin::start();
    let config = granting(Config::over(&standin.url("shop"))).set("collections.verified.key", "\"_id\"");
    let created = Checker::start(&config, &["--create"]).ended(Duration::ZERO);
    assert_eq!(created.status, Some(0), "{created:?}");
    let server = Server::start(&config);
    let mut checker = Checker::against(&config, &[&server], &["-d", "6s", "--rate", "150", "--keys", "300"]);
    let until = Instant::now() + Duration::from_secs(6);
    for turn in 0.. {
        std::thread::sleep(Duration::from_millis(1200));
        if Instant::now() > until || !checker.runs() {
            break;
        }
        match turn % 2 {
            // Writers too lose their connections, some in the middle of a write.
            0 => standin.cut(None),
            _ => {
                standin.stop(0);
                standin.restart(0);
            }
        }
    }
    let report = checker.ended(Duration::from_secs(6)).assert_kept(100, 30);
    assert_all_rules(&report, &ALL_RULES);
    assert_self_checked(&server);
}
