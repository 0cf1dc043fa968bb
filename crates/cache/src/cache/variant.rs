//! Addition of a compressed variant to an entry, within the capacity.

use super::Cache;
use crate::record::{ContentCoding, Record};
use crate::store::Attached;

/// Times that an addition is tried again because another one to the same entry came first: one for
/// each other coding.
const ATTEMPTS_MAX: usize = ContentCoding::ALL.len();

impl<E: Clone> Cache<E> {
    /// Adds a variant, made of the body of `record`, to the entry of its key. The entry may be
    /// another record by now: it gets the variant only if it has the same body. Entries are evicted
    /// to make room, so that the capacity holds.
    pub fn attach_variant(&self, record: &Record, coding: ContentCoding, bytes: &[u8]) -> Attached {
        for _ in 0..ATTEMPTS_MAX {
            let Some(current) = self.store.peek_same_key(record) else {
                return Attached::Superseded;
            };
            if !current.is(record) && current.body() != record.body() {
                return Attached::Superseded;
            }
            let Some(with) = current.with_variant(coding, bytes) else {
                return Attached::Superseded;
            };
            let (collection, _) = self.collection(record.collection());
            // Entries are written under this lock only (I6).
            let _fetches = collection.fetch_queue.lock();
            match self.store.exchange(&current, with) {
                Attached::Superseded => {}
                done => return done,
            }
        }
        Attached::Superseded
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;
    use crate::Freshness;
    use crate::config::Config;
    use crate::testkit::{LOGGED, ONLY, START, TestCache, cache, config, key, ms, record_of};

    const OLD: &[u8] = b"{\"price\":1,\"text\":\"aaaaaaaaaaaaaaaaaaaaaaaa\"}";
    const NEW: &[u8] = b"{\"price\":2,\"text\":\"aaaaaaaaaaaaaaaaaaaaaaaa\"}";
    const GZIP: ContentCoding = ContentCoding::Gzip;

    fn put(cache: &TestCache, id: i64, body: &[u8]) -> Record {
        let record = record_of(&key(id), Some(body));
        cache.store.insert(&key(id), &record);
        record
    }

    fn variant(cache: &TestCache, id: i64) -> Option<Vec<u8>> {
        let record = cache.store.peek(&key(id))?;
        record.variant(GZIP).map(<[u8]>::to_vec)
    }

    #[test]
    fn a_variant_is_served_with_its_entry() {
        let cache = cache(config());
        let record = put(&cache, 1, OLD);
        assert_eq!(cache.attach_variant(&record, GZIP, b"gz"), Attached::Stored);
        let (current, freshness) = cache.peek(&key(1), START).unwrap();
        assert_eq!((current.body(), freshness), (OLD, Freshness::Fresh));
        assert_eq!(current.variant(GZIP), Some(&b"gz"[..]));
        assert_eq!(cache.stats(key(1).collection()).entries, 1);
        assert_eq!(cache.stats(key(1).collection()).bytes, current.weight_bytes());
    }

    #[test]
    fn variants_of_both_codings_made_of_one_record_are_kept() {
        let cache = cache(config());
        let record = put(&cache, 1, OLD);
        let _ = cache.attach_variant(&record, GZIP, b"gz");
        // The entry is another record now, with the same body.
        let attached = cache.attach_variant(&record, ContentCoding::Zstd, b"zstd");
        assert_eq!(attached, Attached::Stored);
        let current = cache.store.peek(&key(1)).unwrap();
        assert_eq!(current.variant(GZIP), Some(&b"gz"[..]));
        assert_eq!(current.variant(ContentCoding::Zstd), Some(&b"zstd"[..]));
        assert_eq!(cache.attach_variant(&record, GZIP, b"gz"), Attached::Superseded);
    }

    #[test]
    fn a_variant_of_an_old_record_never_joins_a_new_one() {
        let cache = cache(config());
        let old = put(&cache, 1, OLD);
        // The record changes while its variant is being made.
        put(&cache, 1, NEW);
        assert_eq!(cache.attach_variant(&old, GZIP, b"old"), Attached::Superseded);
        assert_eq!(variant(&cache, 1), None);
        // It is invalidated, and read again as it was.
        let _ = cache.invalidate(&key(1), LOGGED);
        assert_eq!(cache.attach_variant(&old, GZIP, b"old"), Attached::Superseded);
        put(&cache, 1, OLD);
        assert_eq!(cache.attach_variant(&old, GZIP, b"same"), Attached::Stored, "the same body");
    }

    #[test]
    fn an_exchange_needs_the_very_record_that_was_looked_at() {
        let cache = cache(config());
        let looked_at = put(&cache, 1, OLD);
        let with = looked_at.with_variant(GZIP, b"old").unwrap();
        // Between the look and the exchange.
        put(&cache, 1, NEW);
        assert_eq!(cache.store.exchange(&looked_at, with), Attached::Superseded);
        assert_eq!(cache.store.peek(&key(1)).unwrap().body(), NEW);
        assert_eq!(variant(&cache, 1), None);
    }

    #[test]
    fn a_flush_is_not_undone() {
        let cache = cache(config());
        let record = put(&cache, 1, OLD);
        cache.flush(key(1).collection(), None);
        let _ = cache.attach_variant(&record, GZIP, b"gz");
        assert!(cache.peek(&key(1), START).is_none(), "it is still of the old epoch");
        cache.mark_gap(ONLY, None);
        assert!(cache.peek(&key(1), ms(1_000_001)).is_none());
    }

    #[test]
    fn the_capacity_holds_and_what_is_evicted_is_counted() {
        let capacity_bytes = 100_000;
        let cache = cache(Config { capacity_bytes, ..config() });
        let body = vec![b'x'; 1_000];
        let records: Vec<Record> = (0..200).map(|id| put(&cache, id, &body)).collect();
        for record in &records {
            let _ = cache.attach_variant(record, GZIP, &body[..900]);
            let stats = cache.stats(key(1).collection());
            let counted = cache.store.recount()[&key(1).collection()];
            assert_eq!([stats.entries, stats.negative_entries, stats.bytes], counted);
            assert!(stats.bytes <= capacity_bytes, "{} bytes", stats.bytes);
        }
        assert!((0..200).any(|id| variant(&cache, id).is_some()));
    }

    #[test]
    fn an_entry_that_would_not_fit_stays_without_a_variant() {
        let cache = cache(Config { capacity_bytes: 10_000, ..config() });
        let body = vec![b'x'; 6_000];
        let record = put(&cache, 1, &body);
        assert_eq!(cache.attach_variant(&record, GZIP, &body[..5_000]), Attached::TooLarge);
        assert_eq!(cache.store.peek(&key(1)).unwrap().body(), body);
        assert_eq!(variant(&cache, 1), None);
    }
}
