//! Requirements of a request beyond the contract: a new read of the database, or a least position.
//! Each counts only where the collection allows it and the sender has the grant.

use hotrow_types::key::CollectionId;

use crate::context::RequestContext;
use crate::handle::Handler;
use crate::http_error::HttpError;
use crate::position;
use crate::respond::HOTROW_MIN_POSITION;

impl Handler {
    /// Parses the headers that ask for more than the contract.
    pub(crate) fn mode(
        &self,
        id: CollectionId,
        request: &RequestContext<'_>,
    ) -> Result<ReadRequirement, HttpError> {
        let collection = self.shared.collections.get(id);
        if let Some(wanted) = request.headers.get(HOTROW_MIN_POSITION) {
            if !request.rights.may_require_position {
                return Err(NO_POSITION_GRANT);
            }
            return position::wanted(collection, wanted).map(ReadRequirement::AtLeast);
        }
        let new = collection.allow_no_cache
            && request.rights.may_bypass_cache
            && request.headers.get_all("cache-control").any(says_no_cache);
        Ok(if new { ReadRequirement::New } else { ReadRequirement::None })
    }
}

const NO_POSITION_GRANT: HttpError = HttpError::NotGranted(
    "no role of this credential permits Hotrow-Min-Position (allow_min_position)",
);

/// Requirement of a request beyond the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadRequirement {
    None,
    New,
    AtLeast(hotrow_types::version::Position),
}

/// Returns whether the directives contain `no-cache` (RFC 9111, section 5.2.1.4).
fn says_no_cache(directives: &[u8]) -> bool {
    let mut directives = directives.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    directives.any(|directive| directive.eq_ignore_ascii_case(b"no-cache"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cache_is_a_directive_of_its_own() {
        for yes in ["no-cache", "max-age=0, No-Cache", " no-cache "] {
            assert!(says_no_cache(yes.as_bytes()), "{yes}");
        }
        for no in ["", "no-cache-at-all", "max-age=0", "no-store"] {
            assert!(!says_no_cache(no.as_bytes()), "{no}");
        }
    }
}
