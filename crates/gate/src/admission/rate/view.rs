//! Rate limits for operators: state and changes.
//!
//! Reference `metrics`: Rate limits
//!
//! The last two only for rules per client, identity or header.
//!
//! - `hotrow_rate_limited_total` (`rule`): Requests answered 429.
//! - `hotrow_rate_delayed_total` (`rule`): Requests delayed by a leaky bucket.
//! - `hotrow_rate_keys` (`rule`): Keys remembered; never falls.
//! - `hotrow_rate_evictions_total` (`rule`): Slots with a debt taken by other keys. Many: raise
//!   `limits.rate.keys_max`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hotrow_admission::rate::keyed::{Counts, Keyed};
use hotrow_admission::rate::limit::{ChangeError, Kind, Setting};
use hotrow_admission::rate::value::Rate;
use hotrow_measure::clock::Nanos;
use hotrow_telemetry::exposition::Exposition;
use serde_json::{Map, Value, json};

use super::{RateLimits, Rule, RuleStorage};

/// Reason for which a rule was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotChanged {
    /// No rule of that name.
    NoSuchRule,
    /// The change is impossible.
    Impossible(ChangeError),
}

impl RateLimits {
    /// Sets a rule's rate, its burst, or both, from `now` on, and returns the setting then in
    /// force. Keys keep tokens and debts.
    pub fn change(
        &self,
        rule: &str,
        rate: Option<Rate>,
        burst: Option<u32>,
        now: Nanos,
    ) -> Result<Setting, NotChanged> {
        let rule = self.rules.iter().find(|r| r.name == rule).ok_or(NotChanged::NoSuchRule)?;
        rule.state.limit.change(rate, burst, now).map_err(NotChanged::Impossible)?;
        rule.state.is_changed.store(true, Ordering::Relaxed);
        Ok(rule.state.limit.setting())
    }

    /// Returns the names of the rules that the admin side has changed, each with whether `after`
    /// keeps the change.
    pub fn changed_by_admin(&self, after: &Self) -> Vec<(String, bool)> {
        let changed =
            self.rules.iter().filter(|rule| rule.state.is_changed.load(Ordering::Relaxed));
        let is_kept =
            |rule: &Rule| after.rules.iter().any(|other| Arc::ptr_eq(&other.state, &rule.state));
        changed.map(|rule| (rule.name.clone(), is_kept(rule))).collect()
    }

    /// Returns how many requests all rules refused.
    pub fn refused_total(&self) -> u64 {
        self.rules.iter().map(|rule| rule.state.refused.load(Ordering::Relaxed)).sum()
    }

    /// Returns the rules in force, for `/status`.
    pub fn status(&self) -> Value {
        Value::Object(
            self.rules.iter().map(|rule| (rule.name.clone(), rule.status())).collect::<Map<_, _>>(),
        )
    }

    /// Writes the counters, for `/metrics`.
    pub fn expose(&self, out: &mut Exposition) {
        let series = |read: fn(&Rule) -> Option<u64>| {
            let rules = self.rules.iter();
            rules.filter_map(move |rule| Some(([("rule", rule.name.as_str())], read(rule)?)))
        };
        let refused = series(|rule| Some(rule.state.refused.load(Ordering::Relaxed)));
        out.counter(
            "hotrow_rate_limited_total",
            "Requests answered 429, by the rule that refused.",
            refused,
        );
        let delayed = series(|rule| Some(rule.state.delayed.load(Ordering::Relaxed)));
        out.counter("hotrow_rate_delayed_total", "Requests delayed by a leaky bucket.", delayed);
        let kept = series(|rule| Some(rule.table()?.counts().kept));
        out.gauge(
            "hotrow_rate_keys",
            "Keys tracked by rules per client, identity or header; used slots are reused.",
            kept,
        );
        let displaced = series(|rule| Some(rule.table()?.counts().displaced));
        out.counter(
            "hotrow_rate_evictions_total",
            "Keys evicted with a debt, because the table was full.",
            displaced,
        );
    }
}

impl Rule {
    fn table(&self) -> Option<&Keyed> {
        match &self.state.storage {
            RuleStorage::Keyed(keyed) => Some(keyed),
            RuleStorage::One(_) | RuleStorage::PerCollection(_) => None,
        }
    }

    fn status(&self) -> Value {
        let Setting { kind, rate, burst, warm_up } = self.state.limit.setting();
        let max_wait = match kind {
            Kind::LeakyBucket { max_wait } => Some(max_wait.as_millis() as u64),
            Kind::TokenBucket | Kind::FixedWindow => None,
        };
        let counts = self.table().map(Keyed::counts);
        json!({
            "per": self.per.to_string(),
            "kind": kind.label(),
            "rate": rate.to_string(),
            "burst": burst,
            "max_wait_ms": max_wait, "warmup_ms": warm_up.as_millis() as u64,
            "keys": counts.map(|Counts { kept, .. }| kept),
            "keys_max": self.table().map(Keyed::keys_max),
            "limited": self.state.refused.load(Ordering::Relaxed),
            "delayed": self.state.delayed.load(Ordering::Relaxed),
        })
    }
}
