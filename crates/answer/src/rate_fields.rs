//! Rate limit headers: `Retry-After`, and `RateLimit-Policy` and `RateLimit` of
//! draft-ietf-httpapi-ratelimit-headers-11, which are lists of structured fields (RFC 9651):
//! `"clients";q=100;w=1` and `"clients";r=3;t=1`.

use std::fmt::Write as _;
use std::time::Duration;

use hotrow_admission::rate::limit::Setting;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::retry_after::whole_seconds;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// State of a request's key with one rule.
pub struct RuleState<'a> {
    /// Its name in `RateLimit`.
    pub name: &'a str,
    /// Its setting.
    pub setting: Setting,
    /// Units that would be admitted now.
    pub remaining: u64,
    /// Time until nothing is owed.
    pub settled_after: Duration,
}

/// Values of the two headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    policy: HeaderValue,
    limit: HeaderValue,
}

/// Reason for a 429.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooMany {
    /// Detail of the answer.
    pub detail: String,
    /// Whole seconds, at least 1.
    pub retry_after_s: u64,
    fields: Fields,
}

impl Fields {
    /// Builds the headers of all rules that apply. `t` is the time until nothing is owed.
    pub fn of<'a>(rule_states: impl Iterator<Item = RuleState<'a>>) -> Self {
        let (mut policy, mut limit) = (String::new(), String::new());
        for rule_state in rule_states {
            let separator = if policy.is_empty() { "" } else { ", " };
            policy.push_str(separator);
            limit.push_str(separator);
            rule_state.write(whole_seconds(rule_state.settled_after), &mut policy, &mut limit);
        }
        Self { policy: value(&policy), limit: value(&limit) }
    }

    /// Adds them to an answer.
    pub fn add(&self, headers: &mut HeaderMap) {
        headers.insert(RATE_LIMIT_POLICY, self.policy.clone());
        headers.insert(RATE_LIMIT, self.limit.clone());
    }
}

impl Fields {
    /// Writes them to a head.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        hotrow_http1::write::field(out, RATE_LIMIT_POLICY.as_str(), self.policy.as_bytes());
        hotrow_http1::write::field(out, RATE_LIMIT.as_str(), self.limit.as_bytes());
    }
}

impl TooMany {
    /// Describes a refusal by this rule.
    pub fn new(retry_after: Duration, rule_state: &RuleState<'_>) -> Self {
        let (name, Setting { rate, burst, .. }) = (rule_state.name, rule_state.setting);
        let detail = format!("the limit {name:?} allows {rate} and bursts of {burst}");
        let retry_after_s = whole_seconds(retry_after).max(1);
        let (mut policy, mut limit) = (String::new(), String::new());
        // `Retry-After` should not end before the reported window.
        rule_state.write(retry_after_s, &mut policy, &mut limit);
        Self {
            detail,
            retry_after_s,
            fields: Fields { policy: value(&policy), limit: value(&limit) },
        }
    }

    /// Adds `Retry-After` and the two headers to an answer.
    pub fn add(&self, headers: &mut HeaderMap) {
        headers.insert(http::header::RETRY_AFTER, HeaderValue::from(self.retry_after_s));
        self.fields.add(headers);
    }
}

impl RuleState<'_> {
    /// The configuration ensures that names of rules need no escaping within quotes.
    fn write(&self, window_s: u64, policy: &mut String, limit: &mut String) {
        let (name, Setting { rate, burst, .. }) = (self.name, self.setting);
        let units = rate.units();
        let period_s = rate.period().seconds();
        // Writing to a string does not fail.
        let _ = write!(policy, "\"{name}\";q={units};w={period_s}");
        if burst != units {
            let _ = write!(policy, ";hotrow-burst={burst}");
        }
        let _ = write!(limit, "\"{name}\";r={};t={window_s}", self.remaining);
    }
}

fn value(text: &str) -> HeaderValue {
    // Letters, digits, quotes and signs: always a header value.
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}
