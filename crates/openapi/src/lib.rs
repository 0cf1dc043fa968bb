//! Description of the data API in OpenAPI 3.1: the configured collections with their ids, fields,
//! parameters, answers and credentials. <https://spec.openapis.org/oas/v3.1.1.html>
//!
//! A document is made again only when the catalogue shows other fields, so that a request for it
//! costs little more than its bytes.

mod changes;
mod index;
mod paths;
mod responses;
mod schema;
mod snapshot;
pub mod viewer;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use hotrow_answer::body::Body;
use hotrow_answer::collections::{Collection, Collections};
use hotrow_answer::route::ReadTarget;
use hotrow_config::Config;
use hotrow_config::follow::Follow;
use hotrow_gate::access::Access;
use hotrow_source::field_schema::FieldSchema;
use hotrow_source::sources::Sources;
use hotrow_types::columns::Columns;
use hotrow_types::key::CollectionId;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, VARY};
use http::{HeaderValue, Response};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

/// Path of the document.
pub const PATH: &str = "/openapi.json";

/// What a document says of the records of one collection.
#[derive(Clone, Debug, PartialEq)]
struct Content {
    /// `None` where the catalogue has none.
    fields: Option<Arc<[FieldSchema]>>,
    /// Every record has all of them, for every reader.
    are_required: bool,
}

/// The newest document of one kind, with what it was made of.
type Newest = Mutex<Option<(Vec<Content>, Bytes)>>;

/// Description of the data API.
pub struct ApiDescription {
    collections: Arc<Collections>,
    sources: Sources,
    access: Option<Arc<Access>>,
    facts: Facts,
    for_admin: Newest,
    for_senders: Newest,
    /// For senders that are limited to columns. Those with other columns replace it, each at the
    /// cost of a new document.
    for_limited_senders: Newest,
    /// What `/` lists, and the list.
    newest_index: Mutex<Option<(Vec<ReadTarget>, Bytes)>>,
}

/// What a description says beside the collections; fixed while the process runs.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Address of the data listener as a URL.
    server_url: String,
    /// Most ids of a batch.
    max_batch: usize,
    /// `Hotrow-Deadline-Ms` is honoured.
    has_deadline: bool,
    /// `Hotrow-Priority` is honoured.
    has_priority: bool,
    credentials: Credentials,
    /// Which changes may be followed.
    follow: Follow,
}

impl Facts {
    /// Returns whether the changes of a collection may be followed.
    fn is_followed(&self, collection: &Collection) -> bool {
        let id = collection.schema.collection();
        self.follow.collections.contains(&id) && collection.tenancy.is_none()
    }
}

/// Credentials that requests may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// None are looked at.
    Ignored,
    /// Those of `[access]`.
    Checked {
        /// API keys exist.
        has_keys: bool,
        /// Requests without a credential have a role.
        is_optional: bool,
    },
}

impl ApiDescription {
    /// Prepares the description of these collections.
    pub fn new(
        config: &Config,
        collections: Arc<Collections>,
        sources: Sources,
        access: Option<Arc<Access>>,
    ) -> Self {
        let credentials = match &config.access {
            None => Credentials::Ignored,
            Some(access) => Credentials::Checked {
                has_keys: !access.granted.keys.is_empty(),
                is_optional: !access.granted.anonymous.is_empty(),
            },
        };
        let facts = Facts {
            server_url: server_url(config.data, config.transport.tls.is_some()),
            max_batch: config.limits.max_batch,
            has_deadline: config.concurrency.deadline_header,
            has_priority: config.shed.as_ref().is_some_and(|shed| shed.priority_header),
            credentials,
            follow: config.follow.clone(),
        };
        Self {
            collections,
            sources,
            access,
            facts,
            for_admin: Newest::default(),
            for_senders: Newest::default(),
            for_limited_senders: Newest::default(),
            newest_index: Mutex::default(),
        }
    }

    /// Returns the document for the admin listener. It has all fields.
    pub fn for_admin(&self) -> Bytes {
        let limited =
            self.access.as_ref().map(|access| access.principals().collections_with_limits());
        let is_limited =
            |id| limited.as_ref().is_some_and(|limited: &Vec<CollectionId>| limited.contains(&id));
        let content =
            |id| Content { fields: self.sources.fields(id), are_required: !is_limited(id) };
        let contents = self.collections.ids().map(content).collect();
        let servers = json!([{
            "url": self.facts.server_url, "description": "The address in listen.data.",
        }]);
        self.newest(&self.for_admin, contents, Some(servers))
    }

    /// Returns the fields of a collection's records, where the catalogue lists them.
    pub fn fields(&self, id: CollectionId) -> Option<Arc<[FieldSchema]>> {
        self.sources.fields(id)
    }

    /// Returns the document for a sender with these columns of each collection; `None`: all.
    fn for_sender(&self, columns: impl Fn(CollectionId) -> Option<Arc<Columns>>) -> Bytes {
        let mut newest = &self.for_senders;
        let mut content = |id| {
            let fields = self.sources.fields(id);
            let fields = match columns(id) {
                None => fields,
                Some(columns) => {
                    newest = &self.for_limited_senders;
                    let is_own = |field: &&FieldSchema| columns.has(&field.name);
                    fields.map(|fields| fields.iter().filter(is_own).cloned().collect())
                }
            };
            Content { fields, are_required: true }
        };
        let contents = self.collections.ids().map(&mut content).collect();
        self.newest(newest, contents, None)
    }

