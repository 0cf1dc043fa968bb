//! Over PostgreSQL, with a proxy between it and the service; the checker writes to the server itself. The short form is part
//! of every test run, the long one of `./test --long`.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::checker::{ALL_RULES, Checker, NAME, assert_all_rules, assert_self_checked, granting};
use crate::harness::{Config, Server};
use crate::proxy::{BOTH, CLASSES, Class, FEED, Proxy, Way};
use crate::server;

/// A server, the way to it, and the service's configuration.
struct Scene {
    // Cut before the server goes.
    proxy: Proxy,
    postgres: server::Server,
    config: Config,
}

impl Scene {
    fn start() -> Self {
        let postgres = server::Server::start(&[]);
        let proxy = Proxy::start(postgres.port());
        let config = granting(Config::over(&proxy.url()));
        let scene = Self { proxy, postgres, config };
        let created = Checker::start(&scene.config, &["--create"]).ended(Duration::ZERO);
        assert_eq!(created.status, Some(0), "{created:?}");
        scene
    }

    /// A checker that writes past the proxy.
    fn check(&self, instances: &[&Server], more: &[&str]) -> Checker {
        let url = self.postgres.url();
        let arguments = [&["--database", url.as_str()], more].concat();
        Checker::against(&self.config, instances, &arguments)
    }
}

fn wait(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

#[test]
fn a_sound_service_passes_while_its_connections_are_cut() {
    let scene = Scene::start();
    let server = Server::start(&scene.config);
    let mut checker = scene.check(&[&server], &["-d", "6s", "--rate", "200"]);
    let until = Instant::now() + Duration::from_secs(6);
    for turn in 0.. {
        wait(700);
        if Instant::now() > until || !checker.runs() {
            break;
        }
        match turn % 3 {
            0 => scene.proxy.cut(&FEED),
            1 => scene.proxy.cut(&[Class::Readers]),
            _ => {
                scene.proxy.delay(&[Class::Replication], &[Way::ToService], Duration::from_millis(1500));
                wait(1000);
                scene.proxy.calm();
            }
        }
    }
    scene.proxy.calm();
    let report = checker.ended(Duration::from_secs(6)).assert_kept(200, 50);
    assert_all_rules(&report, &ALL_RULES);
    assert_self_checked(&server);
    assert!(report["feed_losses"][0].as_u64() > Some(0), "cut connections are losses: {report:#}");
}

/// The service reads a table through a way on which answers are late, so that changes come while reads are under way; with
/// nothing wrong, nothing is found. Without the fixes, `taken_out` shows, much is.
fn late_answers(environment: &[(&str, &str)], duration: &str, more: &[&str]) -> crate::checker::Ended {
    let scene = Scene::start();
    let server = Server::start_with(&scene.config, environment);
    server.await_ready();
    scene.proxy.delay(&[Class::Readers], &[Way::ToService], Duration::from_millis(5));
    let arguments = [&["-d", duration, "--rate", "200", "--keys", "200"], more].concat();
    scene.check(&[&server], &arguments).ended(Duration::from_secs(60))
}

#[test]
fn late_answers_do_no_harm() {
    late_answers(&[], "3s", &[]).assert_kept(100, 20);
}

#[cfg(feature = "sabotage")]
mod taken_out {
    use super::late_answers;

    #[test]
    fn without_leases_and_the_fence_a_violation_is_found_within_a_minute() {
        let ended = late_answers(&[("HOTROW_SABOTAGE", "lease,fence")], "60s", &[]);
        let (rule, story) = ended.assert_broken();
        assert!(["fresh", "monotonic", "session", "own_write", "purged", "age"].contains(&rule.as_str()), "{story}");
    }
}

#[test]
#[ignore = "long: a minute of faults of every kind"]
fn a_sound_service_passes_whatever_breaks_around_it() {
    let mut scene = Scene::start();
    let (one, other) = (Server::start(&scene.config), Server::start(&scene.config));
    let mut checker = scene.check(&[&one, &other], &["-d", "60s", "--rate", "300", "--timeout", "5s"]);
    let until = Instant::now() + Duration::from_secs(58);
    for turn in 0.. {
        wait(1500);
        if Instant::now() > until || !checker.runs() {
            break;
        }
        match turn % 8 {
            0 => scene.proxy.cut(&CLASSES),
            1 => {
                one.stop();
                wait(2500);
                one.signal(Signal::CONT);
            }
            2 => {
                // Writers are cut off in the middle of their commits.
                scene.postgres.kill9();
                wait(500);
                scene.postgres.restart();
            }
            3 => scene.proxy.delay(&[Class::Replication], &[Way::ToService], Duration::from_millis(2500)),
            4 => scene.proxy.hold(&[Class::Readers], &BOTH),
            5 => {
                scene.proxy.refuse(&FEED, true);
                scene.proxy.cut(&FEED);
            }
            6 => {
                scene.postgres.pause();
                wait(2500);
                scene.postgres.resume();
            }
            _ => scene.proxy.hold(&[Class::Replication], &[Way::ToService]),
        }
        wait(2000);
        scene.proxy.calm();
    }
    scene.proxy.calm();
    let report = checker.ended(Duration::from_secs(60)).assert_kept(5_000, 2_000);
    assert_all_rules(&report, &ALL_RULES);
    let count = |path: &str| report.pointer(path).and_then(serde_json::Value::as_u64).unwrap_or(0);
    assert!(count("/feed_losses/0") > 0 && count("/feed_losses/1") > 0, "{report:#}");
    assert!(count("/writes/failed") + count("/writes/unknown") > 0, "the server was killed: {report:#}");
    println!("{NAME}: {report:#}");
}
