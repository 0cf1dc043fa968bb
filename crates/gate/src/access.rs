//! Access on the path of a request: its credential, the roles behind it, and their grants.
//!
//! Reading order: here, `credential` (what a request has), `principals` (API keys, certificates and
//! roles), `keys` and `jwks` (what verifies tokens), `failures`, `view`, `watch`.
//!
//! The credential is checked before the path is looked at, the grant before the cache. An API key
//! costs one hash, a token that its worker knows one hash and a reading of the wall clock. Only a
//! token that is new to its worker has its signature checked, and only while its client has not
//! sent too many credentials that were refused.

mod failures;
pub mod jwks;
pub mod key_source;
mod keys;
pub(crate) mod principals;
mod view;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use hotrow_access::caller::{Caller, Rights, Sender};
use hotrow_access::grant::Roles;
use hotrow_access::identity::Identity;
use hotrow_access::jwt::{FormatError, TOKEN_BYTES_MAX};
use hotrow_access::token_cache::{TokenCache, TokenHash};
use hotrow_access::verify::{TokenError, TokenPolicy, UnixSeconds, VerifiedToken, verify};
use hotrow_answer::context::ReadRequest;
use hotrow_answer::credential::{Credential, Denial};
use hotrow_answer::http_error::HttpError;
use hotrow_answer::metrics::AccessOutcome;
use hotrow_config::access::Names;
use hotrow_measure::clock::Nanos;
use hotrow_types::columns::Columns;
use hotrow_types::key::CollectionId;

use self::failures::Failures;
use self::keys::KeysInForce;
pub(crate) use self::keys::TokenAccess;
pub use self::principals::PrincipalsInForce;
use self::principals::Version;
use crate::admission::rate::RateLimits;

/// Verified tokens that one worker remembers: 112 bytes each, and their tenants, which are parts of
/// a token of at most 8 KiB.
const TOKENS_PER_WORKER: usize = 8_192;

/// Credentials and grants of the service.
#[derive(Debug)]
pub struct Access {
    principals: Arc<PrincipalsInForce>,
    tokens: Option<Arc<TokenAccess>>,
    /// Requirements on tokens.
    token_policy: Option<TokenPolicy>,
    failures: Arc<Failures>,
}

/// Check of credentials by one worker.
pub struct Authenticator {
    access: Arc<Access>,
    known: RefCell<Known>,
}

/// What a worker knows about credentials. It changes between two requests only.
struct Known {
    principals: Version,
    tokens: TokenCache,
    keys: KeysInForce,
}

impl Access {
    /// Resolves the configuration, which has been checked.
    pub fn new(config: &hotrow_config::access::Access, collections: usize, now: Nanos) -> Self {
        Self::after(None, config, collections, now)
    }

    /// Replaces `before`: what it knows of the clients' failures and of keys from a file or a URL
    /// is kept where the configuration says the same of them.
    pub fn after(
        before: Option<&Self>,
        config: &hotrow_config::access::Access,
        collections: usize,
        now: Nanos,
    ) -> Self {
        let counts = before.map(|before| before.principals.counts());
        let tokens = config.tokens.as_ref().map(|tokens| {
            let same = before.and_then(|before| before.tokens.as_ref());
            match same.filter(|same| same.has_source(&tokens.keys)) {
                Some(same) => Arc::clone(same),
                None => Arc::new(TokenAccess::new(tokens, now)),
            }
        });
        let same = before.filter(|before| before.failures.rate() == config.failures);
        Self {
            principals: Arc::new(PrincipalsInForce::new(
                config,
                collections,
                counts.unwrap_or_default(),
            )),
            tokens,
            token_policy: config.tokens.as_ref().map(|tokens| tokens.policy.clone()),
            failures: same.map_or_else(
                || Arc::new(Failures::new(config.failures, now)),
                |same| Arc::clone(&same.failures),
            ),
        }
    }

    /// Returns roles, API keys and certificates.
    pub fn principals(&self) -> &Arc<PrincipalsInForce> {
        &self.principals
    }