    /// Returns a document with these contents. One thread makes it while others wait, which takes
    /// milliseconds at most.
    fn newest(&self, newest: &Newest, contents: Vec<Content>, servers: Option<Value>) -> Bytes {
        let mut newest = newest.lock();
        if let Some((described, document)) = &*newest
            && *described == contents
        {
            return document.clone();
        }
        let mut document = self.document(&contents);
        if let Some(servers) = servers {
            document["servers"] = servers;
        }
        let document = Bytes::from(document.to_string());
        *newest = Some((contents, document.clone()));
        document
    }

    fn document(&self, contents: &[Content]) -> Value {
        let mut paths = Map::new();
        let mut schemas = schema::shared();
        let all = self.collections.all().iter().zip(contents);
        for (collection, content) in all.filter(|(collection, _)| !collection.is_removed) {
            if let Some(alias) = &collection.alias {
                let of = contents.get(usize::from(alias.settings.of.0));
                let fields = of.and_then(|of| of.fields.as_deref());
                paths::add(&mut paths, collection, fields, &self.facts);
                continue;
            }
            let fields = content.fields.as_deref();
            // A request may select fewer.
            let are_required = content.are_required && !collection.allow_fields;
            let record = schema::record(&collection.schema, fields, are_required);
            schemas.insert(collection.name.clone(), record);
            paths::add(&mut paths, collection, fields, &self.facts);
            changes::add(&mut paths, collection, &self.facts);
        }
        let served = self.collections.served().map(|(_, collection)| collection);
        snapshot::add(&mut paths, served, &self.facts);
        let mut components = json!({
            "schemas": schemas,
            "headers": responses::headers(),
            "responses": responses::problems(),
        });
        let mut document = json!({
            "openapi": "3.1.1",
            "info": {
                "title": "Hotrow",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "Records of a database by id, from memory.",
                "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            },
            "paths": paths,
        });
        if let Credentials::Checked { has_keys, is_optional } = self.facts.credentials {
            let (schemes, requirements) = security(has_keys, is_optional);
            components["securitySchemes"] = schemes;
            document["security"] = requirements;
        }
        document["components"] = components;
        document
    }
}

/// Returns the security schemes, and the requirement that one of them is met.
fn security(has_keys: bool, is_optional: bool) -> (Value, Value) {
    let mut schemes = json!({
        "bearer": {
            "type": "http", "scheme": "bearer", "description": "An API key or a token (JWT).",
        },
    });
    let mut requirements = vec![json!({ "bearer": [] })];
    if has_keys {
        schemes["apiKey"] = json!({
            "type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key.",
        });
        requirements.push(json!({ "apiKey": [] }));
    }
    if is_optional {
        requirements.push(json!({}));
    }
    (schemes, Value::Array(requirements))
}

/// Returns the URL of the data listener. An address of all interfaces is no address for a client.
fn server_url(data: SocketAddr, is_tls: bool) -> String {
    let scheme = if is_tls { "https" } else { "http" };
    let ip = data.ip();
    let ip = if ip.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { ip };
    format!("{scheme}://{}", SocketAddr::new(ip, data.port()))
}

impl ApiDescription {
    /// Answers a sender that may read these columns; `None`: all. All collections are shown to
    /// every sender that has been authenticated, and of their fields those that it may read.
    pub fn answer(&self, columns: impl Fn(CollectionId) -> Option<Arc<Columns>>) -> Response<Body> {
        self.json(self.for_sender(columns))
    }

    /// Answers `GET /`: a page if the client prefers one. See [`ApiDescription::index`].
    pub fn answer_index(
        &self,
        wants_page: bool,
        may_read: impl Fn(ReadTarget) -> bool,
    ) -> Response<Body> {
        let mut response = match wants_page {
            true => viewer::answer(viewer::PATH),
            false => self.json(self.index(may_read)),
        };
        response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
        response
    }

    fn json(&self, document: Bytes) -> Response<Body> {
        let mut response = Response::new(Body::Bytes(document));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let directives = if self.access.is_some() { "private, no-cache" } else { "no-cache" };
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(directives));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_can_use_the_address_of_the_server() {
        for (address, is_tls, url) in [
            ("127.0.0.1:8080", false, "http://127.0.0.1:8080"),
            ("0.0.0.0:443", true, "https://127.0.0.1:443"),
            ("[::1]:80", false, "http://[::1]:80"),
        ] {
            assert_eq!(server_url(address.parse().unwrap(), is_tls), url);
        }
    }

    #[test]
    fn one_credential_suffices() {
        let (schemes, requirements) = security(true, true);
        assert_eq!(schemes["apiKey"]["name"], "X-API-Key");
        assert_eq!(requirements, json!([{ "bearer": [] }, { "apiKey": [] }, {}]));
        let (schemes, requirements) = security(false, false);
        assert_eq!(schemes.as_object().unwrap().len(), 1);
        assert_eq!(requirements, json!([{ "bearer": [] }]));
    }
}
