//! Access on the path of a request: its credential, the roles behind it, and their grants.
//!
//! The credential is checked before the path is looked at, the grant before the cache. An API key
//! costs one hash, a token that its worker knows one hash and a reading of the wall clock. Only a
//! token that is new to its worker has its signature checked, and only while its client has not
//! sent too many credentials that were refused.

mod credential;
mod failures;
pub(crate) mod jwks_file;
mod keys;

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use hotrow_access::grant::{ColumnSight, Grants, Roles};
use hotrow_access::jwt::{FormatError, TOKEN_BYTES_MAX};
use hotrow_access::key::{KeyTable, StoredKey};
use hotrow_access::token_cache::{TokenCache, TokenHash};
use hotrow_access::verify::{TokenError, UnixSeconds, VerifiedToken, verify};
use hotrow_measure::clock::Nanos;
use hotrow_types::key::CollectionId;
use hotrow_types::tenant::Tenants;

use self::credential::Credential;
pub(crate) use self::credential::Denial;
use self::failures::Failures;
use self::keys::KeysInForce;
pub(crate) use self::keys::TokenAccess;
use crate::config;
use crate::context::RequestContext;
use crate::handle::Handler;
use crate::http_error::HttpError;
use crate::metrics::AccessOutcome;

/// Verified tokens that one worker remembers: 96 bytes each, and their tenants, which are parts of
/// a token of at most 8 KiB.
const TOKENS_PER_WORKER: usize = 8_192;

/// Credentials and grants of the service.
#[derive(Debug)]
pub(crate) struct Access {
    grants: Grants,
    keys: KeyTable,
    anonymous: Roles,
    tokens: Option<Arc<TokenAccess>>,
    failures: Failures,
}

/// Sender of a request.
#[derive(Debug, Default)]
pub(crate) struct Sender<'a> {
    /// Its roles.
    pub(crate) roles: Roles,
    /// Its tenants; borrowed from an API key, which all workers share.
    pub(crate) tenants: Cow<'a, Tenants>,
}

impl From<Roles> for Sender<'_> {
    fn from(roles: Roles) -> Self {
        Self { roles, tenants: Cow::Owned(Tenants::NONE) }
    }
}

impl From<VerifiedToken> for Sender<'_> {
    fn from(VerifiedToken { roles, tenants, .. }: VerifiedToken) -> Self {
        Self { roles, tenants: Cow::Owned(tenants) }
    }
}

/// Grants of a request's sender on the requested collection, beyond reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    /// `Cache-Control: no-cache` counts.
    pub(crate) may_bypass_cache: bool,
    /// `Hotrow-Min-Position` counts.
    pub(crate) may_require_position: bool,
}

impl Rights {
    /// Rights where access is not configured.
    pub(crate) const ALL: Self = Self { may_bypass_cache: true, may_require_position: true };
}

/// Check of credentials by one worker.
pub(crate) struct Authenticator {
    access: Arc<Access>,
    known: RefCell<KnownTokens>,
}

/// What a worker knows about tokens.
struct KnownTokens {
    cache: TokenCache,
    keys: KeysInForce,
}

impl Access {
    /// Resolves the configuration, which has been checked.
    pub(crate) fn new(config: &config::access::Access, collections: usize, now: Nanos) -> Self {
        Self {
            // Without roles or with two equal ids nothing is granted; the configuration has refused
            // both.
            grants: Grants::new(&config.roles, collections).unwrap_or_default(),
            keys: KeyTable::new(config.keys.clone()).unwrap_or_default(),
            anonymous: config.anonymous,
            tokens: config.tokens.as_ref().map(|tokens| Arc::new(TokenAccess::new(tokens, now))),
            failures: Failures::new(config.failures, now),
        }
    }

    /// Returns the sender's rights on a collection.
    ///
    /// # Errors
    /// 403 where it may not read. A name that does not exist is answered 404: the holder of a
    /// credential may learn the names of collections.
    #[inline]
    pub(crate) fn rights(&self, id: CollectionId, roles: Roles) -> Result<Rights, HttpError> {
        let grants = self.grants.on(id);
        if !grants.may_read(roles) {
            return Err(NOT_GRANTED);
        }
        Ok(Rights {
            may_bypass_cache: grants.may_bypass_cache(roles),
            may_require_position: grants.may_require_position(roles),
        })
    }

    /// Returns the columns of a collection that the sender may read.
    #[inline]
    pub(crate) fn columns(&self, id: CollectionId, roles: Roles) -> ColumnSight<'_> {
        self.grants.columns(id, roles)
    }

    /// Returns the keys of tokens that are read from a file.
    pub(crate) fn tokens(&self) -> Option<&Arc<TokenAccess>> {
        self.tokens.as_ref()
    }

    /// Returns whether every configured kind of credential can be checked.
    pub(crate) fn is_ready(&self, now: Nanos) -> bool {
        self.tokens.as_ref().is_none_or(|tokens| tokens.is_usable(now))
    }
}

