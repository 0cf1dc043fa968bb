//! Priority of a request: the requested one, and the highest allowed.

use hotrow_admission::shed::Priority;
use hotrow_answer::collections::Collection;
use hotrow_http1::fields::Fields;

/// `low`, `normal` or `high`.
const HOTROW_PRIORITY: &str = "hotrow-priority";

/// Returns the priority of a request: its collection's, unless headers count (`honours_header`)
/// and this one is valid. Any client may lower it; raising it needs the collection's
/// `allow_high_priority`. An invalid value is ignored, because the header is a hint.
pub fn of(honours_header: bool, collection: &Collection, request_headers: Fields<'_>) -> Priority {
    match honours_header {
        true => granted(request_headers.get(HOTROW_PRIORITY).and_then(parse), collection),
        false => collection.priority,
    }
}

fn granted(asked: Option<Priority>, collection: &Collection) -> Priority {
    let ceiling = if collection.allow_high_priority { Priority::High } else { collection.priority };
    asked.map_or(collection.priority, |asked| asked.min(ceiling))
}

fn parse(value: &[u8]) -> Option<Priority> {
    Priority::ALL
        .into_iter()
        .find(|priority| value.eq_ignore_ascii_case(priority.label().as_bytes()))
}

#[cfg(test)]
mod tests {
    use hotrow_types::key::{CollectionId, KeySchema, KeyType};
    use http::HeaderValue;

    use super::*;

    fn collection(priority: Priority, allow_high_priority: bool) -> Collection {
        Collection {
            name: "a".into(),
            source: hotrow_types::source::SourceId::FIRST,
            schema: KeySchema::new(CollectionId(0), vec![KeyType::Integer]),
            cache_control: HeaderValue::from_static("no-cache"),
            allow_no_cache: false,
            allow_min_position: false,
            strict: true,
            allow_fields: false,
            priority,
            allow_high_priority,
            tenancy: None,
            compression: None,
            is_removed: false,
            alias: None,
            surrogate_keys: None,
        }
    }

    #[test]
    fn any_client_may_lower_its_priority_and_raising_needs_permission() {
        use Priority::{High, Low, Normal};
        let of = |asked, own, allowed| granted(asked, &collection(own, allowed));
        assert_eq!((of(None, Normal, false), of(None, Low, true)), (Normal, Low));
        assert_eq!((of(Some(Low), Normal, false), of(Some(Low), Normal, true)), (Low, Low));
        assert_eq!((of(Some(High), Normal, false), of(Some(High), Normal, true)), (Normal, High));
        assert_eq!((of(Some(Normal), Low, false), of(Some(High), Low, true)), (Low, High));
    }

    #[test]
    fn invalid_priorities_are_ignored() {
        assert_eq!(parse(b"LOW"), Some(Priority::Low));
        for no in [&b""[..], b"lowest", b" low", b"1", b"\xff"] {
            assert_eq!(parse(no), None, "{no:?}");
        }
    }
}
