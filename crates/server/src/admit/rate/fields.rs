//! What a client is told: `Retry-After`, and `RateLimit-Policy` and `RateLimit` as in draft-ietf-httpapi-ratelimit-headers-11, which
//! are lists of structured fields (RFC 9651): `"clients";q=100;w=1` and `"clients";r=3;t=1`.

use std::fmt::Write as _;
use std::time::Duration;

use hotrow_admit::rate::limit::Setting;
use hotrow_admit::rate::{Decision, Policy};
use hotrow_measure::clock::Nanos;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Asked, Clients, Rule};
use crate::problem::whole_seconds;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// How a request's key stands with one rule.
pub(super) struct Standing<'a> {
    name: &'a str,
    setting: Setting,
    /// Units that would be admitted now.
    remaining: u64,
    /// Until nothing is owed any more.
    settled_after: Duration,
}

/// The two fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    policy: HeaderValue,
    limit: HeaderValue,
}

/// Why a request gets 429.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooMany {
    pub(crate) detail: String,
    /// Whole seconds, at least 1.
    pub(crate) retry_after_s: u64,
    fields: Fields,
}

impl Rule {
    pub(super) fn standing(&self, asked: &Asked<'_>, clients: &Clients, now: Nanos) -> Standing<'_> {
        let state = self.account(asked, clients).state();
        let remaining = match self.limit.judge(state, 0, now).0 {
            Decision::Admitted { remaining } => remaining,
            _ => 0,
        };
        let settled_after = self.limit.settled_after(state, now);
        Standing { name: &self.name, setting: self.limit.setting(), remaining, settled_after }
    }
}

impl Fields {
    /// Of every rule that applies. `t` is the time until nothing is owed any more.
    pub(super) fn of<'a>(standings: impl Iterator<Item = Standing<'a>>) -> Self {
        let (mut policy, mut limit) = (String::new(), String::new());
        for standing in standings {
            let separator = if policy.is_empty() { "" } else { ", " };
            policy.push_str(separator);
            limit.push_str(separator);
            standing.write(whole_seconds(standing.settled_after), &mut policy, &mut limit);
        }
        Self { policy: value(&policy), limit: value(&limit) }
    }

    /// Adds them to an answer.
    pub(crate) fn add(&self, headers: &mut HeaderMap) {
        headers.insert(RATE_LIMIT_POLICY, self.policy.clone());
        headers.insert(RATE_LIMIT, self.limit.clone());
    }
}

impl TooMany {
    pub(super) fn new(retry_after: Duration, standing: &Standing<'_>) -> Self {
        let (name, Setting { rate, burst, .. }) = (standing.name, standing.setting);
        let detail = format!("the limit {name:?} allows {rate} and bursts of {burst}");
        let retry_after_s = whole_seconds(retry_after).max(1);
        let (mut policy, mut limit) = (String::new(), String::new());
        // `Retry-After` should not lie before the end of the window that is told.
        standing.write(retry_after_s, &mut policy, &mut limit);
        Self { detail, retry_after_s, fields: Fields { policy: value(&policy), limit: value(&limit) } }
    }

    /// Adds `Retry-After` and the two fields to an answer.
    pub(crate) fn add(&self, headers: &mut HeaderMap) {
        headers.insert(http::header::RETRY_AFTER, HeaderValue::from(self.retry_after_s));
        self.fields.add(headers);
    }
}

impl Standing<'_> {
    /// The names of rules need no escaping within quotes: the configuration sees to that.
    fn write(&self, window_s: u64, policy: &mut String, limit: &mut String) {
        let (name, Setting { rate, burst, .. }) = (self.name, self.setting);
        let (units, period_s) = (rate.units(), rate.period().seconds());
        // Writing to a text does not fail.
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