const NOT_GRANTED: HttpError =
    HttpError::NotGranted("no role of this credential may read this collection");
const NO_KEYS: HttpError = HttpError::Unavailable(
    "tokens cannot be verified now: their keys were not read, or too long ago (jwks_max_age)",
);

impl Handler {
    /// Returns the sender; one without roles where access is not configured.
    ///
    /// # Errors
    /// 401 for a missing or refused credential, 429 after too many, 503 without keys for tokens.
    #[inline]
    pub(crate) fn authenticate<'h>(
        &'h self,
        request: &RequestContext<'_>,
    ) -> Result<Sender<'h>, HttpError> {
        match &self.authenticator {
            None => Ok(Roles::default().into()),
            Some(authenticator) => {
                let (outcome, result) = authenticator.check(self, request);
                self.metrics.access.count(outcome);
                result
            }
        }
    }
}

impl Authenticator {
    pub(crate) fn new(access: Arc<Access>) -> Self {
        let tokens = if access.tokens.is_some() { TOKENS_PER_WORKER } else { 0 };
        let known = KnownTokens { cache: TokenCache::new(tokens), keys: KeysInForce::default() };
        Self { access, known: RefCell::new(known) }
    }

    fn check(
        &self,
        handler: &Handler,
        request: &RequestContext<'_>,
    ) -> (AccessOutcome, Result<Sender<'_>, HttpError>) {
        let access = &*self.access;
        match Credential::of(request.headers) {
            Ok(Credential::None) if access.anonymous.is_empty() => {
                (AccessOutcome::Missing, Err(HttpError::Unauthorized(Denial::Missing)))
            }
            Ok(Credential::None) => (AccessOutcome::Anonymous, Ok(access.anonymous.into())),
            Ok(Credential::Key(text)) => match access.keys.find(text) {
                Some(StoredKey { roles, tenants, .. }) => {
                    let sender = Sender { roles: *roles, tenants: Cow::Borrowed(tenants) };
                    (AccessOutcome::Key, Ok(sender))
                }
                None => self.refused(handler, request, Denial::Key),
            },
            Ok(Credential::Token(token)) => self.token(handler, request, token),
            Err(denial) => self.refused(handler, request, denial),
        }
    }

    fn token(
        &self,
        handler: &Handler,
        request: &RequestContext<'_>,
        token: &[u8],
    ) -> (AccessOutcome, Result<Sender<'_>, HttpError>) {
        let Some(tokens) = &self.access.tokens else {
            return self.refused(handler, request, Denial::NoTokens);
        };
        if token.len() > TOKEN_BYTES_MAX {
            let error = TokenError::Format(FormatError::TooLong);
            return self.refused(handler, request, Denial::Token(error));
        }
        let now = request.times.now;
        let mut known = self.known.borrow_mut();
        let KnownTokens { cache, keys } = &mut *known;
        tokens.update(keys);
        if !tokens.is_usable(now) {
            return (AccessOutcome::NoKeys, Err(NO_KEYS));
        }
        let hash = TokenHash::of(token);
        let wall = wall_clock();
        if let Some(known) = cache.get(&hash, keys.generation) {
            return match known.validity.check(wall, tokens.policy.leeway_s) {
                Ok(()) => (AccessOutcome::KnownToken, Ok(known.into())),
                Err(error) => {
                    let denial = Denial::Token(error);
                    (AccessOutcome::Refused, Err(HttpError::Unauthorized(denial)))
                }
            };
        }
        let client = handler.shared.admission.rate.client_key(request);
        if let Some(retry_after_s) = self.access.failures.wait_s(&client, now) {
            return (AccessOutcome::Limited, Err(HttpError::TooManyFailures { retry_after_s }));
        }
        match verify(token, &keys.set, &tokens.policy, &self.access.grants, wall) {
            Ok(verified) => {
                cache.insert(hash, keys.generation, verified.clone());
                (AccessOutcome::Token, Ok(verified.into()))
            }
            Err(error) => {
                if error == TokenError::UnknownKid {
                    tokens.unknown_key(now);
                }
                self.refused(handler, request, Denial::Token(error))
            }
        }
    }

    /// Counts a refused credential against its client.
    #[cold]
    fn refused(
        &self,
        handler: &Handler,
        request: &RequestContext<'_>,
        denial: Denial,
    ) -> (AccessOutcome, Result<Sender<'_>, HttpError>) {
        let client = handler.shared.admission.rate.client_key(request);
        self.access.failures.count(&client, request.times.now);
        (AccessOutcome::Refused, Err(HttpError::Unauthorized(denial)))
    }
}

/// Reads the wall clock, which follows corrections of the system's time: expiry is a matter of the
/// issuer's clock.
fn wall_clock() -> UnixSeconds {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixSeconds(since_1970.as_secs())
}
