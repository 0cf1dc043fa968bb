use super::*;
use crate::config::{Overrides, Resolved, parse};

const GOOD: &str = "[source]\nurl = 'sqlite:x'\n[collections.a]\n[collections.b]\n";

fn read(addition: &str) -> Result<Resolved, String> {
    let text = format!("{GOOD}{addition}\n");
    parse(&text, "f.toml", &|_| Err(std::env::VarError::NotPresent), &Overrides::default())
        .map_err(|e| e.to_string())
}

fn rules(addition: &str) -> Vec<RateRule> {
    read(addition).unwrap_or_else(|e| panic!("{addition}: {e}")).server.rate.rules
}

#[test]
fn two_lines_are_a_rule() {
    assert!(rules("").is_empty());
    let [rule] = &rules("[limits.rate.clients]\nrate = '100/s'")[..] else { panic!("one rule") };
    assert_eq!(
        (rule.name.as_str(), &rule.per, rule.batch_cost),
        ("clients", &Per::Client, BatchCost::Ids)
    );
    let Setting { kind, rate, burst, warm_up } = rule.setting;
    assert_eq!(
        (kind, rate.to_string().as_str(), burst, warm_up),
        (Kind::TokenBucket, "100/s", 100, ms(0))
    );
    assert!(rule.collections.is_none());
}

#[test]
fn the_settings_of_the_file_are_applied() {
    let limits = read(
        "[limits.rate]\nkeys_max = 1000\ntrusted_proxies = ['10.0.0.0/8', '::1']\n\
         client_header = 'forwarded'\n\
         ipv6_prefix = 56\nheaders = true\n\
         [limits.rate.slow]\nper = 'header:X-Api-Key'\nkind = 'leaky_bucket'\nrate = '600/m'\n\
         max_wait = '250ms'\n\
         [limits.rate.few]\nper = 'collection'\nkind = 'fixed_window'\nrate = '10/h'\n\
         batch_cost = 'request'\n\
         collections = ['b']\n\
         [limits.rate.all]\nper = 'global'\nrate = '1000/s'\nburst = 50\nwarmup = '30s'\n",
    )
    .unwrap()
    .server
    .rate;
    assert_eq!((limits.keys_max, limits.ipv6_prefix, limits.headers), (1000, 56, true));
    assert_eq!(
        (limits.trusted_proxies.len(), limits.client_header),
        (2, Some(ClientHeader::Forwarded))
    );
    let [all, few, slow] = &limits.rules[..] else {
        panic!("three rules, in the order of their names")
    };
    assert_eq!((all.setting.burst, all.setting.warm_up, &all.per), (50, s(30), &Per::Global));
    assert_eq!((few.setting.kind, few.batch_cost), (Kind::FixedWindow, BatchCost::Request));
    assert_eq!(few.collections.as_deref(), Some(&["b".to_owned()][..]));
    assert_eq!(
        (slow.setting.kind, slow.setting.burst),
        (Kind::LeakyBucket { max_wait: ms(250) }, 1)
    );
    assert_eq!(slow.per.to_string(), "header:x-api-key");
}