    /// Returns the keys of tokens.
    pub fn tokens(&self) -> Option<&Arc<TokenAccess>> {
        self.tokens.as_ref()
    }

    /// Returns whether every configured kind of credential can be checked.
    pub fn is_ready(&self, now: Nanos) -> bool {
        self.tokens.as_ref().is_none_or(|tokens| tokens.is_usable(now))
    }
}

const NOT_GRANTED: HttpError =
    HttpError::NotGranted("no role of this credential may read this collection");
const NO_KEYS: HttpError = HttpError::Unavailable(
    "tokens cannot be verified now: their keys were not read, or too long ago (jwks_max_age)",
);

/// How a credential was checked, and what it showed.
pub(crate) type Checked = (AccessOutcome, Result<Sender, HttpError>);

impl Authenticator {
    /// Creates the authenticator of one worker.
    pub fn new(access: Arc<Access>) -> Self {
        let tokens = if access.tokens.is_some() { TOKENS_PER_WORKER } else { 0 };
        let known = Known {
            principals: Version::default(),
            tokens: TokenCache::new(tokens),
            keys: KeysInForce::default(),
        };
        Self { access, known: RefCell::new(known) }
    }

    /// Returns whether it checks by `access`.
    pub fn is_of(&self, access: &Arc<Access>) -> bool {
        Arc::ptr_eq(&self.access, access)
    }

    /// Returns the rights on a collection of the sender of the request that was checked last, and
    /// the columns that it may read; `None`: all.
    ///
    /// # Errors
    /// 403 where it may not read. A name that does not exist is answered 404: the holder of a
    /// credential may learn the names of collections.
    #[inline]
    pub fn rights(
        &self,
        id: CollectionId,
        roles: Roles,
    ) -> Result<(Rights, Option<Arc<Columns>>), HttpError> {
        let known = self.known.borrow();
        let all = &known.principals.principals.grants;
        let grants = all.on(id);
        if !grants.may_read(roles) {
            return Err(NOT_GRANTED);
        }
        let rights = Rights {
            may_bypass_cache: grants.may_bypass_cache(roles),
            may_require_position: grants.may_require_position(roles),
            may_require_strict: grants.may_require_strict(roles),
        };
        Ok((rights, all.columns(id, roles)))
    }

    /// Returns the columns of a collection that the sender of the request that was checked last may
    /// read; `None`: all.
    #[inline]
    pub fn columns(&self, id: CollectionId, roles: Roles) -> Option<Arc<Columns>> {
        self.known.borrow().principals.principals.grants.columns(id, roles)
    }

    /// Returns a number that changes with the grants and the keys.
    pub fn generation(&self) -> u64 {
        let known = &mut *self.known.borrow_mut();
        self.access.principals.update(&mut known.principals);
        if let Some(tokens) = &self.access.tokens {
            tokens.update(&mut known.keys);
        }
        // Neither part decreases.
        known.principals.generation + known.keys.generation
    }

    /// Returns the names of the roles, keys and certificates by which the request that was checked
    /// last was judged.
    pub fn names(&self) -> Arc<Names> {
        Arc::clone(&self.known.borrow().principals.principals.names)
    }

