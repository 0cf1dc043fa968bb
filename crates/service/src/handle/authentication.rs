//! The sender of a request.

use hotrow_access::caller::Sender;
use hotrow_answer::context::RequestContext;
use hotrow_answer::http_error::HttpError;

use super::Handler;

impl Handler {
    /// Returns the sender of the request.
    ///
    /// # Errors
    /// 401 for a missing or refused credential, 429 after too many, 503 without keys for tokens.
    #[inline]
    pub(crate) fn authenticate(&self, request: &RequestContext<'_>) -> Result<Sender, HttpError> {
        match &self.authenticator {
            None => Ok(Sender::default()),
            Some(authenticator) => {
                let (outcome, result) = authenticator.check(&self.shared.admission.rate, request);
                self.metrics.access.count(outcome);
                result
            }
        }
    }
}