/// Cases: a text that is added to a good file, and a fragment of the refusal.
const BAD: &[(&str, &str)] = &[
    ("[limits.rate.r]", "limits.rate.r.rate: is required: a number per second"),
    ("[limits.rate.r]\nrate = 100", "limits.rate.r.rate: must be a text, not 100"),
    (
        "[limits.rate.r]\nrate = '100'",
        "f.toml:6: limits.rate.r.rate: must be a number per second, minute or hour",
    ),
    (
        "[limits.rate.r]\nrate = '0/s'",
        "limits.rate.r.rate: must be 1 to 1000000000 units, and at most 10000000 per second",
    ),
    (
        "[limits.rate.r]\nrate = '1/s'\nburst = 0",
        "limits.rate.r.burst: must be a whole number between 1 and 1000000000",
    ),
    (
        "[limits.rate.r]\nrate = '1/s'\nbursts = 3",
        "limits.rate.r.bursts: unknown key; did you mean burst?",
    ),
    (
        "[limits.rate.r]\nrate = '1/s'\nper = 'ip'",
        "limits.rate.r.per: must be \"client\" or \"identity\" or \"header:NAME\"",
    ),
    ("[limits.rate.r]\nrate = '1/s'\nper = 'header:a b'", "limits.rate.r.per: must be"),
    (
        "[limits.rate.r]\nrate = '1/s'\nkind = 'gcra'",
        "limits.rate.r.kind: must be \"token_bucket\" or \"leaky_bucket\"",
    ),
    (
        "[limits.rate.r]\nrate = '1/s'\nmax_wait = '1s'",
        "limits.rate.r.max_wait: is for kind = \"leaky_bucket\"",
    ),
    (
        "[limits.rate.r]\nrate = '1/s'\nkind = 'fixed_window'\nburst = 3",
        "limits.rate.r.burst: has no meaning with kind",
    ),
    (
        "[limits.rate.r]\nrate = '1/s'\nkind = 'fixed_window'\nwarmup = '3s'",
        "limits.rate.r.warmup: has no meaning",
    ),
    (
        "[limits.rate.r]\nrate = '1/s'\nbatch_cost = 'id'",
        "limits.rate.r.batch_cost: must be \"ids\" or \"request\"",
    ),
    (
        "[limits.rate.r]\nrate = '1/s'\ncollections = []",
        "limits.rate.r.collections: must name at least one",
    ),
    (
        "[limits.rate.r]\nrate = '1/s'\ncollections = ['c']",
        "limits.rate.r.collections: must name collections of this file",
    ),
    (
        "[limits.rate.Big]\nrate = '1/s'",
        "limits.rate.Big: the name of a rule must begin with a letter a to z",
    ),
    (
        "[limits.rate]\nkeys = 1",
        "limits.rate.keys: unknown key; known here: keys_max, trusted_proxies",
    ),
    ("[limits.rate]\nkey_max = 100", "limits.rate.key_max: unknown key; did you mean keys_max?"),
    (
        "[limits.rate]\nkeys_max = 7",
        "limits.rate.keys_max: must be a whole number between 8 and 100000000, not 7",
    ),
    (
        "[limits.rate]\nipv6_prefix = 0",
        "limits.rate.ipv6_prefix: must be a whole number between 1 and 128",
    ),
    (
        "[limits.rate]\nclient_header = 'forwarded'",
        "limits.rate.client_header: has no meaning without trusted_proxies",
    ),
    (
        "[limits.rate]\ntrusted_proxies = '::1'",
        "limits.rate.trusted_proxies: has no meaning without client_header",
    ),
    (
        "[limits.rate]\ntrusted_proxies = ['10.0.0.1/8']",
        "limits.rate.trusted_proxies: must be addresses and networks",
    ),
    (
        "[limits.rate]\nclient_header = 'x-real-ip'",
        "limits.rate.client_header: must be \"none\" or \"forwarded\"",
    ),
    ("limits = {rate = 3}", "limits.rate: must be a table, [limits.rate], not a number"),
];

#[test]
fn each_bad_value_is_named_with_its_rule() {
    for (addition, fragment) in BAD {
        // An inline table cannot follow a collection's table.
        let text = if addition.starts_with("limits =") {
            format!("{addition}\n{GOOD}")
        } else {
            format!("{GOOD}{addition}\n")
        };
        let got =
            parse(&text, "f.toml", &|_| Err(std::env::VarError::NotPresent), &Overrides::default());
        let e = got.expect_err(addition).to_string();
        assert!(e.contains(fragment), "for\n{addition}\nexpected\n  {fragment}\ngot\n  {e}");
    }
    let many: String = (0..17).map(|i| format!("[limits.rate.r{i}]\nrate = '1/s'\n")).collect();
    assert!(read(&many).unwrap_err().contains("there may be at most 16 rules"));
}
