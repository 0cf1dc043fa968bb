//! Decisions of access: who sends a request, and what it may read.
//!
//! | module | question |
//! |---|---|
//! | [`key`] | Is this API key one of the configured keys? |
//! | [`certificate`] | Which roles has the subject of this client certificate? |
//! | [`jwks`], [`verify`] | Has a known key signed this token, and is it for this service now? |
//! | [`token_cache`] | Was this token verified before? |
//! | [`key_refresh`] | When are the issuer's keys fetched, and when are they too old? |
//! | [`grant`] | What may the holder of these roles read, and which rate limits apply? |
//! | [`caller`] | Who sends a request, and with which rights? |
//! | [`identity`] | Are two requests of the same holder? |
//!
//! A *credential* is an API key, a JSON Web Token (JWT, RFC 7519) or a client certificate. It has a
//! set of *roles*, and a role has grants. Nothing here does I/O, reads a clock or draws random
//! numbers. No error and no `Debug` output contains a secret.

pub mod caller;
pub mod certificate;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod grant;
pub mod identity;
pub mod json;
pub mod jwks;
pub mod jwt;
pub mod key;
pub mod key_refresh;
pub mod token_cache;
#[cfg(any(test, fuzzing))]
mod vectors;
pub mod verify;
