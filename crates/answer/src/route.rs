//! Routing: from a request's method and path to the requested data.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use hotrow_types::key::{CollectionId, percent_decode};
use http::Method;

use crate::error_type::PAGE_PATH;
use crate::http_error::HttpError;

const ITEM_METHODS: &str = "GET, HEAD";
/// Name of the description in paths.
const DESCRIPTION: &str = "openapi.json";
/// First segment of the paths of changes. No collection can have this name.
pub const CHANGES: &str = "_changes";
/// Path of snapshot batches of several collections. No collection can have this name.
pub const SNAPSHOT: &str = "_snapshot";
const SNAPSHOT_METHODS: &str = "POST";
const CHANGES_METHODS: &str = "GET";
const BATCH_METHODS: &str = "GET, HEAD, POST";
/// A query cannot name keys of several columns.
const COMPOSITE_BATCH_METHODS: &str = "POST";
/// All methods of the server.
pub const METHODS: &str = "GET, HEAD, POST";

/// Target of a data request.
#[derive(Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// One record; the id as in the URL.
    Item(ReadTarget, &'a str),
    /// Several records, listed in the query.
    BatchGet(ReadTarget, Option<&'a str>),
    /// Several records, listed in the body.
    BatchPost(ReadTarget),
    /// Several records of several collections, listed in the body, at one point of the log.
    Snapshot,
    /// The changes of a collection, with the query.
    Changes(CollectionId, Option<&'a str>),
    /// The server's capabilities: `OPTIONS *`.
    Capabilities,
    /// The description of the API.
    Description,
    /// The collections: `/`.
    Index,
    /// A page, a style or a script that is the same for everyone: its path.
    File(&'static str),
}

/// Paths of what is the same for everyone; none can be that of a record.
const FILES: [&str; 4] = ["/openapi.html", "/openapi.js", "/openapi.css", PAGE_PATH];

/// Collection whose records are requested, and what the request names them by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadTarget {
    /// The collection.
    pub of: CollectionId,
    /// The same, or an alias of it.
    pub keys: CollectionId,
}

impl ReadTarget {
    /// Names records by their own keys.
    pub(crate) fn own(of: CollectionId) -> Self {
        Self { of, keys: of }
    }

    /// Returns whether the records are named by an alias.
    #[inline]
    pub fn is_alias(self) -> bool {
        self.keys != self.of
    }
}

impl Route<'_> {
    /// Returns the collection that it names.
    pub fn collection(&self) -> Option<CollectionId> {
        match self {
            Self::Item(target, _) | Self::BatchGet(target, _) | Self::BatchPost(target) => {
                Some(target.of)
            }
            Self::Changes(id, _) => Some(*id),
            Self::Snapshot
            | Self::Capabilities
            | Self::Description
            | Self::Index
            | Self::File(_) => None,
        }
    }
}

/// Routes a target without a path: `OPTIONS *`, and CONNECT, which this server does not support.
///
/// # Errors
/// Any other such target.
pub fn without_path(method: &Method, path: &str) -> Result<Route<'static>, HttpError> {
    match *method {
        Method::OPTIONS if path == "*" => Ok(Route::Capabilities),
        Method::CONNECT => Err(HttpError::Method(METHODS)),
        _ => Err(HttpError::NoSuchPath),
    }
}

/// Routes a request for a document that can only be read.
fn fixed<'a>(method: &Method, route: Route<'a>) -> Result<Route<'a>, HttpError> {
    match *method {
        Method::GET | Method::HEAD => Ok(route),
        _ => Err(HttpError::Method(ITEM_METHODS)),
    }
}

/// Returns the file at a path without its first slash.
fn file(path: &str) -> Option<Route<'static>> {
    FILES.into_iter().find(|file| file[1..] == *path).map(Route::File)
}

