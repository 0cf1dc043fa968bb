//! Entry point of the fuzz target and of its short form in the tests. Not in ordinary builds.

use super::{Message, Tuple, relation_of_row};

/// Decodes a message and reads each of its parts, as the feed does.
///
/// # Panics
/// The message contradicts itself.
pub fn walk(bytes: &[u8]) {
    let values = |tuple: Tuple<'_>| assert_eq!(tuple.values().count(), tuple.count());
    assert!(relation_of_row(bytes).is_none() || bytes.len() >= 5);
    match Message::decode(bytes) {
        Ok(Message::Relation(relation)) => {
            assert_eq!(relation.columns().count(), usize::from(relation.count))
        }
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
}
