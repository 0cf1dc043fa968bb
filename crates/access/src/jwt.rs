//! The compact form of a signed token (RFC 7515, section 7.1): header, payload and signature in
//! base64url, joined by dots. Nothing here is verified yet.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use crate::json;

/// Longest token in bytes.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Longest key id in bytes.
pub const KID_BYTES_MAX: usize = 256;
/// Longest signature in bytes: RSA with 4,096 bits.
const SIGNATURE_BYTES_MAX: usize = 512;
/// Values of `typ` that a token for access may have, in lower case. Others mark tokens made for
/// something else, such as a logout or a proof of possession (RFC 8725, section 3.11).
const TYPES: [&str; 2] = ["jwt", "at+jwt"];

/// A token in its parts.
pub struct CompactToken<'a> {
    /// Algorithm that the header names.
    pub algorithm: String,
    /// Id of the signing key, if the header names one.
    pub kid: Option<String>,
    /// The signed bytes: header and payload as received.
    pub signed: &'a [u8],
    /// The payload, decoded.
    pub payload: Vec<u8>,
    /// The signature, decoded.
    pub signature: Vec<u8>,
}

/// Reason for which a text is no token that this service reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Longer than [`TOKEN_BYTES_MAX`].
    #[error("the token has more than {TOKEN_BYTES_MAX} bytes")]
    TooLong,
    /// Not three parts of base64url without padding.
    #[error("the token is not three parts of base64url without padding, joined by dots")]
    Encoding,
    /// The header is not a JSON object, or has a name twice.
    #[error("the token's header is not a JSON object, is nested too deeply, or has a name twice")]
    Header,
    /// The header lacks `alg`, or a parameter of it has the wrong type.
    #[error("the token's header has no text as alg, or a parameter of the wrong type")]
    Parameter,
    /// The header requires extensions (`crit`), of which none is known here.
    #[error("the token's header requires an extension (crit), and none is supported")]
    Critical,
    /// The token was made for another purpose.
    #[error("the token's typ is neither JWT nor at+jwt: it was made for another purpose")]
    Type,
    /// The payload is not a JSON object, or has a name twice.
    #[error("the token's payload is not a JSON object, is nested too deeply, or has a name twice")]
    Payload,
}

impl fmt::Debug for CompactToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactToken").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl<'a> CompactToken<'a> {
    /// Splits and decodes a token.
    ///
    /// # Errors
    /// See [`FormatError`]. No error repeats a part of the token.
    pub fn parse(token: &'a [u8]) -> Result<Self, FormatError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(FormatError::TooLong);
        }
        let mut parts = token.split(|byte| *byte == b'.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(FormatError::Encoding);
        };
        let signed = &token[..header.len() + 1 + payload.len()];
        let header = json::parse_object(&decode(header)?).ok_or(FormatError::Header)?;
        let (algorithm, kid) = parameters(&header)?;
        let payload = decode(payload)?;
        let signature = decode(signature)?;
        if signature.len() > SIGNATURE_BYTES_MAX {
            return Err(FormatError::Encoding);
        }
        Ok(Self { algorithm, kid, signed, payload, signature })
    }
}

/// Decodes a part that is not empty. The decoder refuses padding, other alphabets and bits beyond
/// the last byte, so that a part has one form.
fn decode(part: &[u8]) -> Result<Vec<u8>, FormatError> {
    if part.is_empty() {
        return Err(FormatError::Encoding);
    }
    URL_SAFE_NO_PAD.decode(part).map_err(|_| FormatError::Encoding)
}

