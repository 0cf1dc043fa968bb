//! Ids of a snapshot batch in a request's body, by collection: `{"products":[…],"prices":[…]}`.

use foldhash::fast::FixedState;
use hotrow_answer::collections::Collections;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::ids::Ids;
use hotrow_config::Limits;
use hotrow_types::key::CollectionId;

use super::part::OF_ALIAS;
use crate::batch::list::List;

const COLLECTIONS: &str = "{\"COLLECTION\":[…],…}";

/// Ids by collection, each named once.
pub(crate) type IdsOfCollections = Vec<(CollectionId, Ids)>;

/// Parses `{"products":[…],"prices":[…]}`, the ids of each collection as in a batch, with
/// turns of other connections in between. `limits.max_batch` counts over all.
///
/// # Errors
/// As for one collection, and 404 for a name that is none; with the collection that was reached.
pub(crate) async fn parse_in_turns(
    collections: &Collections,
    limits: &Limits,
    hasher: &FixedState,
    body: &[u8],
) -> Result<IdsOfCollections, (CollectionId, HttpError)> {
    let mut parsed: IdsOfCollections = Vec::new();
    let mut id = CollectionId(0);
    let first = &collections.get(id).schema;
    let list = List::begin(first, COLLECTIONS, limits, hasher, body);
    let mut list = list.map_err(|problem| (id, problem))?;
    loop {
        id = collection(&mut list, collections, &parsed).map_err(|problem| (id, problem))?;
        list.schema = &collections.get(id).schema;
        let of_part = Ids::with_capacity(0, 0, limits.target_bytes, hasher);
        list.ids = of_part;
        while list.read_some().map_err(|problem| (id, problem))? {
            tokio::task::yield_now().await;
        }
        let next = Ids::with_capacity(0, 0, 0, hasher);
        parsed.push((id, std::mem::replace(&mut list.ids, next)));
        if !list.eat(b',') {
            list.end().map_err(|problem| (id, problem))?;
            return Ok(parsed);
        }
    }
}

/// Parses the name of a collection, and the beginning of its ids.
fn collection(
    list: &mut List<'_>,
    collections: &Collections,
    parsed: &IdsOfCollections,
) -> Result<CollectionId, HttpError> {
    if list.peek() == Some(b'}') {
        return Err(list.bad("there is no list of ids"));
    }
    let name = list.name()?;
    let target = collections.router.named(&name).ok_or(HttpError::NoSuchCollection)?;
    if target.is_alias() {
        return Err(HttpError::BadBatch(OF_ALIAS.into()));
    }
    if parsed.iter().any(|(id, _)| *id == target.of) {
        return Err(list.bad(&format!("the body has {name:?} twice")));
    }
    list.begin_ids()?;
    Ok(target.of)
}
