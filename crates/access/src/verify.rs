//! Verification of a token: its signature, then its claims (RFC 7519, section 4.1).

use hotrow_types::tenant::{Tenants, TooManyTenants};
use serde_json::{Map, Value};

use crate::grant::{Grants, Roles};
use crate::identity::Identity;
use crate::json;
use crate::jwks::{Found, KeySet};
use crate::jwt::{CompactToken, FormatError};

/// Most values of `aud` or of the role claim that are looked at.
const CLAIM_VALUES_MAX: usize = 256;

/// Seconds since 1970, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixSeconds(pub u64);

/// Requirements on tokens.
#[derive(Clone, Debug)]
pub struct TokenPolicy {
    /// Value that `iss` must have; `None`: any.
    pub issuer: Option<String>,
    /// Values of which `aud` must contain one. If there are none, a token must have no `aud`.
    pub audiences: Vec<String>,
    /// Seconds by which the clocks of issuer and service may differ.
    pub leeway_s: u64,
    /// Path to the claim that names roles, one name per level.
    pub role_claim: Vec<String>,
    /// Path to the claim that names tenants; empty: tokens name none.
    pub tenant_claim: Vec<String>,
}

/// Time in which a token is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First second, without leeway.
    pub not_before: UnixSeconds,
    /// First second after it, without leeway.
    pub expires: UnixSeconds,
}

/// A verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedToken {
    /// Roles of its holder; may be none.
    pub roles: Roles,
    /// Its subject (`sub`), or the token itself.
    pub identity: Identity,
    /// Tenants of its holder; may be none.
    pub tenants: Tenants,
    /// Must be checked again at every request.
    pub validity: Validity,
}

/// Reason for which a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not a token.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// No key has the token's `kid`. The keys may have been changed since they were fetched.
    #[error("the token is not signed by a key that this service knows")]
    UnknownKid,
    /// The token has no `kid`, and not exactly one key is possible.
    #[error("the token names no key (kid), and not exactly one key has its algorithm")]
    NotOneKey,
    /// The token's `alg` is not the key's.
    #[error("the token's algorithm is not the one of its key")]
    Algorithm,
    /// The signature does not match.
    #[error("the token is not signed by a key that this service knows")]
    Signature,
    /// A claim that is needed is missing or has the wrong type.
    #[error("the token lacks the claim {0}, or its value has the wrong type")]
    Claim(&'static str),
    /// `exp` has passed.
    #[error("the token has expired")]
    Expired,
    /// `nbf` lies ahead.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// `iss` is another issuer.
    #[error("the token is from another issuer")]
    Issuer,
    /// `aud` does not name this service.
    #[error("the token is meant for another audience")]
    Audience,
    /// The tenant claim has too many values. To read fewer of them would be to guess.
    #[error("the token's tenant claim: {0}")]
    Tenants(#[from] TooManyTenants),
}

impl Validity {
    /// Checks the present time.
    ///
    /// # Errors
    /// [`TokenError::Expired`], [`TokenError::NotYetValid`]
    #[inline]
    pub fn check(&self, now: UnixSeconds, leeway_s: u64) -> Result<(), TokenError> {
        if now.0 >= self.expires.0.saturating_add(leeway_s) {
            return Err(TokenError::Expired);
        }
        if now.0.saturating_add(leeway_s) < self.not_before.0 {
            return Err(TokenError::NotYetValid);
        }
        Ok(())
    }
}

/// Verifies a token.
///
/// # Errors
/// See [`TokenError`]. Claims are looked at only after the signature.
pub fn verify(
    token: &[u8],
    keys: &KeySet,
    policy: &TokenPolicy,
    grants: &Grants,
    now: UnixSeconds,
) -> Result<VerifiedToken, TokenError> {
    let parsed = CompactToken::parse(token)?;
    let key = match keys.find(parsed.kid.as_deref(), &parsed.algorithm) {
        Found::Key(key) => key,
        Found::OtherAlgorithm => return Err(TokenError::Algorithm),
        Found::UnknownKid => return Err(TokenError::UnknownKid),
        Found::NotOne => return Err(TokenError::NotOneKey),
    };
    if !key.verifies(parsed.signed, &parsed.signature) {
        return Err(TokenError::Signature);
    }
    let claims = json::parse_object(&parsed.payload).ok_or(FormatError::Payload)?;
    check_issuer(&claims, policy)?;
    check_audience(&claims, policy)?;
    let expires = time(&claims, "exp")?.ok_or(TokenError::Claim("exp"))?;
    let not_before = time(&claims, "nbf")?.unwrap_or(UnixSeconds(0));
    let validity = Validity { not_before, expires };
    validity.check(now, policy.leeway_s)?;
    let identity = identity(&claims, token);
    let tenants = Tenants::of_claim(at_path(&claims, &policy.tenant_claim))?;
    Ok(VerifiedToken { roles: roles(&claims, policy, grants), identity, tenants, validity })
}

fn identity(claims: &Map<String, Value>, token: &[u8]) -> Identity {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    match text("sub") {
        Some(subject) => Identity::of_subject(text("iss").unwrap_or_default(), subject),
        None => Identity::of_token(token),
    }
}

/// Returns the value at a path of claims, one name per level.
fn at_path<'a>(claims: &'a Map<String, Value>, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(claims.get(first)?, |value, name| value.get(name))
}

