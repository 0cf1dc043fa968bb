//! Routing: from a request's method and path to the requested data.

use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;
use hotrow_types::key::{CollectionId, percent_decode};
use http::Method;

use crate::http_error::HttpError;

const ITEM_METHODS: &str = "GET, HEAD";
/// Name of the description in paths.
const DESCRIPTION: &str = "openapi.json";
const BATCH_METHODS: &str = "GET, HEAD, POST";
/// A query cannot name keys of several columns.
const COMPOSITE_BATCH_METHODS: &str = "POST";
/// All methods of the server.
pub(crate) const METHODS: &str = "GET, HEAD, POST";

/// Target of a data request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// One record; the id as in the URL.
    Item(CollectionId, &'a str),
    /// Several records, listed in the query.
    BatchGet(CollectionId, Option<&'a str>),
    /// Several records, listed in the body.
    BatchPost(CollectionId),
    /// The server's capabilities: `OPTIONS *`.
    Capabilities,
    /// The description of the API.
    Description,
}

impl Route<'_> {
    /// Returns the collection that it names.
    pub(crate) fn collection(&self) -> Option<CollectionId> {
        match self {
            Self::Item(id, _) | Self::BatchGet(id, _) | Self::BatchPost(id) => Some(*id),
            Self::Capabilities | Self::Description => None,
        }
    }
}

/// Routes a target without a path: `OPTIONS *`, and CONNECT, which this server does not support.
///
/// # Errors
/// Any other such target.
pub(crate) fn without_path(method: &Method, path: &str) -> Result<Route<'static>, HttpError> {
    match *method {
        Method::OPTIONS if path == "*" => Ok(Route::Capabilities),
        Method::CONNECT => Err(HttpError::Method(METHODS)),
        _ => Err(HttpError::NoSuchPath),
    }
}

/// The collections by name.
#[derive(Debug)]
pub(crate) struct Router {
    names: HashMap<String, CollectionId, FixedState>,
    /// Collections whose keys have several columns.
    composite: HashSet<CollectionId, FixedState>,
    /// The description of the API has a path here.
    serves_description: bool,
}

