//! Clients to which changes are pushed, beside those that only read: near caches ([`copies`]),
//! followers of changes ([`followers`], and [`delivered`]: whether they got every commit) and a
//! cache in front that is purged ([`front`]).

pub(super) mod copies;
mod delivered;
pub(super) mod followers;
pub(super) mod front;

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::contract::engine::Engine;
use crate::contract::faults::is_refused;
use crate::contract::mix::assert_all;
use crate::contract::run::Trial;
use hotrow_testkit::harness::Config;
use hotrow_verify::observation::{Form, Observation};

/// Address of the Redis protocol in the configuration of an instance.
const ADDRESS: &str = "\"127.0.0.1:0\"";

/// Has an instance be followed.
pub(super) fn with_changes(config: Config) -> Config {
    config.set("collections.items.changes", "true").set("follow.heartbeat", "\"100ms\"")
}

/// Has an instance also serve the Redis protocol, and broadcast.
pub(super) fn with_pushes(config: Config) -> Config {
    with_changes(config).set("listen.redis", ADDRESS)
}

/// Returns whether a configuration has the Redis protocol.
pub(super) fn has_redis(config: &Config) -> bool {
    config.text().contains(&format!("redis = {ADDRESS}"))
}

/// Counts of followers that must be above 0.
const FOLLOWERS: [&str; 6] = [
    "followers/changes",
    "followers/heartbeats",
    "followers/returns",
    "followers/copies_read",
    "followers/delivered",
    "rules_applied/followed",
];

/// Others that must be above 0 in a run with faults.
const OTHERS: [&str; 11] = [
    "near_caches/get",
    "near_caches/mget",
    "near_caches/copies_default",
    "near_caches/copies_broadcast",
    "near_caches/invalidations",
    "near_caches/invalidate_alls",
    "rules_applied/copied",
    "front/purges_of_keys",
    "front/purges_of_all",
    "front/refused",
    "front/commits_purged_by_key",
];

/// Checks what was delivered to the clients of a run, and adds its counts to the summary.
pub(super) fn judge<E: Engine>(run: &Trial<E>, summary: &mut Value) {
    summary["near_caches"] = near_caches(run);
    summary["followers"] = followers::judge(run);
    if let Some(front) = &run.front {
        summary["front"] = front.judge(run);
    }
}

/// Checks what followers have got in a run without other clients to which changes are pushed, and
/// adds their counts to the summary.
pub(super) fn judge_followers<E: Engine>(run: &Trial<E>, summary: &mut Value) {
    summary["followers"] = followers::judge(run);
    assert_all(summary, &FOLLOWERS);
}

/// Asserts that the counts of a run with faults are not 0.
pub(super) fn assert_counts(summary: &Value) {
    assert_all(summary, &FOLLOWERS);
    assert_all(summary, &OTHERS);
    if summary["service"]["losses"].as_f64() > Some(0.0) {
        assert_all(summary, &["followers/resets"]);
    }
    if summary["disturbances"].get("table emptied").is_some() {
        assert_all(summary, &["followers/flushes"]);
    }
}

/// Returns the counts of the reads over the Redis protocol.
fn near_caches<E: Engine>(run: &Trial<E>) -> Value {
    let of = |form| run.observations.iter().filter(|read| read.form == form).count();
    let refused = |read: &&Observation| {
        matches!(read.form, Form::RedisGet | Form::RedisMget) && is_refused(read)
    };
    let sum = |name: &str| -> f64 {
        run.servers.iter().map(|server| server.metrics().sum(name, &[])).sum()
    };
    let [copies_default, copies_broadcast] =
        run.board.copies.each_ref().map(|count| count.load(Ordering::Relaxed));
    json!({
        "reads": run.board.redis_reads.load(Ordering::Relaxed),
        "get": of(Form::RedisGet),
        "mget": of(Form::RedisMget),
        "copies_default": copies_default,
        "copies_broadcast": copies_broadcast,
        "refused": run.observations.iter().filter(refused).count(),
        "connections_lost": run.board.connections_lost.load(Ordering::Relaxed),
        "invalidations": sum("hotrow_redis_invalidations_total"),
        "invalidate_alls": sum("hotrow_redis_invalidate_alls_total"),
    })
}
