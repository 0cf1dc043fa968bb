//! Conditional requests (RFC 9110 section 13): decides whether the record is sent, is known
//! already, or is not the one the client means. There is no `Last-Modified`, so conditions on dates
//! and `Range` are ignored, as the RFC requires.

use hotrow_cache::ContentCoding;
use hotrow_http1::fields::Fields;

use crate::record_form::tag_suffix;

const IF_MATCH: &str = "if-match";
const IF_NONE_MATCH: &str = "if-none-match";

/// Result of the conditions of a request, in the order of section 13.2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The request is answered as if it had no conditions.
    Holds,
    /// `If-Match` fails: 412.
    Fails,
    /// `If-Match` succeeds or is absent, and `If-None-Match` names the record in this coding: 304.
    NotModified(Option<ContentCoding>),
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
#[inline]
pub fn has_any(headers: Fields<'_>) -> bool {
    headers.contains(IF_MATCH) || headers.contains(IF_NONE_MATCH)
}

/// Evaluates the conditions in `headers` for a record with this strong entity tag; `None`: there is
/// no such record. `If-None-Match` then has no effect, because a client does not store a 404.
///
/// A tag names any form of the record: the one without a coding, and each variant. `selected` is
/// the coding of the answer without conditions; if the request names another form alone, the 304
/// has the tag of that one, because a cache refreshes only the stored answer that a tag names (RFC
/// 9111 section 4.3.4).
pub fn evaluate(
    headers: Fields<'_>,
    etag: Option<&[u8]>,
    selected: Option<ContentCoding>,
) -> Precondition {
    if matches(headers, IF_MATCH, etag, selected, Comparison::Strong) == Match::Nothing {
        return Precondition::Fails;
    }
    match matches(headers, IF_NONE_MATCH, etag, selected, Comparison::Weak) {
        Match::Form(coding) => Precondition::NotModified(coding),
        Match::Absent | Match::Nothing => Precondition::Holds,
    }
}

/// Returns whether the request's `If-Match` excludes an existing answer without an entity tag, such
/// as a batch: `*` matches it, a list of tags cannot.
#[inline]
pub fn excludes_untagged(headers: Fields<'_>) -> bool {
    headers.contains(IF_MATCH) && !headers.get_all(IF_MATCH).any(is_any)
}

/// What the fields of one name match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    /// There is no such field.
    Absent,
    /// They name other records, or there is no record.
    Nothing,
    /// They name the record in this coding.
    Form(Option<ContentCoding>),
}

/// Returns the form that the fields of that name match, the selected one first.
fn matches(
    headers: Fields<'_>,
    name: &str,
    etag: Option<&[u8]>,
    selected: Option<ContentCoding>,
    by: Comparison,
) -> Match {
    let mut fields = headers.get_all(name).peekable();
    if fields.peek().is_none() {
        return Match::Absent;
    }
    let Some(etag) = etag else { return Match::Nothing };
    let mut named = Match::Nothing;
    for field in fields {
        if is_any(field) {
            return Match::Form(selected);
        }
        for tag in field.split(|byte| *byte == b',') {
            let found = named_by(tag.trim_ascii(), etag, by);
            if found == Match::Form(selected) {
                return found;
            }
            if named == Match::Nothing {
                named = found;
            }
        }
    }
    named
}

fn is_any(field: &[u8]) -> bool {
    field.trim_ascii() == b"*"
}

