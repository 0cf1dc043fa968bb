//! `[source]` and `[sources.NAME]`.

use std::time::Duration;

use hotrow_cache::config::InvalidationMode;
use hotrow_config::ReadySources;
use hotrow_source_sqlite::config::Watch;
use hotrow_types::source::SourceId;

use super::{GOOD, parse_text, sqlite};

const TWO: &str = "[sources.stock]\nurl = 'sqlite:stock.db'\nreads_in_flight = 2\n\
    slow_query = '5ms'\n\
    [sources.shop]\nurl = 'sqlite:shop.db'\nwatch = 'triggers'\n\
    [collections.a]\nsource = 'stock'\n[collections.b]\nsource = 'shop'\n\
    [collections.b.by.name]\ncolumns = ['name']\n[collections.c]\nsource = 'stock'\n";

#[test]
fn a_source_has_a_name() {
    let named = "[sources.shop]\nurl = 'sqlite:shop.db'\nwatch = 'triggers'\n\
        [collections.products]\nsource = 'shop'\n";
    let resolved = parse_text(named).expect("valid");
    assert_eq!(resolved.server.sources[0].name, "shop");
    assert_eq!(sqlite(&resolved).watch, Watch::Triggers);
    assert_eq!(parse_text(GOOD).expect("valid").server.sources[0].name, "default");
    for (file, refusal) in [
        (named.replace("url", "uri"), "f.toml:2: sources.shop.uri: unknown key; did you mean url?"),
        (named.replace("sources.shop", "sources.Shop"), "the name of a source must begin with"),
    ] {
        let error = parse_text(&file).expect_err("refused").to_string();
        assert!(error.contains(refusal), "{error}");
    }
}

#[test]
fn collections_are_divided_among_several_sources() {
    let unnamed = TWO.replace("sources.shop", "source").replace("source = 'shop'\n", "");
    let resolved = parse_text(&unnamed).expect("[source] is the default");
    assert_eq!(resolved.server.collections[1].source, SourceId(0));
    let resolved = parse_text(TWO).expect("valid");
    let names: Vec<&str> = resolved.server.sources.iter().map(|own| own.name.as_str()).collect();
    assert_eq!(names, ["shop", "stock"], "by name");
    let of_sources = |at: usize| {
        let own = resolved.sources[at].collections().iter();
        own.map(|collection| collection.name.as_str()).collect::<Vec<_>>()
    };
    assert_eq!((of_sources(0), of_sources(1)), (vec!["b", "b/by/name"], vec!["a", "c"]));
    let numbers: Vec<SourceId> = resolved.server.collections.iter().map(|own| own.source).collect();
    assert_eq!(numbers, [1, 0, 1, 0].map(SourceId), "an alias is of its collection's source");
    let reads: Vec<usize> =
        resolved.cache_sources.iter().map(|source| source.reads_in_flight).collect();
    assert_eq!(reads, [4, 2]);
    let slow = resolved.server.sources.iter().map(|source| source.slow_query.as_millis());
    assert!(slow.eq([1_000, 5]));
    assert_eq!(resolved.server.ready_sources, ReadySources::Any);
}

#[test]
fn a_source_without_a_feed_has_rules_of_its_own() {
    let text = TWO.replace("reads_in_flight = 2", "feed = 'none'");
    let error = parse_text(&text).expect_err("no TTL").to_string();
    assert!(error.contains("cache.ttl: must be set"), "{error}");
    let own = text.replace("source = 'stock'", "source = 'stock'\nttl = '3s'");
    let policies = parse_text(&own).expect("each has its own").collections;
    assert_eq!(policies[0].negative_ttl, Duration::from_secs(3), "no longer than a record");
    let bounded = format!("[cache]\nttl = '1m'\nmax_staleness = '2s'\n{text}");
    let resolved = parse_text(&bounded).expect("the other source is followed");
    let modes: Vec<InvalidationMode> =
        resolved.cache_sources.iter().map(|source| source.invalidation_mode).collect();
    assert_eq!(modes, [InvalidationMode::Feed, InvalidationMode::TtlOnly]);
    assert!(resolved.warnings[0].contains("sources.stock.feed"), "{:?}", resolved.warnings);
    let positions =
        bounded.replace("source = 'stock'", "source = 'stock'\nallow_min_position = true");
    let error = parse_text(&positions).expect_err("no log").to_string();
    assert!(error.contains("collections.a.allow_min_position"), "{error}");
}

#[test]
fn what_does_not_fit_several_sources_is_refused() {
    let many: String = (0..17).map(|n| format!("[sources.s{n}]\nurl = 'sqlite:x'\n")).collect();
    for (text, rule) in [
        (
            TWO.replace("[collections.c]\nsource = 'stock'", "[collections.c]"),
            "collections.c.source: is required where there are several sources; write one of \
             \"shop\", \"stock\"",
        ),
        (
            TWO.replace("[collections.c]\nsource = 'stock'", "[collections.c]\nsource = 'x'"),
            "not \"x\"",
        ),
        (
            format!(
                "[source]\nurl = 'sqlite:x'\n{}",
                TWO.replace("sources.shop", "sources.default")
            ),
            "sources.default: names the same source as [source]",
        ),
        (format!("{many}[collections.a]\nsource = 's1'\n"), "at most 16 sources, not 17"),
    ] {
        let error = parse_text(&text).expect_err(rule).to_string();
        assert!(error.contains(rule), "{rule}: {error}");
    }
    #[cfg(all(feature = "hub", feature = "postgres"))]
    {
        let of_hub =
            |name| format!("[sources.{name}]\nurl = 'postgres://u@h/d'\nfeed = 'nats://n'\n");
        let text = format!("{}{}[collections.x]\nsource = 'a'\n", of_hub("a"), of_hub("b"));
        let error = parse_text(&text).expect_err("two hubs").to_string();
        assert!(error.contains("hub: carries the changes of one source"), "{error}");
    }
}
