use std::collections::{BTreeMap, HashMap, HashSet};

use super::*;
use crate::record_schema::{AliasSchema, EmbeddedSchema};
use crate::row::KeyType;

const FIRST: u64 = 100;

fn schema(keys: u32) -> RecordSchema {
    let (name, column) = ("a".to_owned(), "handle".to_owned());
    let (member, on) = ("parts".to_owned(), "parent".to_owned());
    RecordSchema {
        collection: "c".to_owned(),
        key: "id".to_owned(),
        key_type: KeyType::Integer,
        alias: Some(AliasSchema { name, column, is_optional: false }),
        embedded: Some(EmbeddedSchema { member, on, order: Vec::new() }),
        other: None,
        keys,
    }
}

/// Tables with unique references in that of the records.
#[derive(Clone, Default)]
struct Tables {
    records: BTreeMap<u32, (u64, Option<u32>)>,
    children: BTreeMap<u32, (u64, u32)>,
}

impl Tables {
    fn apply(&mut self, change: &Change) {
        match (change.table, change.kind) {
            (TableRole::Records, ChangeKind::Delete) => _ = self.records.remove(&change.key),
            (TableRole::Children, ChangeKind::Delete) => _ = self.children.remove(&change.key),
            (TableRole::Records, _) => {
                self.records.insert(change.key, (change.version, change.reference));
                let values: Vec<u32> = self.records.values().filter_map(|row| row.1).collect();
                let unique: HashSet<&u32> = values.iter().collect();
                assert_eq!(unique.len(), values.len(), "{change:?}");
            }
            (TableRole::Children, _) => {
                let parent = change.reference.expect("a parent");
                self.children.insert(change.key, (change.version, parent));
            }
        }
    }

    fn content(&self, key: u32) -> Option<Content> {
        let (version, value) = *self.records.get(&key)?;
        let own = self.children.iter().filter(|(_, row)| row.1 == key);
        Some(Content { version, value, children: own.map(|(id, row)| (*id, row.0)).collect() })
    }
}

/// Some transactions are lost, and some of these happened: the model agrees with the tables, and no
/// record has the same content in two states.
#[test]
fn contents_are_those_of_the_tables_and_never_return() {
    let keys = [3, 5];
    let schema = schema(10);
    let mut random = Random::new(1, 1);
    let mut family = Family::beginning(&keys, &schema, FIRST, |_| true);
    let mut tables = Tables::default();
    for key in keys {
        tables.records.insert(key, (FIRST, Some(first_value(key))));
    }
    let mut versions: HashMap<u32, u64> = HashMap::new();
    let mut seen: HashMap<(u32, u64), u64> = HashMap::new();
    let mut moves = 0;
    for _ in 0..20_000 {
        let before = family.clone();
        let place = random.below(2) as usize;
        let mut next = |id: u32, _: bool| {
            let version = versions.entry(id).or_insert(FIRST);
            *version += 1;
            *version
        };
        let step = family.step(place, &mut random, &schema, &mut next);
        moves += step.children_moved;
        let outcome = random.below(100);
        if outcome < 3 {
            family = before;
            continue;
        }
        if outcome < 6 {
            family.forget();
            if outcome == 3 {
                continue;
            }
        }
        step.changes.iter().for_each(|change| tables.apply(change));
        for state in &step.records {
            assert_eq!(state.content, tables.content(state.key), "{step:?}");
            assert_eq!(
                state.value.map(|(id, _)| id - 10),
                state.content.as_ref().and_then(|content| content.value)
            );
            if let Some(content) = &state.content {
                let before = seen.insert((state.key, content.fingerprint()), state.version);
                assert_eq!(before, None, "{step:?}");
            }
        }
        let changed: HashSet<u32> = step.records.iter().map(|state| state.key).collect();
        for key in keys.iter().filter(|key| !changed.contains(key)) {
            let Some(content) = tables.content(*key) else { continue };
            let is_first = content.version == FIRST && content.children.is_empty();
            assert!(is_first || seen.contains_key(&(*key, content.fingerprint())), "{step:?}");
        }
    }
    assert!(moves > 1_000 && seen.len() > 10_000, "{moves} {}", seen.len());
}

#[test]
fn a_family_of_one_moves_nothing() {
    let schema = schema(3);
    let mut random = Random::new(2, 2);
    let mut family = Family::beginning(&[3], &schema, FIRST, |_| false);
    let mut version = FIRST;
    let mut tables = Tables::default();
    for _ in 0..2_000 {
        let mut next = |_: u32, _: bool| {
            version += 1;
            version
        };
        let step = family.step(0, &mut random, &schema, &mut next);
        assert_eq!(step.children_moved, 0);
        step.changes.iter().for_each(|change| tables.apply(change));
        assert!(step.records.iter().all(|state| state.content == tables.content(3)));
    }
}
