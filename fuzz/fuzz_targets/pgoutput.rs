//! Any bytes are a message of PostgreSQL's `pgoutput` or an error; every part of a message can be looked at.
#![no_main]

use hotrow_source::postgres::pgoutput::{Message, Tuple, relation_of_row};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let values = |tuple: Tuple<'_>| assert_eq!(tuple.values().count(), tuple.count());
    assert!(relation_of_row(bytes).is_none() || bytes.len() >= 5);
    match Message::decode(bytes) {
        Ok(Message::Relation(relation)) => assert!(relation.columns().count() <= bytes.len()),
        Ok(Message::Insert { new, .. }) => values(new),
        Ok(Message::Update { old, new, .. }) => {
            values(new);
            old.iter().for_each(|old| values(old.tuple()));
        }
        Ok(Message::Delete { old, .. }) => values(old.tuple()),
        Ok(Message::Truncate(oids)) => assert!(oids.iter().count() <= bytes.len()),
        Ok(_) => {}
        Err(e) => assert!(!e.to_string().is_empty()),
    }
});