/// Returns the form that a tag names. Own tags consist of digits, letters and a hyphen, so a part
/// of a foreign tag with a comma cannot look like one.
fn named_by(tag: &[u8], etag: &[u8], by: Comparison) -> Match {
    let tag = match (by, tag.strip_prefix(b"W/")) {
        (Comparison::Weak, Some(opaque)) => opaque,
        (Comparison::Weak | Comparison::Strong, _) => tag,
    };
    let hash = etag.strip_suffix(b"\"").unwrap_or(etag);
    let suffix = tag.strip_prefix(hash).and_then(|rest| rest.strip_suffix(b"\""));
    let codings = ContentCoding::ALL.into_iter().map(Some);
    let mut forms = std::iter::once(None).chain(codings);
    let coding = forms.find(|coding| suffix == Some(tag_suffix(*coding).as_bytes()));
    coding.map_or(Match::Nothing, Match::Form)
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
                evaluate(headers.as_fields(), Some(ETAG), None),
                Precondition::NotModified(None),
                "{headers:?}"
            );
            assert_eq!(
                evaluate(headers.as_fields(), None, None),
                Precondition::Holds,
                "{headers:?}"
            );
        }
        for no in
            [&b"00ab"[..], b"\"00AB\"", b"\"\"", b"", b"\"x\",\"y\"", b"w/\"00ab\"", b"*, \"x\""]
        {
            let headers = with(&[(IF_NONE_MATCH, no)]);
            assert_eq!(
                evaluate(headers.as_fields(), Some(ETAG), None),
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
                evaluate(headers.as_fields(), Some(ETAG), None),
                Precondition::Holds,
                "{headers:?}"
            );
            assert_eq!(
                evaluate(headers.as_fields(), None, None),
                Precondition::Fails,
                "{headers:?}"
            );
        }
        for no in [&b"W/\"00ab\""[..], b"00ab", b"\"x\"", b"", b"\"00ab", b"**"] {
            let headers = with(&[(IF_MATCH, no)]);
            assert_eq!(
                evaluate(headers.as_fields(), Some(ETAG), None),
                Precondition::Fails,
                "{headers:?}"
            );
        }
        let two = with(&[(IF_MATCH, b"\"x\""), (IF_MATCH, ETAG)]);
        assert_eq!(
            evaluate(two.as_fields(), Some(ETAG), None),
            Precondition::Holds,
            "the lines are one list"
        );
    }

    #[test]
    fn if_match_comes_first() {
        for (if_match, if_none_match, outcome) in [
            (&b"\"x\""[..], &b"\"00ab\""[..], Precondition::Fails),
            (b"\"x\"", b"\"x\"", Precondition::Fails),
            (b"\"00ab\"", b"\"00ab\"", Precondition::NotModified(None)),
            (b"\"00ab\"", b"\"x\"", Precondition::Holds),
        ] {
            let headers = with(&[(IF_MATCH, if_match), (IF_NONE_MATCH, if_none_match)]);
            assert_eq!(evaluate(headers.as_fields(), Some(ETAG), None), outcome, "{headers:?}");
        }
        assert_eq!(evaluate(Fields::default(), None, None), Precondition::Holds);
    }

    #[test]
    fn a_tag_names_any_form_and_the_selected_one_first() {
        use ContentCoding::{Gzip, Zstd};
        for (field, selected, named) in [
            (&b"\"00ab\""[..], Some(Gzip), Some(None)),
            (b"\"00ab-gzip\"", None, Some(Some(Gzip))),
            (b"W/\"00ab-gzip\"", Some(Zstd), Some(Some(Gzip))),
            (b"\"00ab\", \"00ab-zstd\"", Some(Zstd), Some(Some(Zstd))),
            (b"\"00ab-zstd\", \"00ab\"", Some(Gzip), Some(Some(Zstd))),
            (b"*", Some(Gzip), Some(Some(Gzip))),
            (b"\"00ab-br\"", None, None),
            (b"\"00ab-\"", None, None),
            (b"\"00ab-gzip", None, None),
            (b"\"00abgzip\"", None, None),
            (b"\"00ab-gzip\"\"", None, None),
        ] {
            let headers = with(&[(IF_NONE_MATCH, field)]);
            let outcome = named.map_or(Precondition::Holds, Precondition::NotModified);
            assert_eq!(evaluate(headers.as_fields(), Some(ETAG), selected), outcome, "{headers:?}");
        }
        let variant = with(&[(IF_MATCH, b"\"00ab-gzip\"")]);
        assert_eq!(evaluate(variant.as_fields(), Some(ETAG), None), Precondition::Holds);
        let weak = with(&[(IF_MATCH, b"W/\"00ab-gzip\"")]);
        assert_eq!(evaluate(weak.as_fields(), Some(ETAG), None), Precondition::Fails);
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