/// Returns `alg` and `kid`. Keys that a header carries or points to (`jwk`, `jku`, `x5c`, `x5u`)
/// are never looked at.
fn parameters(header: &Map<String, Value>) -> Result<(String, Option<String>), FormatError> {
    if header.contains_key("crit") {
        return Err(FormatError::Critical);
    }
    let text = |name| match header.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(FormatError::Parameter),
    };
    let kind = text("typ")?.map(str::to_ascii_lowercase);
    let kind = kind.as_deref().map(|kind| kind.strip_prefix("application/").unwrap_or(kind));
    if kind.is_some_and(|kind| !TYPES.contains(&kind)) {
        return Err(FormatError::Type);
    }
    let kid = text("kid")?;
    if kid.is_some_and(|kid| kid.len() > KID_BYTES_MAX) {
        return Err(FormatError::Parameter);
    }
    let algorithm = text("alg")?.ok_or(FormatError::Parameter)?;
    Ok((algorithm.to_owned(), kid.map(ToOwned::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(header: &str) -> String {
        format!("{}.e30.AA", URL_SAFE_NO_PAD.encode(header))
    }

    fn error(token: &str) -> Option<FormatError> {
        CompactToken::parse(token.as_bytes()).err()
    }

    #[test]
    fn a_token_has_three_strict_parts() {
        let good = token(r#"{"alg":"RS256","kid":"a"}"#);
        let parsed = CompactToken::parse(good.as_bytes()).expect("a token");
        assert_eq!((parsed.algorithm.as_str(), parsed.kid.as_deref()), ("RS256", Some("a")));
        assert_eq!((&parsed.payload[..], &parsed.signature[..]), (&b"{}"[..], &[0][..]));
        assert_eq!(parsed.signed, &good.as_bytes()[..good.len() - 3]);
        let header = &good[..good.len() - 7];
        assert_eq!(error(&format!("{header}.e30.{}AAA", "AAAA".repeat(170))), None);
        for (wrong, why) in [
            (String::new(), FormatError::Encoding),
            ("..".to_owned(), FormatError::Encoding),
            (format!("{header}.e30"), FormatError::Encoding),
            (format!("{header}.e30."), FormatError::Encoding),
            (format!("{header}..AA"), FormatError::Encoding),
            (format!("{header}.e30.AA."), FormatError::Encoding),
            (format!("{header}.e30.AA.AA.AA"), FormatError::Encoding),
            (format!("{header}.e30=.AA"), FormatError::Encoding),
            (format!("{header}.e30.AA=="), FormatError::Encoding),
            (format!("{header}.e30.AB"), FormatError::Encoding),
            (format!("{header}.e30.A"), FormatError::Encoding),
            (format!("{header}.e30.+/"), FormatError::Encoding),
            (format!("{header}.e30.A A"), FormatError::Encoding),
            (format!(" {header}.e30.AA"), FormatError::Encoding),
            (format!("{header}.e30.{}", "AAAA".repeat(171)), FormatError::Encoding),
            ("A".repeat(8_192), FormatError::Encoding),
            ("A".repeat(8_193), FormatError::TooLong),
        ] {
            assert_eq!(error(&wrong), Some(why), "{wrong}");
        }
    }

    #[test]
    fn headers_are_strict() {
        for good in [
            r#"{"alg":"x"}"#,
            r#"{"alg":"x","typ":"JWT"}"#,
            r#"{"alg":"x","typ":"application/at+JWT","jwk":{},"jku":"http://evil.example"}"#,
        ] {
            assert_eq!(error(&token(good)), None, "{good}");
        }
        for (wrong, why) in [
            (r#"{"alg":"x","alg":"x"}"#, FormatError::Header),
            (r#"{"alg":"x","jwk":{"a":1,"a":2}}"#, FormatError::Header),
            (r#"["alg"]"#, FormatError::Header),
            (r#"{"alg":"x"} x"#, FormatError::Header),
            (r#"{}"#, FormatError::Parameter),
            (r#"{"alg":null}"#, FormatError::Parameter),
            (r#"{"alg":["x"]}"#, FormatError::Parameter),
            (r#"{"alg":"x","kid":7}"#, FormatError::Parameter),
            (r#"{"alg":"x","typ":7}"#, FormatError::Parameter),
            (r#"{"alg":"x","crit":["b64"],"b64":false}"#, FormatError::Critical),
            (r#"{"alg":"x","crit":[]}"#, FormatError::Critical),
            (r#"{"alg":"x","typ":"logout+jwt"}"#, FormatError::Type),
            (r#"{"alg":"x","typ":"dpop+jwt"}"#, FormatError::Type),
            (r#"{"alg":"x","typ":""}"#, FormatError::Type),
        ] {
            assert_eq!(error(&token(wrong)), Some(why), "{wrong}");
        }
        let of_kid = |bytes| token(&format!(r#"{{"alg":"x","kid":"{}"}}"#, "k".repeat(bytes)));
        assert_eq!(error(&of_kid(KID_BYTES_MAX)), None);
        assert_eq!(error(&of_kid(KID_BYTES_MAX + 1)), Some(FormatError::Parameter));
    }
}
