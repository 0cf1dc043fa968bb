use hotrow_admission::rate::limit::{Kind, Setting};
use hotrow_http1::fields::FieldsBuf;
use http::{HeaderMap, HeaderValue};

use super::*;

const NOW: Nanos = Nanos(0);

fn rule(name: &str, per: &str, rate: &str, burst: u32) -> RateRule {
    RateRule {
        name: name.to_owned(),
        per: per.parse().unwrap(),
        setting: Setting {
            kind: Kind::TokenBucket,
            rate: rate.parse().unwrap(),
            burst,
            warm_up: Duration::ZERO,
        },
        batch_cost: BatchCost::Ids,
        collections: None,
        classes: None,
    }
}

fn limits(rules: Vec<RateRule>, headers: bool) -> RateLimits {
    let collection = |name: &str| Collection {
        name: name.to_owned(),
        source: hotrow_types::source::SourceId::FIRST,
        schema: hotrow_types::key::KeySchema::new(
            CollectionId(0),
            vec![hotrow_types::key::KeyType::Integer],
        ),
        cache_control: HeaderValue::from_static("no-cache"),
        allow_no_cache: false,
        allow_min_position: false,
        strict: true,
        allow_fields: false,
        priority: hotrow_admission::shed::Priority::Normal,
        allow_high_priority: false,
        tenancy: None,
        compression: None,
        is_removed: false,
        alias: None,
        surrogate_keys: None,
    };
    let config = Config { rules, keys_max: 1000, headers, ..Config::default() };
    RateLimits::new(&config, &[collection("a"), collection("b")], 0, NOW)
}

fn request<'a>(collection: u16, ids: u64, peer: &str, headers: &'a FieldsBuf) -> RateRequest<'a> {
    let (collection, headers) = (CollectionId(collection), headers.as_fields());
    let peer = Peer::Address(peer.parse().unwrap());
    RateRequest { collection, ids, peer, headers, caller: Caller::default() }
}

fn passes(limits: &RateLimits, request: &RateRequest<'_>) -> bool {
    match limits.ask(request, NOW) {
        RateDecision::Permit | RateDecision::PermitWithFields(_) => true,
        RateDecision::Refuse(_) | RateDecision::Never(_) => false,
        RateDecision::Wait(..) => panic!("nothing waits here"),
    }
}

fn key(values: &[&str]) -> FieldsBuf {
    values.iter().map(|value| ("x-key", value)).collect()
}

#[test]
fn each_kind_of_key_has_a_budget_of_its_own() {
    let none = FieldsBuf::default();
    let clients = limits(vec![rule("r", "client", "1/h", 1)], false);
    assert!(
        passes(&clients, &request(0, 1, "1.1.1.1", &none))
            && !passes(&clients, &request(1, 1, "1.1.1.1", &none))
    );
    assert!(passes(&clients, &request(0, 1, "1.1.1.2", &none)));
    let collections = limits(vec![rule("r", "collection", "1/h", 1)], false);
    assert!(
        passes(&collections, &request(0, 1, "1.1.1.1", &none))
            && !passes(&collections, &request(0, 1, "1.1.1.2", &none))
    );
    assert!(passes(&collections, &request(1, 1, "1.1.1.1", &none)));
    let global = limits(vec![rule("r", "global", "1/h", 1)], false);
    assert!(
        passes(&global, &request(0, 1, "1.1.1.1", &none))
            && !passes(&global, &request(1, 1, "1.1.1.2", &none))
    );
}

#[test]
fn header_keys_distinguish_all_values() {
    let limits = limits(vec![rule("r", "header:x-key", "1/h", 1)], false);
    for values in [&["a"][..], &["b"], &["a", "b"], &["b", "a"], &["ab"], &["a", "b", "c"], &[]] {
        let headers = key(values);
        assert!(passes(&limits, &request(0, 1, "1.1.1.1", &headers)), "{values:?}");
        assert!(!passes(&limits, &request(0, 1, "1.1.1.2", &headers)), "{values:?}");
    }
}

#[test]
fn a_refusal_by_one_rule_takes_nothing_from_another() {
    let rules = vec![rule("all", "global", "1/h", 3), rule("each", "client", "1/h", 1)];
    let limits = limits(rules, false);
    let none = FieldsBuf::default();
    assert!(passes(&limits, &request(0, 1, "1.1.1.1", &none)));
    assert!((0..100).all(|_| !passes(&limits, &request(0, 1, "1.1.1.1", &none))));
    assert!(
        passes(&limits, &request(0, 1, "1.1.1.2", &none))
            && passes(&limits, &request(0, 1, "1.1.1.3", &none))
    );
    assert!(!passes(&limits, &request(0, 1, "1.1.1.4", &none)));
}

#[test]
fn rules_apply_to_their_collections_and_batches_have_their_configured_cost() {
    let mut of_b = rule("r", "global", "1/h", 10);
    of_b.collections = Some(vec!["b".to_owned()]);
    let limits_of_b = limits(vec![of_b.clone()], false);
    let none = FieldsBuf::default();
    assert!((0..100).all(|_| passes(&limits_of_b, &request(0, 5, "1.1.1.1", &none))));
    assert!(
        passes(&limits_of_b, &request(1, 7, "1.1.1.1", &none))
            && !passes(&limits_of_b, &request(1, 4, "1.1.1.1", &none))
    );
    of_b.batch_cost = BatchCost::Request;
    let limits = limits(vec![of_b], false);
    assert_eq!(
        (0..100).filter(|_| passes(&limits, &request(1, 500, "1.1.1.1", &none))).count(),
        10
    );
}

