//! Conditional requests (RFC 9110 section 13): decides whether the record is sent, is known
//! already, or is not the one the client means. There is no `Last-Modified`, so conditions on dates
//! and `Range` are ignored, as the RFC requires.

use hotrow_http1::fields::Fields;

const IF_MATCH: &str = "if-match";
const IF_NONE_MATCH: &str = "if-none-match";

/// Result of the conditions of a request, in the order of section 13.2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precondition {
    /// The request is answered as if it had no conditions.
    Holds,
    /// `If-Match` fails: 412.
    Fails,
    /// `If-Match` succeeds or is absent, and `If-None-Match` names the record: 304.
    NotModified,
}

/// Comparison of two entity tags (RFC 9110 section 8.8.3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// Both must be strong.
    Strong,
    /// `W/` is ignored.
    Weak,
}

/// Returns whether the request has conditions; most have none.
#[must_use]
pub(crate) fn has_any(headers: Fields<'_>) -> bool {
    headers.contains(IF_MATCH) || headers.contains(IF_NONE_MATCH)
}

/// Evaluates the conditions in `headers` for a record with this strong entity tag; `None`: there is
/// no such record. `If-None-Match` then has no effect, because a client does not store a 404.
#[must_use]
pub(crate) fn evaluate(headers: Fields<'_>, etag: Option<&[u8]>) -> Precondition {
    if matches(headers, IF_MATCH, etag, Comparison::Strong) == Some(false) {
        return Precondition::Fails;
    }
    match etag {
        Some(_) if matches(headers, IF_NONE_MATCH, etag, Comparison::Weak) == Some(true) => {
            Precondition::NotModified
        }
        Some(_) | None => Precondition::Holds,
    }
}

/// Returns whether the request's `If-Match` excludes an existing answer without an entity tag, such
/// as a batch: `*` matches it, a list of tags cannot.
#[must_use]
pub(crate) fn excludes_untagged(headers: Fields<'_>) -> bool {
    headers.contains(IF_MATCH) && !headers.get_all(IF_MATCH).any(is_any)
}

/// Returns whether the fields of that name match; `None`: there is none.
fn matches(headers: Fields<'_>, name: &str, etag: Option<&[u8]>, by: Comparison) -> Option<bool> {
    let mut fields = headers.get_all(name).peekable();
    fields.peek()?;
    Some(etag.is_some_and(|etag| fields.any(|field| names(field, etag, by))))
}

fn is_any(field: &[u8]) -> bool {
    field.trim_ascii() == b"*"
}

/// Returns whether a field is `*` or lists `etag`. Own tags consist of digits, so a part of a
/// foreign tag with a comma cannot look like one.
fn names(field: &[u8], etag: &[u8], by: Comparison) -> bool {
    let same = |tag: &[u8]| match (by, tag.strip_prefix(b"W/")) {
        (Comparison::Weak, Some(opaque)) => opaque == etag,
        (Comparison::Weak | Comparison::Strong, _) => tag == etag,
    };
    is_any(field) || field.split(|byte| *byte == b',').any(|tag| same(tag.trim_ascii()))
}

#[cfg(test)]
mod tests {
    use hotrow_http1::fields::FieldsBuf;

    use super::*;

    const ETAG: &[u8] = b"\"00ab\"";

    fn with(fields: &[(&str, &[u8])]) -> FieldsBuf {
        fields.iter().copied().collect()
    }

    #[test]
    fn if_none_match_compares_weakly() {
        for yes in [
            &b"\"00ab\""[..],
            b"W/\"00ab\"",
            b"\"x\", \"00ab\"",
            b"*",
            b" * ",
            b"\"\xff\",\"00ab\"",
        ] {
            let headers = with(&[(IF_NONE_MATCH, yes)]);
            assert_eq!(
                evaluate(headers.as_fields(), Some(ETAG)),
                Precondition::NotModified,
                "{headers:?}"
            );
            assert_eq!(evaluate(headers.as_fields(), None), Precondition::Holds, "{headers:?}");
        }
        for no in
            [&b"00ab"[..], b"\"00AB\"", b"\"\"", b"", b"\"x\",\"y\"", b"w/\"00ab\"", b"*, \"x\""]
        {
            let headers = with(&[(IF_NONE_MATCH, no)]);
            assert_eq!(
                evaluate(headers.as_fields(), Some(ETAG)),
                Precondition::Holds,
                "{headers:?}"
            );
        }
    }

    #[test]
    fn if_match_compares_strongly_and_needs_a_record() {
        for yes in [&b"\"00ab\""[..], b"\"x\" ,\"00ab\"", b"*", b"\t* "] {
            let headers = with(&[(IF_MATCH, yes)]);
            assert_eq!(
                evaluate(headers.as_fields(), Some(ETAG)),
                Precondition::Holds,
                "{headers:?}"
            );
            assert_eq!(evaluate(headers.as_fields(), None), Precondition::Fails, "{headers:?}");
        }
        for no in [&b"W/\"00ab\""[..], b"00ab", b"\"x\"", b"", b"\"00ab", b"**"] {
            let headers = with(&[(IF_MATCH, no)]);
            assert_eq!(
                evaluate(headers.as_fields(), Some(ETAG)),
                Precondition::Fails,
                "{headers:?}"
            );
        }
        let two = with(&[(IF_MATCH, b"\"x\""), (IF_MATCH, ETAG)]);
        assert_eq!(
            evaluate(two.as_fields(), Some(ETAG)),
            Precondition::Holds,
            "the lines are one list"
        );
    }

    #[test]
    fn if_match_comes_first() {
        for (if_match, if_none_match, outcome) in [
            (&b"\"x\""[..], &b"\"00ab\""[..], Precondition::Fails),
            (b"\"x\"", b"\"x\"", Precondition::Fails),
            (b"\"00ab\"", b"\"00ab\"", Precondition::NotModified),
            (b"\"00ab\"", b"\"x\"", Precondition::Holds),
        ] {
            let headers = with(&[(IF_MATCH, if_match), (IF_NONE_MATCH, if_none_match)]);
            assert_eq!(evaluate(headers.as_fields(), Some(ETAG)), outcome, "{headers:?}");
        }
        assert_eq!(evaluate(Fields::default(), None), Precondition::Holds);
    }

    #[test]
    fn only_an_asterisk_matches_an_answer_without_a_tag() {
        for (fields, excluded) in [
            (&[][..], false),
            (&[&b"*"[..]][..], false),
            (&[&b"\"x\""[..]], true),
            (&[&b""[..]], true),
            (&[&b"\"x\""[..], b"*"], false),
        ] {
            let headers = with(&fields.iter().map(|field| (IF_MATCH, *field)).collect::<Vec<_>>());
            assert_eq!(excludes_untagged(headers.as_fields()), excluded, "{headers:?}");
        }
    }
}