fn check_issuer(claims: &Map<String, Value>, policy: &TokenPolicy) -> Result<(), TokenError> {
    let Some(wanted) = &policy.issuer else { return Ok(()) };
    match claims.get("iss") {
        Some(Value::String(issuer)) if issuer == wanted => Ok(()),
        Some(Value::String(_)) => Err(TokenError::Issuer),
        _ => Err(TokenError::Claim("iss")),
    }
}

fn check_audience(claims: &Map<String, Value>, policy: &TokenPolicy) -> Result<(), TokenError> {
    let named = match claims.get("aud") {
        None if policy.audiences.is_empty() => return Ok(()),
        Some(Value::String(one)) => is_own(policy, one),
        Some(Value::Array(list)) => {
            let texts = list.iter().take(CLAIM_VALUES_MAX).filter_map(Value::as_str);
            texts.into_iter().any(|audience| is_own(policy, audience))
        }
        None | Some(_) => return Err(TokenError::Claim("aud")),
    };
    if named { Ok(()) } else { Err(TokenError::Audience) }
}

fn is_own(policy: &TokenPolicy, audience: &str) -> bool {
    policy.audiences.iter().any(|own| own == audience)
}

/// Reads a NumericDate. A fraction is dropped; a negative time is zero.
fn time(
    claims: &Map<String, Value>,
    name: &'static str,
) -> Result<Option<UnixSeconds>, TokenError> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let Value::Number(number) = value else { return Err(TokenError::Claim(name)) };
    let seconds = number.as_u64().or_else(|| {
        // The conversion saturates, and a negative number becomes zero.
        number.as_f64().map(|seconds| seconds as u64)
    });
    seconds.map(|seconds| Some(UnixSeconds(seconds))).ok_or(TokenError::Claim(name))
}

/// Reads the role claim: a list of texts, or one text with values between blanks, as in `scope`
/// (RFC 8693, section 4.2). Any other value names no role.
fn roles(claims: &Map<String, Value>, policy: &TokenPolicy, grants: &Grants) -> Roles {
    let value = at_path(claims, &policy.role_claim);
    let union = |roles: Roles, value: &str| roles.union(grants.roles_of(value));
    match value {
        Some(Value::String(text)) => {
            text.split(' ').take(CLAIM_VALUES_MAX).fold(Roles::default(), union)
        }
        Some(Value::Array(list)) => {
            let texts = list.iter().take(CLAIM_VALUES_MAX).filter_map(Value::as_str);
            texts.fold(Roles::default(), union)
        }
        _ => Roles::default(),
    }
}

#[cfg(test)]
mod tests;
