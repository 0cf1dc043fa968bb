use super::*;

const WELL: Conditions = Conditions {
    is_running: true,
    feed: FeedState::CaughtUp,
    staleness: Some(Duration::ZERO),
    is_source_reachable: true,
    breaker: State::Closed,
    has_token_keys: true,
    is_warm: true,
};

const POLICIES: [WhenStale; 3] = [WhenStale::Bypass, WhenStale::Stale, WhenStale::Refuse];

/// Returns whether these conditions are ready by the rule `fresh`, then by `serving`, each by the
/// policies in the order of [`POLICIES`].
fn table(conditions: Conditions) -> [[bool; 3]; 2] {
    [ReadyWhen::Fresh, ReadyWhen::Serving]
        .map(|rule| POLICIES.map(|policy| conditions.unmet(rule, policy).is_empty()))
}

/// The table of docs/rollout.md, row by row.
#[test]
fn readiness_follows_the_documented_table() {
    const NEVER: [bool; 3] = [false; 3];
    const ALWAYS: [bool; 3] = [true; 3];
    let behind = Conditions { feed: FeedState::Behind, ..WELL };
    let away = Conditions { is_source_reachable: false, ..WELL };
    let open = Conditions { breaker: State::Open, ..WELL };
    for (name, conditions, fresh, serving) in [
        ("well", WELL, ALWAYS, ALWAYS),
        ("no feed", Conditions { feed: FeedState::None, ..WELL }, ALWAYS, ALWAYS),
        ("starting", Conditions { feed: FeedState::Starting, ..WELL }, NEVER, NEVER),
        ("feed behind", behind, NEVER, [true, true, false]),
        ("database away", away, NEVER, ALWAYS),
        (
            "database away, feed behind",
            Conditions { is_source_reachable: false, ..behind },
            NEVER,
            [false, true, false],
        ),
        ("breaker open", open, NEVER, ALWAYS),
        ("breaker half open", Conditions { breaker: State::HalfOpen, ..WELL }, NEVER, ALWAYS),
        (
            "breaker open, feed behind",
            Conditions { breaker: State::Open, ..behind },
            NEVER,
            [false, true, false],
        ),
        ("no token keys", Conditions { has_token_keys: false, ..WELL }, NEVER, NEVER),
        ("warming up", Conditions { is_warm: false, ..WELL }, NEVER, NEVER),
        ("draining", Conditions { is_running: false, ..WELL }, NEVER, NEVER),
    ] {
        assert_eq!(table(conditions), [fresh, serving], "{name}");
    }
}

#[test]
fn only_the_conditions_that_the_rule_requires_are_named() {
    let all_ill = Conditions {
        is_running: false,
        feed: FeedState::Behind,
        staleness: None,
        is_source_reachable: false,
        breaker: State::Open,
        has_token_keys: false,
        is_warm: false,
    };
    let names = |rule, policy| -> Vec<&str> {
        all_ill.unmet(rule, policy).into_iter().map(Condition::label).collect()
    };
    let all = ["process", "feed", "source", "breaker", "token_keys", "warm_start"];
    for policy in POLICIES {
        assert_eq!(names(ReadyWhen::Fresh, policy), all);
    }
    assert_eq!(
        names(ReadyWhen::Serving, WhenStale::Stale),
        ["process", "token_keys", "warm_start"]
    );
    assert_eq!(
        names(ReadyWhen::Serving, WhenStale::Bypass),
        ["process", "source", "breaker", "token_keys", "warm_start"]
    );
    assert_eq!(
        names(ReadyWhen::Serving, WhenStale::Refuse),
        ["process", "feed", "token_keys", "warm_start"]
    );
}

/// One dead database must not take the collections of the others out of the balancer.
#[test]
fn one_source_suffices_once_every_feed_has_started() {
    let unmet = |all: &[Conditions], sources| {
        unmet_of_all(all, (ReadyWhen::Fresh, WhenStale::Bypass), sources)
    };
    let dead = Conditions {
        feed: FeedState::Behind,
        is_source_reachable: false,
        breaker: State::Open,
        ..WELL
    };
    let why = [Condition::Feed, Condition::Source, Condition::Breaker];
    assert_eq!(unmet(&[WELL, dead], ReadySources::Any), []);
    assert_eq!(unmet(&[dead, WELL], ReadySources::All), why);
    assert_eq!(unmet(&[dead, dead], ReadySources::Any), why);
    assert_eq!(unmet(&[dead], ReadySources::Any), why);
    let starting = Conditions { feed: FeedState::Starting, staleness: None, ..WELL };
    assert_eq!(unmet(&[WELL, starting], ReadySources::Any), [Condition::Feed]);
    let draining = Conditions { is_running: false, ..WELL };
    assert_eq!(unmet(&[draining, draining], ReadySources::Any), [Condition::Process]);
    let shown = worst(&[WELL, dead]);
    assert_eq!((shown.feed, shown.breaker), (FeedState::Behind, State::Open));
    assert!(!shown.is_source_reachable && shown.has_token_keys);
}
