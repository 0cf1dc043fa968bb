//! `--redis`: addresses of the Redis protocol, in the order of the instances.

use hotrow_cli::transport_args::TransportArgs;
use hotrow_transport::target::Url;
use hotrow_transport::tls::HttpVersion;
use hotrow_verify::redis::RedisTarget;

use super::plan_error::{PlanError, invalid_option};

const OPTION: &str = "redis";
/// Schemes, and those of HTTP that have the same security.
const SCHEMES: [(&str, &str); 2] = [("redis://", "http://"), ("rediss://", "https://")];

/// What `--redis` says, and what it depends on.
pub(super) struct Options<'a> {
    pub(super) urls: &'a [String],
    /// Number of instances.
    pub(super) instances: usize,
    /// `redis.allow_stale`.
    pub(super) allow_stale: bool,
}

/// Returns the same URLs with the schemes of HTTP.
///
/// # Errors
/// A URL with another scheme, without a port, or with a path.
pub(super) fn as_http(urls: &[String]) -> Result<Vec<String>, PlanError> {
    let as_http = |text: &String| {
        let rest_of = |(own, http): &(&str, &'static str)| {
            text.get(..own.len())
                .filter(|scheme| scheme.eq_ignore_ascii_case(own))
                .and_then(|_| Some((*http, text.get(own.len()..)?)))
        };
        let found = SCHEMES.iter().find_map(rest_of);
        let is_complete = |rest: &str| {
            let port = rest.rsplit_once(':').map(|(_, port)| port);
            port.is_some_and(|port| port.parse::<u16>().is_ok()) && !rest.contains(['/', '?', '@'])
        };
        found
            .filter(|(_, rest)| is_complete(rest))
            .map(|(http, rest)| format!("{http}{rest}"))
            .ok_or_else(|| {
                invalid_option(
                    OPTION,
                    format!(
                        "must be redis://HOST:PORT or rediss://HOST:PORT, without a path and \
                         without a credential, not {text}; credentials are given with --token-file"
                    ),
                )
            })
    };
    urls.iter().map(as_http).collect()
}

impl Options<'_> {
    /// Returns the targets.
    ///
    /// # Errors
    /// What is wrong with the options.
    pub(super) fn targets(
        &self,
        transport: &TransportArgs,
        headers: &[(String, String)],
    ) -> Result<Vec<RedisTarget>, PlanError> {
        let refuse = |what: String| Err(invalid_option(OPTION, what));
        let (count, instances) = (self.urls.len(), self.instances);
        if count > instances {
            return refuse(format!("there are {count} of them for {instances} times --url"));
        }
        if count > 0 && self.allow_stale {
            return refuse(
                "replies have no mark for stale answers, so that they cannot be checked with \
                 redis.allow_stale; set it to false"
                    .to_owned(),
            );
        }
        let credential = credential(headers);
        let target = |(text, http): (&String, String)| {
            let url = Url::parse(&http).map_err(|what| invalid_option(OPTION, what.to_string()))?;
            let tls = transport.tls(&url, HttpVersion::Http1)?;
            RedisTarget::new(text, &url, tls, credential.clone())
                .map_err(|what| invalid_option(OPTION, format!("{text} {what}")))
        };
        self.urls.iter().zip(as_http(self.urls)?).map(target).collect()
    }
}

/// Returns the credential of requests over HTTP, as `AUTH` has it.
fn credential(headers: &[(String, String)]) -> Option<String> {
    let value = |wanted: &str| {
        headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
    };
    let bearer = value("Authorization").and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
    });
    bearer.or_else(|| value("X-API-Key").cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_host_and_a_port_and_nothing_else() {
        let one = |text: &str| as_http(&[text.to_owned()]).map(|urls| urls.concat());
        assert_eq!(one("redis://h:6379").ok().as_deref(), Some("http://h:6379"));
        assert_eq!(one("REDISS://[::1]:1").ok().as_deref(), Some("https://[::1]:1"));
        for wrong in
            ["h:6379", "redis://h", "redis://h:x", "redis://a:b@h:1", "redis://h:1/0", "http://h:1"]
        {
            let refused = one(wrong).map_err(|error| error.to_string());
            assert!(
                refused.as_ref().is_err_and(|text| text.starts_with("--redis: must be redis://")),
                "{wrong}: {refused:?}"
            );
        }
    }

    #[test]
    fn the_credential_is_that_of_http() {
        let pair = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        assert_eq!(credential(&pair("authorization", "Bearer t")).as_deref(), Some("t"));
        assert_eq!(credential(&pair("X-API-Key", "k")).as_deref(), Some("k"));
        assert_eq!(credential(&pair("Authorization", "Basic x")), None);
    }
}
