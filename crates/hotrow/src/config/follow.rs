//! `[follow]`: bounds on the followers of changes.
//!
//! Reference `configuration`: `[follow]`
//!
//! Bounds on the clients that [follow changes](changes.md), for collections with `changes`.
//!
//! - `followers`: At once. More get 503. `limits.connections` bounds them too.
//! - `followers_per_client`: At once from one client (of IPv6, one /64). More get 429. 0:
//!   unlimited.
//! - `ids`: Ids that one may name.
//! - `window`: Memory of the changes of each collection from which a client that returns is served,
//!   and of the changes that are not visible yet.
//! - `heartbeat`: Interval of heartbeats.

use std::time::Duration;

use hotrow_config::follow::Follow;
use hotrow_types::key::CollectionId;

use super::reader::Section;
use super::units::{KIB, MIB, ms};

/// Reads the section. `collections`: those whose changes may be followed.
pub(super) fn follow(mut section: Section<'_>, collections: Vec<CollectionId>) -> Follow {
    let defaults = Follow::default();
    let follow = Follow {
        followers: section.count("followers", defaults.followers, 1..=1_000_000),
        followers_per_client: section.count("followers_per_client", 0, 0..=1_000_000),
        ids: section.count("ids", defaults.ids, 1..=10_000),
        window_bytes: section.size_in_memory("window", 4 * MIB, 64 * KIB..=1 << 30),
        heartbeat: section.duration("heartbeat", defaults.heartbeat, HEARTBEAT),
        collections,
    };
    section.finish();
    follow
}

const HEARTBEAT: std::ops::RangeInclusive<Duration> = ms(100)..=Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use crate::config::{Overrides, parse};

    use super::*;

    fn resolved(rest: &str) -> Result<Follow, String> {
        let text = format!("[source]\nurl = \"sqlite:/tmp/shop.db\"\n{rest}");
        parse(&text, "hotrow.toml", &|_| Err(std::env::VarError::NotPresent), &Overrides::default())
            .map(|resolved| resolved.server.follow)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_collection_is_followed_if_it_says_so() {
        assert_eq!(resolved("[collections.products]"), Ok(Follow::default()));
        let follow = resolved(
            "watch = \"triggers\"\n[collections.orders]\n[collections.products]\n\
             changes = true\n[follow]\nfollowers = 5\nfollowers_per_client = 2\nids = 3\n\
             window = \"1MiB\"\nheartbeat = \"1s\"",
        );
        let expected = Follow {
            collections: vec![CollectionId(1)],
            followers: 5,
            followers_per_client: 2,
            ids: 3,
            window_bytes: 1 << 20,
            heartbeat: Duration::from_secs(1),
        };
        assert_eq!(follow, Ok(expected));
        for (bad, rule) in [
            ("[collections.p]\nchanges = true\ntenant = \"t\"", "with tenant"),
            ("watch = \"none\"\n[collections.p]\nchanges = true", "without a change log"),
            ("[collections._p]", "must begin with a letter"),
            ("[collections.p]\n[follow]\nfollowers = 0", "follow.followers"),
            ("[collections.p]\n[follow]\nheartbeat = \"1ms\"", "follow.heartbeat"),
        ] {
            let error = resolved(bad).unwrap_err();
            assert!(error.contains(rule), "{error}");
        }
    }
}