    /// Returns the sender of a request. `rate`: what counts the failures of one client together.
    ///
    /// # Errors
    /// 401 for a missing or refused credential, 429 after too many, 503 without keys for tokens.
    pub fn check(
        &self,
        rate: &RateLimits,
        credential: Result<Credential<'_>, Denial>,
        request: &ReadRequest<'_>,
    ) -> Checked {
        let known = &mut *self.known.borrow_mut();
        self.access.principals.update(&mut known.principals);
        let principals = &*known.principals.principals;
        let caller = |roles, identity| Caller {
            roles,
            identity,
            rate_classes: principals.grants.rate_classes(roles),
        };
        match credential {
            Ok(Credential::None) => {
                let subject = request.connection.certificate_subject.as_deref();
                match subject.and_then(|subject| principals.certificates.find(subject)) {
                    Some((holder, identity)) => {
                        let caller = caller(holder.roles, Some(identity));
                        let tenants = holder.tenants.clone();
                        let sender = Sender { caller, tenants, expires: None };
                        (AccessOutcome::Certificate, Ok(sender))
                    }
                    None if principals.anonymous.is_empty() => {
                        (AccessOutcome::Missing, Err(HttpError::Unauthorized(Denial::Missing)))
                    }
                    None => {
                        (AccessOutcome::Anonymous, Ok(caller(principals.anonymous, None).into()))
                    }
                }
            }
            Ok(Credential::Key(text)) => match principals.keys.find(text) {
                Some(key) => {
                    let caller = caller(key.roles, Some(Identity::of_key(key.id)));
                    let tenants = key.tenants.clone();
                    (AccessOutcome::Key, Ok(Sender { caller, tenants, expires: None }))
                }
                None => self.refused(rate, request, Denial::Key),
            },
            Ok(Credential::Token(token)) => self.token(rate, request, token, known),
            Err(denial) => self.refused(rate, request, denial),
        }
    }

    fn token(
        &self,
        rate: &RateLimits,
        request: &ReadRequest<'_>,
        token: &[u8],
        known: &mut Known,
    ) -> Checked {
        let (Some(tokens), Some(policy)) = (&self.access.tokens, &self.access.token_policy) else {
            return self.refused(rate, request, Denial::NoTokens);
        };
        if token.len() > TOKEN_BYTES_MAX {
            let error = TokenError::Format(FormatError::TooLong);
            return self.refused(rate, request, Denial::Token(error));
        }
        let now = request.times.now;
        let Known { principals, tokens: cache, keys } = known;
        tokens.update(keys);
        if !tokens.is_usable(now) {
            return (AccessOutcome::NoKeys, Err(NO_KEYS));
        }
        let grants = &principals.principals.grants;
        // Neither part decreases, so the sum changes with each of them.
        let generation = keys.generation + principals.generation;
        let sender = |token: VerifiedToken| {
            let (roles, identity) = (token.roles, Some(token.identity));
            let caller = Caller { roles, identity, rate_classes: grants.rate_classes(roles) };
            Sender { caller, tenants: token.tenants, expires: Some(token.validity.expires) }
        };
        let hash = TokenHash::of(token);
        let wall = wall_clock();
        if let Some(verified) = cache.get(&hash, generation) {
            return match verified.validity.check(wall, policy.leeway_s) {
                Ok(()) => (AccessOutcome::KnownToken, Ok(sender(verified))),
                Err(error) => {
                    let denial = Denial::Token(error);
                    (AccessOutcome::Refused, Err(HttpError::Unauthorized(denial)))
                }
            };
        }
        let client = rate.client_key(request);
        if let Some(retry_after_s) = self.access.failures.wait_s(&client, now) {
            return (AccessOutcome::Limited, Err(HttpError::TooManyFailures { retry_after_s }));
        }
        match verify(token, &keys.set, policy, grants, wall) {
            Ok(verified) => {
                cache.insert(hash, generation, verified.clone());
                (AccessOutcome::Token, Ok(sender(verified)))
            }
            Err(error) => {
                if error == TokenError::UnknownKid {
                    tokens.unknown_key(now);
                }
                self.refused(rate, request, Denial::Token(error))
            }
        }
    }

    /// Counts a refused credential against its client.
    #[cold]
    fn refused(&self, rate: &RateLimits, request: &ReadRequest<'_>, denial: Denial) -> Checked {
        let client = rate.client_key(request);
        self.access.failures.count(&client, request.times.now);
        (AccessOutcome::Refused, Err(HttpError::Unauthorized(denial)))
    }
}

/// Reads the wall clock, which follows corrections of the system's time: expiry is a matter of the
/// issuer's clock.
pub fn wall_clock() -> UnixSeconds {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixSeconds(since_1970.as_secs())
}
