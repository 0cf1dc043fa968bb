//! Which answers have surrogate keys, and which no cache may keep.

use hotrow_testkit::harness::{Answer, Database, Server};

use super::{purged, with_items};
use crate::alias::Users as _;

const KEPT: Option<&str> = Some("max-age=0, s-maxage=3600");
const NO_STORE: Option<&str> = Some("no-store");

fn fields(answer: &Answer) -> (Option<&str>, Option<&str>) {
    (answer.header("surrogate-key"), answer.header("cache-control"))
}

#[test]
fn only_answers_that_a_purge_finds_may_be_kept() {
    let database = with_items::<Database>();
    let config = purged(database.service()).with(&[
        // A machine that pauses must not make the feed late.
        ("cache.max_staleness", "\"1m\""),
        ("collections.items.allow_fields", "true"),
        ("collections.items.allow_no_cache", "true"),
        ("collections.items.by.version.columns", "\"other\""),
    ]);
    database.execute("ALTER TABLE items ADD COLUMN other text");
    database.execute("CREATE UNIQUE INDEX others ON items(other)");
    database.execute("UPDATE items SET other = 'five' WHERE id = 5");
    let server = Server::start(&config);
    let mut client = server.client();
    let found = client.get("/items/5");
    assert_eq!((found.status, fields(&found)), (200, (Some("items items/5"), KEPT)));
    let found = client.get("/items/5");
    assert_eq!(found.header("hotrow-cache"), Some("hit"));
    assert_eq!(fields(&found), (Some("items items/5"), KEPT));
    let tag = found.header("etag").expect("a tag").to_owned();
    let known = client.get_with("/items/5", &[("If-None-Match", &tag)]);
    assert_eq!((known.status, fields(&known)), (304, (Some("items items/5"), KEPT)));
    let missing = client.get("/items/77");
    assert_eq!((missing.status, fields(&missing)), (404, (Some("items items/77"), KEPT)));
    let view = client.get("/items/5?fields=v");
    assert_eq!((view.status, fields(&view)), (200, (Some("items items/5"), KEPT)));
    let forced = client.get_with("/items/5", &[("Cache-Control", "no-cache")]);
    assert_eq!(forced.header("hotrow-cache"), Some("bypass"));
    for answer in [
        forced,
        client.get("/items?ids=5,6"),
        client.get("/items/by/version/five"),
        client.get("/items/by/version/none"),
    ] {
        assert_eq!(fields(&answer), (None, NO_STORE), "{answer:?}");
    }
}

#[test]
fn purged_urls_have_one_spelling() {
    let database = Database::new();
    database.execute("CREATE TABLE texts(id text PRIMARY KEY, v integer)");
    database.execute("INSERT INTO texts VALUES ('a b', 1)");
    let config = database.service().with(&[
        ("collections.texts.surrogate_keys", "true"),
        ("collections.texts.cache_control", super::CACHE_CONTROL),
        ("purge.header", "\"cache-tag\""),
        ("purge.repeat_after", "\"2m\""),
        ("purge.targets.proxy.kind", "\"purge\""),
        ("purge.targets.proxy.url", "\"http://127.0.0.1:1\""),
        ("purge.targets.proxy.purge_all", "\"/all/{collection}\""),
        ("listen.unknown_parameters", "\"ignore\""),
    ]);
    let server = Server::start(&config);
    let mut client = server.client();
    let canonical = client.get("/texts/a%20b");
    assert_eq!(canonical.header("cache-tag"), Some("texts,texts/a%20b"));
    assert_eq!(canonical.header("cache-control"), KEPT);
    for other in ["/texts/%61%20b", "/texts/a%20b?x=1"] {
        let answer = client.get(other);
        assert_eq!((answer.status, answer.header("cache-tag")), (200, None), "{other}");
        assert_eq!(answer.header("cache-control"), NO_STORE);
    }
}
