//! Requirements of a request beyond the contract: a new read of the database, or a least position.
//! Each counts only where the collection allows it and the sender has the grant.

use hotrow_access::caller::Rights;
use hotrow_cache::{NotReached, ReadMode};
use hotrow_http1::fields::Fields;
use hotrow_types::version::Position;
use hotrow_types::writer_token::WriterToken;

use crate::collections::Collection;
use crate::http_error::HttpError;
use crate::respond::HOTROW_MIN_POSITION;
use crate::scan_detector::ScanSubject;

/// Requirement of a request beyond the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadRequirement {
    /// Any record within the contract's bound.
    None,
    /// A record that is read for this request.
    New,
    /// A record at least as new as this.
    AtLeast(LeastPosition),
}

/// Commits that an answer must reflect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeastPosition {
    /// Those up to a position that the client has from an earlier answer.
    At(Position),
    /// Those up to a point of which the database itself has informed a writer.
    Token(WriterToken),
    /// Those that had returned to their writers when the request was received (strict).
    Now,
}

/// Text form of [`LeastPosition::Now`].
const NOW: &[u8] = b"now";

/// A requirement, or why it is refused.
pub(crate) type Required = Result<ReadRequirement, &'static HttpError>;

impl ReadRequirement {
    /// Returns what header fields require of a collection.
    pub fn of_fields(fields: Fields<'_>, rights: Rights, collection: &Collection) -> Required {
        if let Some(position) = fields.get(HOTROW_MIN_POSITION) {
            return Self::at_least(position, rights, collection);
        }
        let new = collection.allow_no_cache
            && rights.may_bypass_cache
            && fields.get_all("cache-control").any(says_no_cache);
        Ok(if new { Self::New } else { Self::None })
    }

    /// Returns the requirement of a least position.
    pub fn at_least(position: &[u8], rights: Rights, collection: &Collection) -> Required {
        if position == NOW {
            return match (rights.may_require_strict, collection.strict) {
                (false, _) => Err(&NO_STRICT_GRANT),
                (_, false) => Err(&NO_STRICT_HERE),
                (true, true) => Ok(Self::AtLeast(LeastPosition::Now)),
            };
        }
        if !rights.may_require_position {
            return Err(&NO_POSITION_GRANT);
        }
        if !collection.allow_min_position {
            return Err(&NO_POSITIONS_HERE);
        }
        let text = std::str::from_utf8(position).map_err(|_| &BAD)?;
        if let Some(token) = WriterToken::parse(text) {
            let token = token.map_err(|_| &BAD_TOKEN)?;
            return Ok(Self::AtLeast(LeastPosition::Token(token)));
        }
        let position = Position::parse(text).map_err(|_| &BAD)?;
        Ok(Self::AtLeast(LeastPosition::At(position)))
    }
}

/// Returns the mode in which memory is asked; `None`: the request requires a read, or a minimal
/// position.
pub fn mode_of(required: Required, subject: ScanSubject<'_>) -> Option<ReadMode> {
    matches!(required, Ok(ReadRequirement::None)).then(|| subject.mode())
}

/// Answer to a request whose position was not reached before its deadline.
pub const NO_TIME: HttpError =
    HttpError::Timeout("the database has not reached the requested position");

static NO_POSITION_GRANT: HttpError = HttpError::NotGranted(
    "no role of this credential permits Hotrow-Min-Position (allow_min_position)",
);

static NO_POSITIONS_HERE: HttpError = HttpError::BadHeader(
    "this collection does not permit Hotrow-Min-Position (allow_min_position)",
);

static NO_STRICT_GRANT: HttpError =
    HttpError::NotGranted("no role of this credential permits Hotrow-Min-Position: now (strict)");

static NO_STRICT_HERE: HttpError = HttpError::BadHeader(
    "this collection does not permit Hotrow-Min-Position: now (strict = false)",
);

static BAD_TOKEN: HttpError = HttpError::BadHeader(
    "Hotrow-Min-Position is not a token of a database: lsn:0/16B3748, gtid:0-1-234, gtid:UUID:77, \
     optime:1732000000.3",
);

/// Refusal of a token of another kind of database than the one that is read.
pub const OTHER_TOKEN: HttpError = HttpError::BadHeader(
    "Hotrow-Min-Position is a token of another kind of database than this collection's",
);

/// Refusal of a token without an incarnation while no log is known whose it could be.
pub const NO_POSITION_YET: HttpError = HttpError::Unavailable(
    "the change feed has no position yet to compare the token with; send the request again",
);

/// Refusal of a token without an incarnation, shortly after another log has begun: it may be of the
/// one before.
pub const NEW_LOG: HttpError = HttpError::Unavailable(
    "the database has begun another log, and the token may be of the one before; send the request \
     again",
);

static BAD: HttpError = HttpError::BadHeader(
    "Hotrow-Min-Position is not a position: 16 hexadecimal digits, a hyphen and a decimal number, \
     as in an earlier Hotrow-Position, or `now`",
);

const OTHER_LOG: HttpError = HttpError::BadHeader(
    "Hotrow-Min-Position belongs to another database, or to one that was replaced",
);

/// Returns the answer to a position that was not reached.
pub fn refusal(not_reached: NotReached) -> HttpError {
    match not_reached {
        NotReached::OtherLog => OTHER_LOG,
        NotReached::NoPositions => HttpError::BadHeader(
            "this database is served without a change log, so it has no positions",
        ),
        NotReached::Beyond => NO_TIME,
    }
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
