//! From a request's method and path to what is asked.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use hotrow_cache::key::{CollectionId, percent_decode};
use http::Method;

use crate::problem::Problem;

const ITEM_METHODS: &str = "GET, HEAD";
const BATCH_METHODS: &str = "GET, HEAD, POST";

/// What a request on the data listener asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// One record; the id as it stands in the URL.
    Item(CollectionId, &'a str),
    /// Several records, listed in the query.
    BatchGet(CollectionId, Option<&'a str>),
    /// Several records, listed in the body.
    BatchPost(CollectionId),
}

/// The collections by name.
#[derive(Debug)]
pub struct Router {
    names: HashMap<String, CollectionId, FixedState>,
}

impl Router {
    /// Collections are numbered in the order of `names`.
    pub fn new<'n>(names: impl Iterator<Item = &'n str>, seed: u64) -> Self {
        let mut map = HashMap::with_hasher(FixedState::with_seed(seed));
        // A process has at most 1,000 collections: see the configuration.
        map.extend(names.enumerate().map(|(i, name)| (name.to_owned(), CollectionId(i as u16))));
        Self { names: map }
    }

    /// The collection of that name, percent-encoded or not.
    ///
    /// # Errors
    /// [`Problem::NoSuchCollection`].
    pub fn collection(&self, name: &str) -> Result<CollectionId, Problem> {
        if let Some(id) = self.names.get(name) {
            return Ok(*id);
        }
        let decoded = percent_decode(name).map_err(|_| Problem::NoSuchCollection)?;
        self.names.get(&*decoded).copied().ok_or(Problem::NoSuchCollection)
    }

    /// Finds what is asked.
    ///
    /// # Errors
    /// A path or method that means nothing here.
    pub fn route<'a>(&self, method: &Method, path: &'a str, query: Option<&'a str>) -> Result<Route<'a>, Problem> {
        let path = path.strip_prefix('/').ok_or(Problem::NoSuchPath)?;
        let (name, id) = path.split_once('/').map_or((path, None), |(name, id)| (name, Some(id)));
        if name.is_empty() || id.is_some_and(|id| id.contains('/')) {
            return Err(Problem::NoSuchPath);
        }
        let collection = self.collection(name)?;
        let reads = matches!(*method, Method::GET | Method::HEAD);
        match id {
            Some(id) if reads => Ok(Route::Item(collection, id)),
            Some(_) => Err(Problem::Method(ITEM_METHODS)),
            None if reads => Ok(Route::BatchGet(collection, query)),
            None if *method == Method::POST => Ok(Route::BatchPost(collection)),
            None => Err(Problem::Method(BATCH_METHODS)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_methods() {
        let router = Router::new(["products", "prices"].into_iter(), 1);
        let get = |path| router.route(&Method::GET, path, None);
        assert_eq!(get("/products/7"), Ok(Route::Item(CollectionId(0), "7")));
        assert_eq!(get("/prices/a%2Fb"), Ok(Route::Item(CollectionId(1), "a%2Fb")));
        assert_eq!(get("/%70rices/7"), Ok(Route::Item(CollectionId(1), "7")));
        assert_eq!(get("/products/"), Ok(Route::Item(CollectionId(0), "")));
        assert_eq!(get("/products"), Ok(Route::BatchGet(CollectionId(0), None)));
        for path in ["/", "", "*", "//7", "/products/7/", "/products/7/8"] {
            assert_eq!(get(path), Err(Problem::NoSuchPath), "{path}");
        }
        for path in ["/product/7", "/products%2F7", "/Products/7", "/%zz/7", "/%FF/7"] {
            assert_eq!(get(path), Err(Problem::NoSuchCollection), "{path}");
        }
        let delete = |path| router.route(&Method::DELETE, path, None);
        assert_eq!(delete("/products/7"), Err(Problem::Method("GET, HEAD")));
        assert_eq!(delete("/products"), Err(Problem::Method("GET, HEAD, POST")));
        assert_eq!(router.route(&Method::POST, "/products", None), Ok(Route::BatchPost(CollectionId(0))));
    }
}
