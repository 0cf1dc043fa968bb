//! Records of tenants: what they keep, and what others do not pay for it.

use hotrow_types::key::Key;
use hotrow_types::version::ChangeId;

use super::*;
use crate::testkit::*;
use crate::{Answers, Fetched, Lookup, ReadMode};

fn record(owner: Owner, body: Option<&[u8]>, position: Option<Position>) -> Record {
    record_with(owner, body, position, false)
}

fn record_with(
    owner: Owner,
    body: Option<&[u8]>,
    position: Option<Position>,
    has_views: bool,
) -> Record {
    let (key, version) = (key(7), Version::Unknown);
    Record::new(&RecordParts { owner, has_views, position, ..parts(&key, body, &version) })
}

fn tenant(text: &str) -> Owner {
    Owner::Tenant(Some(Tenant::new(text).unwrap()))
}

#[test]
fn a_record_keeps_its_tenant_and_others_do_not_grow() {
    let position = Some(Position { incarnation: 9, at: 3 });
    let longest = "x".repeat(hotrow_types::tenant::TENANT_BYTES_MAX);
    let body = b"{\"id\":7}";
    // Without a position, because the table of incarnations may be full of those of other tests.
    let plain = record(Owner::Everybody, Some(body), None);
    assert_eq!(plain.0.slice.len(), key(7).as_bytes().len() + MIDDLE + body.len());
    assert_eq!((plain.tenant(), plain.body(), plain.position()), (None, &body[..], None));
    let plain = record(Owner::Everybody, Some(body), position);
    assert_eq!((plain.tenant(), plain.body(), plain.position()), (None, &body[..], position));
    for (owner, name) in
        [(tenant("acme"), "acme"), (tenant(&longest), &longest), (Owner::Tenant(None), "")]
    {
        for (body, position) in [(Some(&body[..]), position), (None, None)] {
            let record = record(owner.clone(), body, position);
            assert_eq!(record.tenant().unwrap_or_default(), name.as_bytes());
            assert_eq!(record.tenant().is_none(), name.is_empty());
            assert_eq!(record.body(), body.unwrap_or_default());
            assert_eq!(record.position(), position);
            assert_eq!(record.body_hash(), xxh3_64(body.unwrap_or_default()));
            let kept = INCARNATION + 1 + name.len() + body.map_or(0, <[u8]>::len);
            let bytes = key(7).as_bytes().len() + MIDDLE + kept;
            assert_eq!(record.0.slice.len(), bytes);
            assert_eq!(record.weight_bytes(), (bytes - MIDDLE) as u64 + ENTRY_OVERHEAD_BYTES);
        }
    }
}

#[test]
fn a_view_is_the_same_with_and_without_kept_ends_and_beside_variants() {
    let body = br#"{"id":7,"name":"a,b","tags":[{"id":1},2]}"#;
    let columns = Columns::new(["id", "tags", "other"]);
    let view = br#"{"id":7,"tags":[{"id":1},2]}"#;
    let position = Some(Position { incarnation: 9, at: 3 });
    for owner in [Owner::Everybody, tenant("acme"), Owner::Tenant(None)] {
        let [searched, kept] = [false, true]
            .map(|has_views| record_with(owner.clone(), Some(body), position, has_views));
        let table = kept.0.slice.len() - searched.0.slice.len();
        assert!(table >= MEMBER_COUNT + 3 * MEMBER_END, "{table}");
        for record in [&searched, &kept] {
            let packed = record.with_variant(ContentCoding::Gzip, b"gz").unwrap();
            for record in [record, &packed] {
                assert_eq!(record.view(&columns), view);
                assert_eq!(record.view_bytes(&columns), view.len());
                assert_eq!(record.view(&Columns::default()), b"{}");
                assert_eq!(record.view_bytes(&Columns::default()), 2);
                assert_eq!((record.body(), record.position()), (&body[..], position));
                assert_eq!(record.body_hash(), xxh3_64(body));
                assert_eq!(record.tenant(), searched.tenant());
            }
            assert_eq!(packed.variant(ContentCoding::Gzip), Some(&b"gz"[..]));
            assert_eq!(record.variant(ContentCoding::Gzip), None);
        }
    }
    for body in [None, Some(&b"[1,2]"[..])] {
        for has_views in [false, true] {
            let record = record_with(Owner::Everybody, body, position, has_views);
            assert_eq!(record.view(&columns), b"{}", "it is no object");
            assert_eq!(record.body(), body.unwrap_or_default());
        }
    }
}

/// Looks up a key with two requests, and returns the loader of their one read.
fn two_wait(
    cache: &TestCache,
    key: &Key,
) -> ([crate::flight::Waiter<TestError>; 2], crate::BatchLoader<TestError>) {
    let waiters = [(); 2].map(|()| waiter(cache.lookup(key, ReadMode::Normal, START)));
    let mut loader = cache.batch_loader(FIRST).unwrap();
    assert_eq!(loader.next_batch(START).map(|keys| keys.len()), Some(1));
    (waiters, loader)
}

fn row(at: u64, row: &str) -> Result<Answers<TestError>, TestError> {
    let rows = vec![Fetched::Found(row.as_bytes().to_vec())];
    Ok(Answers { version: log(at), position: Some(Position { incarnation: 1, at }), rows })
}

#[test]
fn every_waiter_of_a_read_gets_the_tenant() {
    let cache = cache_of(config(), true);
    let (waiters, mut loader) = two_wait(&cache, &key(1));
    loader.complete(row(5, r#""acme"{"id":1}"#), START);
    for mut waiter in waiters {
        let Some(crate::flight::Waited::Done(Ok(record))) = poll(&mut waiter) else {
            panic!("no answer")
        };
        assert_eq!((record.tenant(), record.body()), (Some(&b"acme"[..]), &br#"{"id":1}"#[..]));
    }
    let Lookup::Hit(record, _) = cache.lookup(&key(1), ReadMode::Normal, START) else {
        panic!("not kept")
    };
    assert_eq!(record.tenant(), Some(&b"acme"[..]));
    assert!(cache.equals_row(&record, Some(br#""acme"{"id":1}"#)));
    for other in [r#""other"{"id":1}"#, r#"null{"id":1}"#, r#""acme"{"id":2}"#, r#"{"id":1}"#] {
        assert!(!cache.equals_row(&record, Some(other.as_bytes())), "{other}");
    }
    assert!(!cache.equals_row(&record, None));
}

#[test]
fn a_row_that_moves_during_its_read_is_not_kept_for_its_old_tenant() {
    let cache = cache_of(config(), true);
    let (mut waiters, mut loader) = two_wait(&cache, &key(1));
    // The query has its snapshot; now the row moves, and the feed delivers that.
    cache.invalidate(&key(1), ChangeId::Log(Position { incarnation: 1, at: 6 }));
    loader.complete(row(5, r#""acme"{"id":1}"#), START);
    assert!(waiters.iter_mut().all(|waiter| poll(waiter).is_some()));
    assert!(cache.peek(&key(1), START).is_none(), "the old row");
    let (mut waiters, mut loader) = two_wait(&cache, &key(1));
    loader.complete(row(6, r#""other"{"id":1}"#), START);
    assert!(waiters.iter_mut().all(|waiter| poll(waiter).is_some()));
    let (record, _) = cache.peek(&key(1), START).unwrap();
    assert_eq!(record.tenant(), Some(&b"other"[..]));
}
