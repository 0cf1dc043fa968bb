//! `GET /`: the collections that a client may read, with an example of each path.

use std::fmt::Write as _;

use bytes::Bytes;
use hotrow_answer::collections::Collection;
use hotrow_answer::error_type::PAGE_PATH;
use hotrow_answer::route::{CHANGES, ReadTarget};
use hotrow_types::key::CollectionId;

use super::{ApiDescription, PATH, schema};

impl ApiDescription {
    /// Returns the list as JSON. `may_read`: whether the client may read these records by these
    /// names. Clients with other grants replace the list that is kept.
    pub fn index(&self, may_read: impl Fn(ReadTarget) -> bool) -> Bytes {
        let named = |(of, _): (CollectionId, _)| {
            let aliases = self.collections.aliases_of(of);
            let served = aliases.filter(|keys| !self.collections.get(*keys).is_removed);
            std::iter::once(of).chain(served).map(move |keys| ReadTarget { of, keys })
        };
        let readable: Vec<ReadTarget> =
            self.collections.served().flat_map(named).filter(|target| may_read(*target)).collect();
        let mut newest = self.newest_index.lock();
        match &*newest {
            Some((listed, document)) if *listed == readable => document.clone(),
            _ => {
                let document = Bytes::from(self.list(&readable));
                *newest = Some((readable, document.clone()));
                document
            }
        }
    }

    /// Lists collections, each followed by its aliases. No name needs escaping in JSON, and writing
    /// to a String cannot fail.
    fn list(&self, readable: &[ReadTarget]) -> String {
        let mut text = "{\"collections\":[".to_owned();
        for (i, target) in readable.iter().enumerate() {
            let collection = self.collections.get(target.keys);
            if target.is_alias() {
                _ = write!(text, ",\"{}\":{{", collection.name);
                add_paths(&mut text, collection);
                text.push('}');
                continue;
            }
            text.push_str(if i > 0 { "},{" } else { "{" });
            _ = write!(text, "\"name\":\"{}\",", collection.name);
            add_paths(&mut text, collection);
            if self.facts.is_followed(collection) {
                _ = write!(text, ",\"changes\":\"/{CHANGES}/{}\"", collection.name);
            }
        }
        text.push_str(if readable.is_empty() { "]" } else { "}]" });
        _ = write!(text, ",\"errors\":\"{PAGE_PATH}\"");
        if self.collections.router.serves_description() {
            _ = write!(text, ",\"description\":\"{PATH}\",\"page\":\"/openapi.html\"");
        }
        text.push('}');
        text
    }
}

/// Adds an example of each path. A query cannot name keys of several columns.
fn add_paths(text: &mut String, Collection { name, schema, .. }: &Collection) {
    let id = schema::example_id(schema);
    _ = write!(text, "\"record\":\"/{name}/{id}\"");
    if schema.types().len() == 1 {
        _ = write!(text, ",\"batch\":\"/{name}?ids={id}\"");
    }
}
