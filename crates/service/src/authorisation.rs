//! The sender of a request, and what it may read.

use std::rc::Rc;
use std::sync::Arc;

use hotrow_access::caller::Sender;
use hotrow_access::grant::Roles;
use hotrow_answer::collections::Collections;
use hotrow_answer::context::ReadRequest;
use hotrow_answer::credential::{Credential, Denial};
use hotrow_answer::http_error::HttpError;
use hotrow_answer::metrics::{AccessOutcome, WorkerMetrics};
use hotrow_answer::route::ReadTarget;
use hotrow_answer::tenant_filter::TenantFilter;
use hotrow_config::access::Names;
use hotrow_gate::access::Authenticator;
use hotrow_gate::admission::Admission;
use hotrow_types::columns::Columns;
use hotrow_types::key::CollectionId;

use crate::shared::Shared;

const NO_ALIAS_GRANT: HttpError = HttpError::NotGranted(
    "no role of this credential may read the columns by which this path looks records up",
);

/// Check of credentials and grants by one worker, under the settings in force.
pub(crate) struct Authorisation {
    /// `None`: every request is allowed.
    authenticator: Option<Rc<Authenticator>>,
    admission: Arc<Admission>,
    collections: Arc<Collections>,
    metrics: Arc<WorkerMetrics>,
}

impl Authorisation {
    /// Creates the checks. `before`: those under other settings, whose knowledge is kept.
    pub(crate) fn new(
        shared: &Shared,
        metrics: &Arc<WorkerMetrics>,
        before: Option<&Self>,
    ) -> Rc<Self> {
        let known = before.and_then(|before| before.authenticator.as_ref());
        let authenticator = shared.access.as_ref().map(|access| {
            let same = known.filter(|own| own.is_of(access)).map(Rc::clone);
            same.unwrap_or_else(|| Rc::new(Authenticator::new(Arc::clone(access))))
        });
        Rc::new(Self {
            authenticator,
            admission: Arc::clone(&shared.admission),
            collections: Arc::clone(&shared.collections),
            metrics: Arc::clone(metrics),
        })
    }

    /// Returns whether no request needs a credential.
    pub(crate) fn is_open(&self) -> bool {
        self.authenticator.is_none()
    }

    /// Returns the sender of the request, by the credential that it presents.
    ///
    /// # Errors
    /// 401 for a missing or refused credential, 429 after too many, 503 without keys for tokens.
    #[inline]
    pub(crate) fn authenticate<'a>(
        &self,
        credential: impl FnOnce() -> Result<Credential<'a>, Denial>,
        request: &ReadRequest<'_>,
    ) -> Result<Sender, HttpError> {
        match &self.authenticator {
            None => Ok(Sender::default()),
            Some(authenticator) => {
                let rate = &self.admission.rate;
                let (outcome, result) = authenticator.check(rate, credential(), request);
                self.metrics.access.count(outcome);
                result
            }
        }
    }

    /// Notes in a request for records of a collection what its sender may read of them. `columns`:
    /// place of those that it may read.
    ///
    /// # Errors
    /// 403 where it may read nothing.
    #[inline]
    pub(crate) fn authorise<'a>(
        &self,
        id: CollectionId,
        sender: &'a Sender,
        columns: &'a mut Option<Arc<Columns>>,
        request: &mut ReadRequest<'a>,
    ) -> Result<(), HttpError> {
        let Some(authenticator) = &self.authenticator else { return Ok(()) };
        request.caller = sender.caller;
        let (rights, own) = authenticator
            .rights(id, sender.caller.roles)
            .inspect_err(|_| self.metrics.access.count(AccessOutcome::Forbidden))?;
        *columns = own;
        request.rights = rights;
        request.columns = columns.as_ref();
        request.sight = TenantFilter::new(self.collections.get(id).tenancy, &sender.tenants);
        Ok(())
    }

    /// Checks that the sender may read the columns of an alias: an answer shows that a record has
    /// the value.
    ///
    /// # Errors
    /// 403 where it may not.
    #[inline]
    pub(crate) fn check_alias_grant(
        &self,
        target: ReadTarget,
        request: &ReadRequest<'_>,
    ) -> Result<(), HttpError> {
        // Not the columns of the request, which a selection of fields may have narrowed.
        if !target.is_alias() || self.may_use_alias(target, request.caller.roles) {
            return Ok(());
        }
        self.metrics.access.count(AccessOutcome::Forbidden);
        Err(NO_ALIAS_GRANT)
    }

    fn may_use_alias(&self, target: ReadTarget, roles: Roles) -> bool {
        let Some(alias) = &self.collections.get(target.keys).alias else { return true };
        let columns = self.columns(target.of, roles);
        columns.is_none_or(|own| alias.settings.columns.iter().all(|c| own.has(c)))
    }

    /// Returns whether the sender that was checked last may read a target.
    pub(crate) fn may_read(&self, target: ReadTarget, roles: Roles) -> bool {
        self.check_read(target.of, roles).is_ok() && self.may_use_alias(target, roles)
    }

    /// Checks that the sender that was checked last may read a collection.
    ///
    /// # Errors
    /// 403 where it may not.
    pub(crate) fn check_read(&self, id: CollectionId, roles: Roles) -> Result<(), HttpError> {
        self.authenticator.as_ref().map_or(Ok(()), |own| own.rights(id, roles).map(|_| ()))
    }

    /// Returns the columns that the sender which was checked last may read; `None`: all.
    pub(crate) fn columns(&self, id: CollectionId, roles: Roles) -> Option<Arc<Columns>> {
        self.authenticator.as_ref()?.columns(id, roles)
    }

    /// Returns the names of roles, keys and certificates, where there are any.
    pub(crate) fn names(&self) -> Option<Arc<Names>> {
        self.authenticator.as_ref().map(|authenticator| authenticator.names())
    }

    /// Returns a number that changes with the grants and the keys.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.authenticator.as_ref().map(|authenticator| authenticator.generation())
    }
}
