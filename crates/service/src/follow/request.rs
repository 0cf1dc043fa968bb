//! From a request to a follower.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hotrow_access::verify::UnixSeconds;
use hotrow_admission::shed::Kind;
use hotrow_answer::body::Body;
use hotrow_answer::context::ReadRequest;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::ids::parse_query;
use hotrow_changes::follow::{FollowerGuard, Follows, NotAdmitted, WorkerFollowers};
use hotrow_push::ResumeId;
use hotrow_telemetry::request::Protocol;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::Position;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, Response};

use super::follow_request::{FollowRequest, Framing};
use super::stream::{FollowBody, Follower};
use crate::reads::Reads;
use crate::shared::Shared;
use crate::step::Step;
use hotrow_config::Limits;

/// Header of a client that returns.
const LAST_EVENT_ID: &str = "last-event-id";
/// Asks nginx to pass on each event at once.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Id of no log, for one that cannot be read: its follower is reset.
const FOREIGN: ResumeId =
    ResumeId { position: Position { incarnation: 0, at: 0 }, generation: None };

/// Followers of one worker, under the settings in force.
pub(crate) struct Following {
    follows: Option<Arc<Follows>>,
    pub(super) reads: Rc<Reads>,
    pub(crate) followers: Rc<WorkerFollowers<Self>>,
}

impl Following {
    pub(crate) fn new(
        shared: &Shared,
        reads: &Rc<Reads>,
        followers: Rc<WorkerFollowers<Self>>,
    ) -> Self {
        Self { follows: shared.follows.clone(), reads: Rc::clone(reads), followers }
    }

    /// Answers with the changes of a collection. `expires`: expiry of the sender's token.
    pub(crate) fn follow(
        self: &Rc<Self>,
        (id, query): (CollectionId, Option<&str>),
        (protocol, expires): (Protocol, Option<UnixSeconds>),
        request: &ReadRequest<'_>,
    ) -> Step {
        let has_tenants = self.reads.collections.get(id).tenancy.is_some();
        let is_followed = self.follows.as_ref().is_some_and(|own| own.is_followed(id));
        if !is_followed || has_tenants {
            return Step::refused(HttpError::NotFollowed);
        }
        if let Err(problem) = self.reads.admission.check_shedding_by_head(id, Kind::Batch, request)
        {
            return Step::refused(problem);
        }
        let asked = self.asked((id, query), protocol, request);
        let cost = asked.as_ref().ok().and_then(|asked| asked.keys.as_ref().map(HashSet::len));
        self.reads.admission.limited(self, id, cost.unwrap_or(1), request, move |own, request| {
            match asked {
                Ok(asked) => own.begin_following(id, asked, expires, request),
                Err(problem) => Step::refused(problem),
            }
        })
    }

    /// Reads what the request asks for.
    fn asked(
        &self,
        (id, query): (CollectionId, Option<&str>),
        protocol: Protocol,
        request: &ReadRequest<'_>,
    ) -> Result<FollowRequest, HttpError> {
        let mut has_ids = false;
        let mut after = None;
        for pair in query.unwrap_or_default().split('&') {
            has_ids |= pair.starts_with("ids=");
            after = pair.strip_prefix("after=").or(after);
        }
        let keys = if has_ids { Some(self.followed_keys(id, query)?) } else { None };
        // A client that returns repeats its URL: its newest id is in the header.
        let last = match request.headers.get(LAST_EVENT_ID) {
            Some(last) => {
                let text = std::str::from_utf8(last).ok();
                Some(text.and_then(|text| ResumeId::parse(text).ok()).unwrap_or(FOREIGN))
            }
            None => after.map(ResumeId::parse).transpose().map_err(|_| {
                HttpError::BadHeader(
                    "after is not a position: 16 hexadecimal digits, a hyphen and a decimal \
                     number, as in Hotrow-Position or in the id of an event",
                )
            })?,
        };
        let framing = match protocol {
            Protocol::Http2 => Framing::Multiplexed,
            Protocol::Http11 => Framing::Chunked,
            _ => Framing::UntilClosed,
        };
        Ok(FollowRequest { keys, last, framing })
    }

    fn followed_keys(
        &self,
        id: CollectionId,
        query: Option<&str>,
    ) -> Result<HashSet<Key, RandomState>, HttpError> {
        let schema = &self.reads.collections.get(id).schema;
        let refused = |why: &str| HttpError::BadBatch(why.to_owned());
        if schema.types().len() > 1 {
            return Err(refused(
                "ids cannot name keys of several columns here: follow the whole collection",
            ));
        }
        if self.reads.fetcher.of(id).source.has_aliases(id) {
            return Err(refused(
                "this collection's database finds one record by several spellings of its key, and \
                 events name the stored one: follow the whole collection",
            ));
        }
        let most = self.follows.as_ref().map_or(0, |follows| follows.settings().ids);
        let pairs = query.unwrap_or_default().split('&');
        let lists = pairs.filter_map(|pair| pair.strip_prefix("ids="));
        let count: usize = lists.map(|list| list.split(',').count()).sum();
        if count > most {
            return Err(HttpError::BadBatch(format!(
                "the request names {count} ids, and may name {most} (follow.ids): follow the whole \
                 collection, or several times"
            )));
        }
        let limits = Limits { max_batch: most, ..Limits::clone(&self.reads.limits) };
        let ids = parse_query(schema, &limits, self.reads.cache.hasher(), query)?;
        Ok(ids.keys.into_iter().collect())
    }

    fn begin_following(
        self: &Rc<Self>,
        id: CollectionId,
        asked: FollowRequest,
        expires: Option<UnixSeconds>,
        request: &ReadRequest<'_>,
    ) -> Step {
        let Some(follows) = &self.follows else {
            return Step::refused(HttpError::NotFollowed);
        };
        let client = self.reads.admission.shared.client(request.connection.peer, request.headers);
        let guard: FollowerGuard = match follows.admit(client) {
            Ok(guard) => guard,
            Err(refusal) => {
                follows.counts.refused();
                return Step::refused(match refusal {
                    NotAdmitted::Full => HttpError::Overloaded(
                        "as many clients follow changes as this server allows (follow.followers)",
                    ),
                    NotAdmitted::TooMany => HttpError::TooManyFollowers,
                });
            }
        };
        let framing = asked.framing;
        let Some(follower) = Follower::open(self, id, asked, (guard, expires), request) else {
            return Step::refused(HttpError::NotFollowed);
        };
        let body = FollowBody::new(follower, self, request, framing);
        let mut response = Response::new(Body::Endless(Box::new(body)));
        let headers = response.headers_mut();
        let mut set = |name, value| _ = headers.insert(name, HeaderValue::from_static(value));
        set(CONTENT_TYPE, "text/event-stream");
        set(CACHE_CONTROL, "no-store");
        set(ACCEL_BUFFERING, "no");
        if framing == Framing::Chunked {
            set(TRANSFER_ENCODING, "chunked");
        }
        Step::ready(response)
    }
}
