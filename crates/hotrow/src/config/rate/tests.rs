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

#[test]
fn the_number_of_rules_is_bounded() {
    let many: String = (0..17).map(|i| format!("[limits.rate.r{i}]\nrate = '1/s'\n")).collect();
    assert!(read(&many).unwrap_err().contains("there may be at most 16 rules"));
}