/// Returns the two fields of the answer as they are on the wire.
fn fields_on_wire(add: impl Fn(&mut HeaderMap)) -> [String; 2] {
    let mut headers = HeaderMap::new();
    add(&mut headers);
    ["ratelimit-policy", "ratelimit"].map(|name| headers[name].to_str().unwrap().to_owned())
}

#[test]
fn the_fields_report_policy_and_remaining_units() {
    let rules = vec![rule("all", "global", "600/m", 600), rule("each-1", "client", "10/s", 20)];
    let limits = limits(rules, true);
    let none = FieldsBuf::default();
    let policy = "\"all\";q=600;w=60, \"each-1\";q=10;w=1;hotrow-burst=20";
    let RateDecision::PermitWithFields(fields) = limits.ask(&request(0, 15, "1.1.1.1", &none), NOW)
    else {
        panic!("within the burst")
    };
    assert_eq!(
        fields_on_wire(|h| fields.add(h)),
        [policy, "\"all\";r=585;t=2, \"each-1\";r=5;t=2"]
    );
    let RateDecision::Refuse(why) = limits.ask(&request(0, 18, "1.1.1.1", &none), NOW) else {
        panic!("beyond the burst")
    };
    assert_eq!(why.retry_after_s, 2, "1.3 s, rounded up");
    assert_eq!(
        fields_on_wire(|h| why.add(h)),
        ["\"each-1\";q=10;w=1;hotrow-burst=20", "\"each-1\";r=5;t=2"]
    );
    assert_eq!(why.detail, "the limit \"each-1\" allows 10/s and bursts of 20");
    let RateDecision::Never(why) = limits.ask(&request(0, 21, "1.1.1.1", &none), NOW) else {
        panic!("never")
    };
    assert!(why.contains("costs 21") && why.contains("more than 20"), "{why}");
}

#[test]
fn checking_by_the_head_predicts_refusals_and_takes_nothing() {
    let limits = limits(vec![rule("r", "client", "1/h", 2)], false);
    let none = FieldsBuf::default();
    let one = request(0, 1, "1.1.1.1", &none);
    assert!((0..100).all(|_| limits.refusal(&one, NOW).is_none()));
    assert!(passes(&limits, &one) && limits.refusal(&one, NOW).is_none() && passes(&limits, &one));
    assert!(matches!(limits.refusal(&one, NOW), Some(RateDecision::Refuse(_))));
}

#[test]
fn rules_can_be_changed_in_operation() {
    let limits = limits(vec![rule("r", "client", "1/h", 2)], false);
    let none = FieldsBuf::default();
    let ask = || passes(&limits, &request(0, 1, "1.1.1.1", &none));
    assert!(ask() && ask() && !ask());
    let now_in_force = limits.change("r", None, Some(3), NOW).unwrap();
    assert_eq!((now_in_force.rate.to_string(), now_in_force.burst), ("1/h".to_owned(), 3));
    assert!(ask() && !ask());
    assert_eq!(limits.change("q", None, Some(3), NOW), Err(NotChanged::NoSuchRule));
    assert_eq!(limits.status()["r"]["burst"], 3);
    let mut page = hotrow_telemetry::exposition::Exposition::default();
    limits.expose(&mut page);
    let page = page.into_text();
    for line in ["hotrow_rate_limited_total{rule=\"r\"} 2", "hotrow_rate_keys{rule=\"r\"} 1"] {
        assert!(page.contains(line), "{page}");
    }
}

#[test]
fn a_holder_has_one_budget_on_all_its_addresses() {
    use hotrow_access::identity::Identity;

    let limits = limits(vec![rule("r", "identity", "1/s", 2)], false);
    let none = FieldsBuf::default();
    let of = |identity: Option<&str>, peer| RateRequest {
        caller: Caller { identity: identity.map(Identity::of_certificate), ..Caller::default() },
        ..request(0, 1, peer, &none)
    };
    let (one, two) = ("192.0.2.1", "192.0.2.2");
    assert!(passes(&limits, &of(Some("a"), one)) && passes(&limits, &of(Some("a"), two)));
    assert!(!passes(&limits, &of(Some("a"), one)), "both addresses have used it up");
    assert!(passes(&limits, &of(Some("b"), one)));
    // Without a credential, the address counts.
    assert!((0..2).all(|_| passes(&limits, &of(None, one))) && !passes(&limits, &of(None, one)));
    assert!(passes(&limits, &of(None, two)));
}

#[test]
fn a_rule_for_classes_applies_to_their_members_alone() {
    let (gold, trial) = (RateClasses::single(0), RateClasses::single(1));
    let of_trial = RateRule { classes: Some(trial), ..rule("trial", "client", "1/s", 1) };
    let limits = limits(vec![of_trial, rule("all", "client", "1/s", 3)], true);
    let none = FieldsBuf::default();
    let of = |rate_classes, peer| RateRequest {
        caller: Caller { rate_classes, ..Caller::default() },
        ..request(0, 1, peer, &none)
    };
    let member = |classes, peer| (0..4).filter(|_| passes(&limits, &of(classes, peer))).count();
    assert_eq!(member(gold, "192.0.2.1"), 3);
    assert_eq!(member(RateClasses::default(), "192.0.2.2"), 3);
    assert_eq!(member(trial, "192.0.2.3"), 1);
    assert_eq!(member(trial.union(gold), "192.0.2.4"), 1, "a member of both");
}
