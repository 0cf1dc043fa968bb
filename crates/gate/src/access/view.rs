//! Access for operators: state of the keys and of the grants.

use hotrow_measure::clock::Nanos;
use hotrow_telemetry::exposition::Exposition;
use serde_json::{Value, json};

use super::Access;

impl Access {
    /// Writes the metrics.
    pub fn expose(&self, now: Nanos, out: &mut Exposition) {
        if self.principals.is_watched() {
            let (reloaded, refused) = self.principals.reloads();
            out.counter(
                "hotrow_grants_reloads_total",
                "Changed files of grants that were taken over or refused.",
                [([("result", "reloaded")], reloaded), ([("result", "refused")], refused)],
            );
        }
        let Some(keys) = self.tokens.as_ref().and_then(|tokens| tokens.view(now)) else { return };
        out.counter(
            "hotrow_jwks_reads_total",
            "Reads of the keys of tokens, from a file or a URL.",
            [([("result", "ok")], keys.succeeded), ([("result", "failed")], keys.failed)],
        );
        out.gauge("hotrow_jwks_keys", "Keys of tokens in force.", [([], keys.keys as u64)]);
        if let Some(age) = keys.age {
            out.gauge(
                "hotrow_jwks_age_seconds",
                "Time since the keys of tokens were last confirmed.",
                [([], age.as_secs())],
            );
        }
    }

    /// Returns the state, for `/status`.
    pub fn status(&self, now: Nanos) -> Value {
        let (reloaded, refused) = self.principals.reloads();
        let keys = self.tokens.as_ref().and_then(|tokens| tokens.view(now));
        json!({
            "grants_reloads": reloaded,
            "grants_refused": refused,
            "jwks": keys.map(|keys| json!({
                "keys": keys.keys,
                "age_s": keys.age.map(|age| age.as_secs()),
                "reads": keys.succeeded,
                "failed_reads": keys.failed,
            })),
        })
    }
}