impl Router {
    /// Numbers collections in the order of `names`.
    pub(crate) fn new<'n>(names: impl Iterator<Item = &'n str>, seed: u64) -> Self {
        let mut map = HashMap::with_hasher(FixedState::with_seed(seed));
        // A process has at most 1,000 collections: see the configuration.
        map.extend(names.enumerate().map(|(i, name)| (name.to_owned(), CollectionId(i as u16))));
        let composite = HashSet::with_hasher(FixedState::with_seed(seed));
        Self { names: map, composite, serves_description: false }
    }

    /// Notes which collections have keys of several columns.
    pub(crate) fn with_composite_keys(mut self, ids: impl Iterator<Item = CollectionId>) -> Self {
        self.composite.extend(ids);
        self
    }

    /// Does not route to these collections.
    pub(crate) fn without<'n>(mut self, removed: impl Iterator<Item = &'n str>) -> Self {
        removed.for_each(|name| _ = self.names.remove(name));
        self
    }

    /// Serves the description of the API too, under a name that no collection can have.
    pub(crate) fn with_description(self, serves_description: bool) -> Self {
        Self { serves_description, ..self }
    }

    /// Returns the collection of that name, percent-encoded or not.
    ///
    /// # Errors
    /// [`HttpError::NoSuchCollection`].
    pub(crate) fn collection(&self, name: &str) -> Result<CollectionId, HttpError> {
        if let Some(id) = self.names.get(name) {
            return Ok(*id);
        }
        let decoded = percent_decode(name).map_err(|_| HttpError::NoSuchCollection)?;
        self.names.get(&*decoded).copied().ok_or(HttpError::NoSuchCollection)
    }

    /// Returns the collection of that name as it is, without percent-encoding.
    #[inline]
    pub(crate) fn named(&self, name: &str) -> Option<CollectionId> {
        self.names.get(name).copied()
    }

    /// Routes a request.
    ///
    /// # Errors
    /// A path or method that does not exist here.
    pub(crate) fn route<'a>(
        &self,
        method: &Method,
        path: &'a str,
        query: Option<&'a str>,
    ) -> Result<Route<'a>, HttpError> {
        let Some(path) = path.strip_prefix('/') else { return without_path(method, path) };
        let (name, id) = path.split_once('/').map_or((path, None), |(name, id)| (name, Some(id)));
        if name.is_empty() || id.is_some_and(|id| id.contains('/')) {
            return Err(HttpError::NoSuchPath);
        }
        let reads = matches!(*method, Method::GET | Method::HEAD);
        if self.serves_description && name == DESCRIPTION && id.is_none() {
            return if reads {
                Ok(Route::Description)
            } else {
                Err(HttpError::Method(ITEM_METHODS))
            };
        }
        let collection = self.collection(name)?;
        match id {
            Some(id) if reads => Ok(Route::Item(collection, id)),
            Some(_) => Err(HttpError::Method(ITEM_METHODS)),
            None if *method == Method::POST => Ok(Route::BatchPost(collection)),
            None if self.composite.contains(&collection) => {
                Err(HttpError::Method(COMPOSITE_BATCH_METHODS))
            }
            None if reads => Ok(Route::BatchGet(collection, query)),
            None => Err(HttpError::Method(BATCH_METHODS)),
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
            assert_eq!(get(path), Err(HttpError::NoSuchPath), "{path}");
        }
        for path in ["/product/7", "/products%2F7", "/Products/7", "/%zz/7", "/%FF/7"] {
            assert_eq!(get(path), Err(HttpError::NoSuchCollection), "{path}");
        }
        let delete = |path| router.route(&Method::DELETE, path, None);
        assert_eq!(delete("/products/7"), Err(HttpError::Method("GET, HEAD")));
        assert_eq!(delete("/products"), Err(HttpError::Method("GET, HEAD, POST")));
        assert_eq!(
            router.route(&Method::POST, "/products", None),
            Ok(Route::BatchPost(CollectionId(0)))
        );
        assert_eq!(get("/openapi.json"), Err(HttpError::NoSuchCollection));
        assert_eq!(router.route(&Method::OPTIONS, "*", None), Ok(Route::Capabilities));
        assert_eq!(
            router.route(&Method::CONNECT, "", None),
            Err(HttpError::Method("GET, HEAD, POST"))
        );
    }

    #[test]
    fn keys_of_several_columns_are_posted() {
        let composite = std::iter::once(CollectionId(1));
        let router =
            Router::new(["products", "prices"].into_iter(), 1).with_composite_keys(composite);
        let put = |path| router.route(&Method::PUT, path, None);
        assert_eq!(put("/products"), Err(HttpError::Method("GET, HEAD, POST")));
        assert_eq!(put("/prices"), Err(HttpError::Method("POST")));
        assert_eq!(put("/prices/1,2"), Err(HttpError::Method("GET, HEAD")));
        for method in [Method::GET, Method::HEAD] {
            let route = |path, query| router.route(&method, path, query);
            assert_eq!(route("/prices", Some("ids=1,2")), Err(HttpError::Method("POST")));
            assert_eq!(route("/prices/1,2", None), Ok(Route::Item(CollectionId(1), "1,2")));
        }
        let post = router.route(&Method::POST, "/prices", None);
        assert_eq!(post, Ok(Route::BatchPost(CollectionId(1))));
    }

    #[test]
    fn the_description_has_a_path_where_it_is_served() {
        let router = Router::new(["products"].into_iter(), 1).with_description(true);
        let route = |method, path| router.route(&method, path, None);
        assert_eq!(route(Method::GET, "/openapi.json"), Ok(Route::Description));
        assert_eq!(route(Method::HEAD, "/openapi.json"), Ok(Route::Description));
        assert_eq!(route(Method::POST, "/openapi.json"), Err(HttpError::Method("GET, HEAD")));
        assert_eq!(route(Method::GET, "/openapi.json/1"), Err(HttpError::NoSuchCollection));
    }
}
