//! The sender of a request, and what it may read.

use std::sync::Arc;

use hotrow_access::caller::Sender;
use hotrow_types::columns::Columns;
use hotrow_types::key::CollectionId;

use super::Handler;
use crate::access::credential::{Credential, Denial};
use crate::context::ReadRequest;
use crate::http_error::HttpError;
use crate::metrics::AccessOutcome;
use crate::sight::Sight;

impl Handler {
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
                let rate = &self.shared.admission.rate;
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
        request.sight = Sight::new(self.shared.collections.get(id).tenancy, &sender.tenants);
        Ok(())
    }
}
