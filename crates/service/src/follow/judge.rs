//! The credential of a follower, checked again while it follows: at the expiry of its token, and
//! whenever grants, keys or settings have changed.

use std::rc::Rc;

use hotrow_access::verify::UnixSeconds;
use hotrow_answer::context::{ConnectionContext, ReadRequest, RequestTimes};
use hotrow_changes::follow::EndCause;
use hotrow_gate::access::wall_clock;
use hotrow_http1::fields::FieldsBuf;
use hotrow_measure::clock::Nanos;
use hotrow_types::key::CollectionId;

use super::Following;

/// Credential of a follower.
pub(super) struct Credential {
    connection: Rc<ConnectionContext>,
    headers: FieldsBuf,
    /// Expiry of its token.
    expires: Option<UnixSeconds>,
    /// Settings, and version of their grants and keys, by which it was judged.
    judged_by: (Rc<Following>, Option<u64>),
}

impl Credential {
    /// Takes the credential of a request that was judged by `following`.
    pub(crate) fn new(
        request: &ReadRequest<'_>,
        expires: Option<UnixSeconds>,
        following: &Rc<Following>,
    ) -> Self {
        Self {
            connection: Rc::clone(request.connection),
            headers: request.headers.to_buf(),
            expires,
            judged_by: (Rc::clone(following), following.reads.authorisation.generation()),
        }
    }

    /// Returns the settings by which it was judged.
    pub(super) fn following(&self) -> &Rc<Following> {
        &self.judged_by.0
    }

    /// Judges it again by `newest`, if anything that it depends on has changed.
    ///
    /// # Errors
    /// The reason to end.
    pub(super) fn judge(
        &mut self,
        newest: Option<Rc<Following>>,
        id: CollectionId,
    ) -> Result<(), EndCause> {
        // None while the worker ends.
        let following = newest.unwrap_or_else(|| Rc::clone(self.following()));
        let now_judged_by = following.reads.authorisation.generation();
        let is_expired = self.expires.is_some_and(|expires| wall_clock() >= expires);
        let is_same = Rc::ptr_eq(&following, self.following()) && self.judged_by.1 == now_judged_by;
        if is_same && !is_expired {
            return Ok(());
        }
        if following.reads.collections.get(id).is_removed {
            return Err(EndCause::Removed);
        }
        let headers = self.headers.as_fields();
        let times = RequestTimes::of_arrival(Nanos::now());
        let request = ReadRequest::new(&self.connection, headers, times);
        let credential = || hotrow_answer::credential::Credential::of(headers);
        let sender = following
            .reads
            .authorisation
            .authenticate(credential, &request)
            .map_err(|_| EndCause::Access)?;
        following
            .reads
            .authorisation
            .check_read(id, sender.caller.roles)
            .map_err(|_| EndCause::Access)?;
        self.expires = sender.expires;
        self.judged_by = (following, now_judged_by);
        Ok(())
    }
}
