//! `POST /reload`, and the configuration in force for operators.
//!
//! Reference `metrics`: Configuration
//!
//! With a configuration file.
//!
//! - `hotrow_config_reloads_total` (`result`): [Reloads](rollout.md#reload): `unchanged`,
//!   `applied`, `restart_needed`, `rejected`.
//! - `hotrow_config_hash`: 48 bits of the SHA-256 of the file in force, as a number: instances with
//!   different values have different files.
//! - `hotrow_config_last_reload_successful`: **0**: the last one was rejected, and a restart would
//!   fail.
//! - `hotrow_config_last_reload_success_timestamp_seconds`: Time of the last one that was not
//!   rejected, or of the start.

use hotrow_answer::body::Body;
use hotrow_answer::error_type::ErrorType;
use hotrow_answer::http_error::{HttpError, problem};
use hotrow_measure::clock::Nanos;
use hotrow_telemetry::exposition::Exposition;
use http::{Method, Request, Response, StatusCode};
use serde_json::{Map, Value, json};

use super::{View, access, plain, unauthorised};
use crate::reload::{Left, NO_FILE, ReloadResult, Report, Trigger};

/// Path of the request.
pub(super) const PATH: &str = "/reload";

impl View {
    /// Answers a request for a reload when the new configuration is in force everywhere.
    pub(super) async fn reload<B>(
        &self,
        request: &Request<B>,
    ) -> Result<Response<Body>, HttpError> {
        self.check_host(request)?;
        if !self.authorised(request.headers()) {
            return Ok(unauthorised());
        }
        if *request.method() != Method::POST {
            return Err(HttpError::Method("POST"));
        }
        access::check_change(request)?;
        let Some(reloads) = &self.reloads else {
            tracing::warn!(trigger = Trigger::Admin.label(), "{NO_FILE}");
            return Ok(problem(
                StatusCode::NOT_FOUND,
                ErrorType::NotReloaded,
                "this process was started without a configuration file, so there is none to read \
                 again",
            ));
        };
        let report = match reloads.request(Trigger::Admin) {
            Ok(report) => report,
            Err(error) => {
                let detail = format!("{error}; try again later");
                return Ok(problem(
                    StatusCode::SERVICE_UNAVAILABLE,
                    ErrorType::NotReloaded,
                    &detail,
                ));
            }
        };
        let Ok(report) = report.await else {
            let detail = "the process ends, or the reload failed; see the log";
            return Ok(problem(StatusCode::SERVICE_UNAVAILABLE, ErrorType::NotReloaded, detail));
        };
        let status = match (report.result, &report.pending) {
            (ReloadResult::Rejected, _) => StatusCode::UNPROCESSABLE_ENTITY,
            (_, Some(_)) => StatusCode::ACCEPTED,
            (_, None) => StatusCode::OK,
        };
        Ok(plain(status, "application/json", document(&report).to_string()))
    }

    /// Returns the section `configuration` of `/status`; null without a file.
    pub(super) fn configuration(&self, now: Nanos) -> Value {
        let Some(reloads) = &self.reloads else { return Value::Null };
        let state = reloads.state();
        let last = state.last.map(|(trigger, at, report)| {
            let mut last = document(&report);
            last["trigger"] = trigger.label().into();
            last["at"] = self.unix_s(at).into();
            last
        });
        json!({
            "file": state.file,
            "sha256": state.hash,
            "since": self.unix_s(state.since),
            "in_force_s": now.since(state.since).as_secs(),
            "last_reload": last,
        })
    }

    /// Returns the Unix time in seconds.
    fn unix_s(&self, at: Nanos) -> u64 {
        self.shared.calendar.wall_lead_ns().saturating_add(at.0) / 1_000_000_000
    }

    pub(super) fn expose_reloads(&self, out: &mut Exposition) {
        let Some(reloads) = &self.reloads else { return };
        let state = reloads.state();
        let results = ReloadResult::ALL.iter().zip(state.totals);
        out.counter(
            "hotrow_config_reloads_total",
            "Reloads of the configuration file, by result.",
            results.map(|(result, count)| ([("result", result.label())], count)),
        );
        out.gauge(
            "hotrow_config_hash",
            "The first 48 bits of the SHA-256 of the configuration file, as a number.",
            [([], number_of(&state.hash))],
        );
        out.gauge(
            "hotrow_config_last_reload_successful",
            "0 if the last reload was rejected.",
            [([], u64::from(!reloads.has_failed()))],
        );
        out.gauge(
            "hotrow_config_last_reload_success_timestamp_seconds",
            "Time of the last reload that was not rejected, or of the start, in Unix time.",
            [([], self.unix_s(state.succeeded_at))],
        );
    }
}

/// Returns the first 48 bits of a hash in hexadecimal digits: as many as every reader of metrics
/// represents exactly.
fn number_of(hash: &str) -> u64 {
    hash.get(..12).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default()
}

fn document(report: &Report) -> Value {
    let left = |Left { path, reason }: &Left| json!({ "path": path, "reason": reason });
    let rules: Map<String, Value> = report
        .rate_rules
        .iter()
        .map(|(name, is_kept)| (name.clone(), if *is_kept { "kept" } else { "replaced" }.into()))
        .collect();
    json!({
        "result": report.result.label(),
        "applied": report.applied,
        "left": report.left.iter().map(left).collect::<Vec<_>>(),
        "problems": report.problems,
        "rate_limits_changed_by_admin": rules,
        "pending": report.pending,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_hash_is_exact_for_readers_of_metrics() {
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(number_of(hash), 0xba78_16bf_8f01);
        let largest = number_of("ffffffffffff00");
        assert_eq!(largest as f64 as u64, largest);
        assert_eq!(number_of("none"), 0);
    }
}
