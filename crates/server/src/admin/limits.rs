//! `POST /limits/rate/{rule}`: changes the rate and burst of a rule until the process ends, or a
//! reload finds the rule changed in the file.

use hotrow_admission::byte_budget::ByteBudget;
use hotrow_admission::rate::limit::Setting;
use hotrow_admission::rate::value::Rate;
use hotrow_answer::body::Body;
use hotrow_answer::error_type::ErrorType;
use hotrow_answer::http_error::{HttpError, problem};
use hotrow_answer::receive;
use hotrow_answer::request::RequestBody;
use hotrow_config::rate::BURST_MAX;
use hotrow_gate::admission::rate::NotChanged;
use hotrow_measure::clock::Nanos;
use http::{Method, Request, Response, StatusCode};
use serde::Deserialize;

use super::{View, access, plain, unauthorised};

/// Path prefix of the rules.
pub(super) const PREFIX: &str = "/limits/rate/";
/// Largest body: two short members.
const BODY_BYTES_MAX: usize = 1024;

/// Changeable values; at least one of the two is given.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    rate: Option<String>,
    burst: Option<u32>,
}

impl View {
    /// Answers a request below [`PREFIX`].
    pub(super) async fn change_rate(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, HttpError> {
        self.check_host(&request)?;
        if !self.authorised(request.headers()) {
            return Ok(unauthorised());
        }
        if *request.method() != Method::POST {
            return Err(HttpError::Method("POST"));
        }
        access::check_change(&request)?;
        let (head, body) = request.into_parts();
        // A budget of its own: limits must be changeable when the data side has no room.
        let budget = ByteBudget::new(BODY_BYTES_MAX as u64);
        let body = receive::body(body, BODY_BYTES_MAX, &budget).await?;
        let rule = head.uri.path().strip_prefix(PREFIX).unwrap_or_default();
        let (rate, burst) = match parse(body.bytes()) {
            Ok(change) => change,
            Err(what) => return Ok(problem(StatusCode::BAD_REQUEST, ErrorType::BadLimit, &what)),
        };
        match self.shared.admission.rate.change(rule, rate, burst, Nanos::now()) {
            Ok(Setting { rate, burst, .. }) => {
                tracing::info!(rule, %rate, burst, "rate limit changed by request");
                let now = serde_json::json!({
                    "rule": rule,
                    "rate": rate.to_string(),
                    "burst": burst,
                    "until": "the process ends, or a reload finds the rule changed in the file",
                });
                Ok(plain(StatusCode::OK, "application/json", now.to_string()))
            }
            Err(NotChanged::NoSuchRule) => Ok(problem(
                StatusCode::NOT_FOUND,
                ErrorType::NoSuchRule,
                "no rate limit of that name is configured; see /status",
            )),
            Err(NotChanged::Impossible(why)) => {
                Ok(problem(StatusCode::BAD_REQUEST, ErrorType::BadLimit, &why.to_string()))
            }
        }
    }
}

fn parse(body: &[u8]) -> Result<(Option<Rate>, Option<u32>), String> {
    const FORM: &str = r#"the body is {"rate":"50/s","burst":20}, or one of the two"#;
    let change: Change = serde_json::from_slice(body).map_err(|_| FORM.to_owned())?;
    let rate =
        change.rate.map(|text| text.parse()).transpose().map_err(|why| format!("rate: {why}"))?;
    if let Some(burst) = change.burst.filter(|burst| !(1..=BURST_MAX).contains(burst)) {
        return Err(format!(
            "burst: must be a whole number between 1 and {BURST_MAX}, not {burst}"
        ));
    }
    if rate.is_none() && change.burst.is_none() {
        return Err(FORM.to_owned());
    }
    Ok((rate, change.burst))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_read_strictly() {
        let read = |text: &str| {
            parse(text.as_bytes()).map(|(rate, burst)| (rate.map(|r| r.to_string()), burst))
        };
        assert_eq!(read(r#"{"rate":"50/s","burst":20}"#), Ok((Some("50/s".to_owned()), Some(20))));
        assert_eq!(read(r#"{"burst":1}"#), Ok((None, Some(1))));
        for (text, fragment) in [
            ("", "the body is"),
            ("{}", "the body is"),
            ("[]", "the body is"),
            (r#"{"rate":50}"#, "the body is"),
            (r#"{"burst":"20"}"#, "the body is"),
            (r#"{"burst":-1}"#, "the body is"),
            (r#"{"burst":20,"bursts":1}"#, "the body is"),
            (r#"{"rate":"50"}"#, "rate: must be a number per second"),
            (r#"{"rate":"0/s"}"#, "rate: must be 1 to"),
            (r#"{"burst":0}"#, "burst: must be a whole number between 1 and"),
            (r#"{"burst":4000000000}"#, "not 4000000000"),
        ] {
            let why = read(text).expect_err(text);
            assert!(why.contains(fragment), "{text}: {why}");
        }
    }
}
