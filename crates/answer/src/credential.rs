//! The credential of a request. In header fields: `Authorization: Bearer` with a token or an API
//! key, or `X-API-Key`, never in the target, which proxies write to their logs. In commands: the
//! password of `AUTH`.

use hotrow_access::key::is_api_key;
use hotrow_access::verify::TokenError;
use hotrow_http1::fields::Fields;
use http::HeaderValue;

const AUTHORIZATION: &str = "authorization";
const X_API_KEY: &str = "x-api-key";

/// A credential, not yet checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential<'a> {
    /// There is none.
    None,
    /// Text that claims to be an API key.
    Key(&'a [u8]),
    /// Any other bearer token.
    Token(&'a [u8]),
}

/// Reason for a 401. Its text contains nothing of the credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// No credential.
    #[error(
        "this server requires a credential: send Authorization: Bearer with a token or an API key, \
         or X-API-Key"
    )]
    Missing,
    /// More than one.
    #[error("the request has more than one credential; send one Authorization or one X-API-Key")]
    Several,
    /// Another scheme than `Bearer`.
    #[error("the scheme of Authorization must be Bearer")]
    Scheme,
    /// Not one of the API keys.
    #[error("the API key is not known here")]
    Key,
    /// Tokens are not configured.
    #[error("this server accepts API keys only")]
    NoTokens,
    /// The token is refused.
    #[error(transparent)]
    Token(TokenError),
}

impl Denial {
    /// Returns the value of `WWW-Authenticate` (RFC 6750, section 3).
    pub(crate) fn challenge(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Missing => "Bearer realm=\"hotrow\"",
            Self::Several => "Bearer realm=\"hotrow\", error=\"invalid_request\"",
            Self::Scheme | Self::Key | Self::NoTokens | Self::Token(_) => {
                "Bearer realm=\"hotrow\", error=\"invalid_token\""
            }
        })
    }
}

impl<'a> Credential<'a> {
    /// Finds the credential.
    ///
    /// # Errors
    /// [`Denial::Several`], [`Denial::Scheme`]
    pub fn of(headers: Fields<'a>) -> Result<Self, Denial> {
        let mut found = Self::None;
        for (name, value) in headers.iter() {
            let credential = if name.eq_ignore_ascii_case(AUTHORIZATION.as_bytes()) {
                Self::of_bearer(value)?
            } else if name.eq_ignore_ascii_case(X_API_KEY.as_bytes()) {
                Self::Key(value)
            } else {
                continue;
            };
            if found != Self::None {
                return Err(Denial::Several);
            }
            found = credential;
        }
        Ok(found)
    }

    fn of_bearer(value: &'a [u8]) -> Result<Self, Denial> {
        const SCHEME: &[u8] = b"bearer ";
        let (scheme, token) = value.split_at_checked(SCHEME.len()).ok_or(Denial::Scheme)?;
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return Err(Denial::Scheme);
        }
        Ok(Self::of_password(token))
    }

    /// Returns a token or an API key without a scheme.
    #[inline]
    pub fn of_password(text: &'a [u8]) -> Self {
        let text = text.trim_ascii_start();
        if is_api_key(text) { Self::Key(text) } else { Self::Token(text) }
    }
}

#[cfg(test)]
mod tests {
    use hotrow_http1::fields::FieldsBuf;

    use super::*;

    #[test]
    fn there_is_one_credential_or_none() {
        type Case<'a> = (&'a [(&'a str, &'a str)], Result<Credential<'a>, Denial>);
        let cases: &[Case<'_>] = &[
            (&[("accept", "*/*")], Ok(Credential::None)),
            (&[("Authorization", "Bearer a.b.c")], Ok(Credential::Token(b"a.b.c"))),
            (&[("authorization", "bEARER  hrk_x")], Ok(Credential::Key(b"hrk_x"))),
            (&[("X-API-Key", "hrk_x")], Ok(Credential::Key(b"hrk_x"))),
            (&[("x-api-key", "a.b.c")], Ok(Credential::Key(b"a.b.c"))),
            (&[("authorization", "Basic YTpi")], Err(Denial::Scheme)),
            (&[("authorization", "Bearer")], Err(Denial::Scheme)),
            (&[("authorization", "Bearera.b.c")], Err(Denial::Scheme)),
            (&[("authorization", "")], Err(Denial::Scheme)),
            (&[("authorization", "Bearer ")], Ok(Credential::Token(b""))),
            (&[("authorization", "Bearer a"), ("authorization", "Bearer a")], Err(Denial::Several)),
            (&[("authorization", "Bearer a"), ("x-api-key", "b")], Err(Denial::Several)),
            (&[("x-api-key", "b"), ("x-api-key", "b")], Err(Denial::Several)),
        ];
        for (fields, expected) in cases {
            let fields = FieldsBuf::from_iter(fields.iter().copied());
            let found = Credential::of(fields.as_fields());
            assert_eq!(found.as_ref(), expected.as_ref(), "{fields:?}");
        }
    }
}