/// The collections by name.
#[derive(Debug)]
pub struct Router {
    names: HashMap<String, CollectionId, FixedState>,
    /// By path, such as `users/by/email`.
    aliases: HashMap<String, ReadTarget, FixedState>,
    /// Collections whose keys have several columns, with their number.
    composite: HashMap<CollectionId, usize, FixedState>,
    /// The description of the API has a path here.
    serves_description: bool,
}

impl Router {
    /// Routes to collections by their names.
    pub(crate) fn new(named: impl Iterator<Item = (String, CollectionId)>, seed: u64) -> Self {
        let mut names = HashMap::with_hasher(FixedState::with_seed(seed));
        names.extend(named);
        let aliases = HashMap::with_hasher(FixedState::with_seed(seed));
        let composite = HashMap::with_hasher(FixedState::with_seed(seed));
        Self { names, aliases, composite, serves_description: false }
    }

    /// Routes to aliases too, by their paths.
    pub(crate) fn with_aliases(
        mut self,
        aliases: impl Iterator<Item = (String, ReadTarget)>,
    ) -> Self {
        self.aliases.extend(aliases);
        self
    }

    /// Notes which collections have keys of several columns, and of how many.
    pub(crate) fn with_composite_keys(
        mut self,
        keys: impl Iterator<Item = (CollectionId, usize)>,
    ) -> Self {
        self.composite.extend(keys);
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
    pub fn collection(&self, name: &str) -> Result<CollectionId, HttpError> {
        if let Some(id) = self.names.get(name) {
            return Ok(*id);
        }
        let decoded = percent_decode(name).map_err(|_| HttpError::NoSuchCollection)?;
        self.names.get(&*decoded).copied().ok_or(HttpError::NoSuchCollection)
    }

    /// Returns the collection of that name, or the alias with that path, as it is: without
    /// percent-encoding.
    #[inline]
    pub fn named(&self, name: &str) -> Option<ReadTarget> {
        let own = self.names.get(name).copied().map(ReadTarget::own);
        own.or_else(|| self.aliases.get(name).copied())
    }

    /// Returns whether the description of the API has a path here.
    pub fn serves_description(&self) -> bool {
        self.serves_description
    }

    /// Routes a request.
    ///
    /// # Errors
    /// A path or method that does not exist here.
    pub fn route<'a>(
        &self,
        method: &Method,
        path: &'a str,
        query: Option<&'a str>,
    ) -> Result<Route<'a>, HttpError> {
        let Some(path) = path.strip_prefix('/') else { return without_path(method, path) };
        let (name, id) = path.split_once('/').map_or((path, None), |(name, id)| (name, Some(id)));
        if name.is_empty() {
            return id.map_or(fixed(method, Route::Index), |_| Err(HttpError::NoSuchPath));
        }
        let reads = matches!(*method, Method::GET | Method::HEAD);
        if id.is_some_and(|id| id.contains('/')) {
            return self.route_to_alias(method, reads, path, query);
        }
        if self.serves_description && name == DESCRIPTION && id.is_none() {
            return fixed(method, Route::Description);
        }
        if name == CHANGES
            && let Some(of) = id
        {
            let collection = self.collection(of)?;
            return match *method {
                Method::GET => Ok(Route::Changes(collection, query)),
                _ => Err(HttpError::Method(CHANGES_METHODS)),
            };
        }
        if name == SNAPSHOT && id.is_none() {
            return match *method {
                Method::POST => Ok(Route::Snapshot),
                _ => Err(HttpError::Method(SNAPSHOT_METHODS)),
            };
        }
        let target = match self.collection(name) {
            Ok(of) => ReadTarget::own(of),
            Err(problem) => return file(path).map_or(Err(problem), |file| fixed(method, file)),
        };
        match id {
            Some(id) if reads => Ok(Route::Item(target, id)),
            Some(_) => Err(HttpError::Method(ITEM_METHODS)),
            None => self.route_to_several(method, reads, target, query),
        }
    }

    /// Routes a path of more than two segments, without its first slash.
    fn route_to_alias<'a>(
        &self,
        method: &Method,
        reads: bool,
        path: &'a str,
        query: Option<&'a str>,
    ) -> Result<Route<'a>, HttpError> {
        let (of_value, value) = path.rsplit_once('/').ok_or(HttpError::NoSuchPath)?;
        match self.aliases.get(of_value) {
            Some(target) if reads => Ok(Route::Item(*target, value)),
            Some(_) => Err(HttpError::Method(ITEM_METHODS)),
            None => {
                let Some(target) = self.aliases.get(path) else {
                    return match file(path) {
                        Some(file) => fixed(method, file),
                        None => Err(self.no_such_path(path)),
                    };
                };
                self.route_to_several(method, reads, *target, query)
            }
        }
    }

    /// Returns why a path of more than two segments, without its first slash, does not exist.
    #[cold]
    fn no_such_path(&self, path: &str) -> HttpError {
        let (name, id) = path.split_once('/').unwrap_or((path, ""));
        let columns = self.collection(name).ok().and_then(|id| self.composite.get(&id));
        match columns {
            Some(count) if id.split('/').count() == *count => HttpError::WrongPath(format!(
                "a key of {count} columns has commas between them: /{name}/{}",
                id.replace('/', ",")
            )),
            _ => HttpError::NoSuchPath,
        }
    }

    fn route_to_several<'a>(
        &self,
        method: &Method,
        reads: bool,
        target: ReadTarget,
        query: Option<&'a str>,
    ) -> Result<Route<'a>, HttpError> {
        match () {
            () if *method == Method::POST => Ok(Route::BatchPost(target)),
            () if self.composite.contains_key(&target.keys) => {
                Err(HttpError::Method(COMPOSITE_BATCH_METHODS))
            }
            () if reads => Ok(Route::BatchGet(target, query)),
            () => Err(HttpError::Method(BATCH_METHODS)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(id: u16) -> ReadTarget {
        ReadTarget::own(CollectionId(id))
    }

    fn router(names: &[&str]) -> Router {
        let named = names.iter().map(|name| (*name).to_owned()).zip((0..).map(CollectionId));
        Router::new(named, 1)
    }

    #[test]
    fn paths_of_aliases() {
        let route = ReadTarget { keys: CollectionId(2), of: CollectionId(0) };
        let composite = ReadTarget { keys: CollectionId(3), of: CollectionId(0) };
        let aliases = [("users/by/email".to_owned(), route), ("users/by/n".to_owned(), composite)];
        let router = router(&["users", "by"])
            .with_aliases(aliases.into_iter())
            .with_composite_keys(std::iter::once((composite.keys, 2)));
        let get = |path| router.route(&Method::GET, path, Some("ids=1"));
        let item = |id| Ok(Route::Item(route, id));
        assert_eq!(get("/users/by/email/a%2Fb"), item("a%2Fb"));
        assert_eq!(get("/users/by/email/"), item(""));
        let batch = Route::BatchGet(route, Some("ids=1"));
        assert_eq!(get("/users/by/email"), Ok(batch));
        let post = |path| router.route(&Method::POST, path, None);
        for (path, route) in [("/users/by/email", route), ("/users/by/n", composite)] {
            assert_eq!(post(path), Ok(Route::BatchPost(route)));
        }
        assert_eq!(get("/users/by/n"), Err(HttpError::Method("POST")));
        assert_eq!(post("/users/by/email/x"), Err(HttpError::Method("GET, HEAD")));
        assert_eq!(
            router.route(&Method::PUT, "/users/by/email", None),
            Err(HttpError::Method("GET, HEAD, POST"))
        );
        assert_eq!(get("/users/by"), Ok(Route::Item(own(0), "by")));
        for path in ["/users/by/", "/users/by/phone", "/users/by/email/x/y", "/x/by/email/x"] {
            assert_eq!(get(path), Err(HttpError::NoSuchPath), "{path}");
        }
        // Only the path of an alias reaches it, and nothing its own records.
        assert_eq!(get("/users%2Fby%2Femail/x"), Err(HttpError::NoSuchCollection));
    }

    #[test]
    fn paths_and_methods() {
        let router = router(&["products", "prices"]);
        let get = |path| router.route(&Method::GET, path, None);
        assert_eq!(get("/products/7"), Ok(Route::Item(own(0), "7")));
        assert_eq!(get("/prices/a%2Fb"), Ok(Route::Item(own(1), "a%2Fb")));
        assert_eq!(get("/%70rices/7"), Ok(Route::Item(own(1), "7")));
        assert_eq!(get("/products/"), Ok(Route::Item(own(0), "")));
        assert_eq!(get("/products"), Ok(Route::BatchGet(own(0), None)));
        for path in ["", "*", "//7", "/products/7/", "/products/7/8"] {
            assert_eq!(get(path), Err(HttpError::NoSuchPath), "{path}");
        }
        assert_eq!(get("/"), Ok(Route::Index));
        for path in FILES {
            assert_eq!(get(path), Ok(Route::File(path)));
        }
        assert_eq!(router.route(&Method::POST, "/", None), Err(HttpError::Method("GET, HEAD")));
        for path in ["/product/7", "/products%2F7", "/Products/7", "/%zz/7", "/%FF/7"] {
            assert_eq!(get(path), Err(HttpError::NoSuchCollection), "{path}");
        }
        let delete = |path| router.route(&Method::DELETE, path, None);
        assert_eq!(delete("/products/7"), Err(HttpError::Method("GET, HEAD")));
        assert_eq!(delete("/products"), Err(HttpError::Method("GET, HEAD, POST")));
        assert_eq!(router.route(&Method::POST, "/products", None), Ok(Route::BatchPost(own(0))));
        assert_eq!(get("/openapi.json"), Err(HttpError::NoSuchCollection));
        assert_eq!(router.route(&Method::OPTIONS, "*", None), Ok(Route::Capabilities));
        assert_eq!(
            router.route(&Method::CONNECT, "", None),
            Err(HttpError::Method("GET, HEAD, POST"))
        );
    }

    #[test]
    fn keys_of_several_columns_are_posted() {
        let composite = std::iter::once((CollectionId(1), 2));
        let router = router(&["products", "prices"]).with_composite_keys(composite);
        let put = |path| router.route(&Method::PUT, path, None);
        assert_eq!(put("/products"), Err(HttpError::Method("GET, HEAD, POST")));
        assert_eq!(put("/prices"), Err(HttpError::Method("POST")));
        assert_eq!(put("/prices/1,2"), Err(HttpError::Method("GET, HEAD")));
        for method in [Method::GET, Method::HEAD] {
            let route = |path, query| router.route(&method, path, query);
            assert_eq!(route("/prices", Some("ids=1,2")), Err(HttpError::Method("POST")));
            assert_eq!(route("/prices/1,2", None), Ok(Route::Item(own(1), "1,2")));
        }
        let post = router.route(&Method::POST, "/prices", None);
        assert_eq!(post, Ok(Route::BatchPost(own(1))));
        let get = |path| router.route(&Method::GET, path, None).unwrap_err().detail();
        let expected = "a key of 2 columns has commas between them: /prices/B,1";
        assert_eq!(get("/prices/B/1"), expected);
        assert_eq!(get("/prices/B/1/2"), HttpError::NoSuchPath.detail());
    }

    #[test]
    fn the_description_has_a_path_where_it_is_served() {
        let router = router(&["products"]).with_description(true);
        let route = |method, path| router.route(&method, path, None);
        assert_eq!(route(Method::GET, "/openapi.json"), Ok(Route::Description));
        assert_eq!(route(Method::HEAD, "/openapi.json"), Ok(Route::Description));
        assert_eq!(route(Method::POST, "/openapi.json"), Err(HttpError::Method("GET, HEAD")));
        assert_eq!(route(Method::GET, "/openapi.json/1"), Err(HttpError::NoSuchCollection));
    }
}
