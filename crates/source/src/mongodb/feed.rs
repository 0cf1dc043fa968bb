//! The feed: from session to session, for as long as the process lives.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hotrow_cache::key::KeySchema;
use hotrow_cache::version::Position;
use mongodb::error::Error;
use mongodb::{Client, Database};
use tokio::time::timeout;

use super::config::{Config, Follow};
use super::delivery::Delivery;
use super::error::{Ended, text};
use super::inspect::Served;
use super::probe::Progress;
use super::server::{Identity, Kind, greet, identify};
use super::session::Session;
use super::shared::Shared;
use super::stream::{ChangeStream, Start, Token};
use super::target::{Settings, Target};
use super::tuning::Tuning;
use crate::life::{self, Pauses};
use crate::{LossCause, Sink};

/// Connections of the feed: stream, probe, note, and one to kill an old cursor with.
const CONNECTIONS: u32 = 4;

/// Follows the database and delivers what changes.
#[derive(Debug)]
pub struct MongoFeed {
    pub(crate) config: Arc<Config>,
    pub(crate) target: Target,
    pub(crate) tuning: Tuning,
    pub(crate) shared: Arc<Shared>,
    pub(crate) served: Arc<[Served]>,
    pub(crate) schemas: Arc<[KeySchema]>,
}

impl MongoFeed {
    /// Runs until `shutdown` is set. Blocks: it wants a thread of its own.
    // Both are handed over for good: the feed is the last to let go of them.
    #[allow(clippy::needless_pass_by_value)]
    pub fn run(self, sink: Arc<dyn Sink>, shutdown: Arc<AtomicBool>) {
        life::run(&*sink, &shutdown, self.follow(&*sink));
    }

    async fn follow(&self, sink: &dyn Sink) -> Infallible {
        let mut life = Life { feed: self, sink, database: None, place: None, may_note: true, told: String::new() };
        let mut pauses = Pauses::new();
        loop {
            let began_at = Instant::now();
            let ended = Box::pin(life.session()).await;
            pauses.worked(began_at.elapsed());
            life.end(ended);
            pauses.wait().await;
        }
    }
}

/// What the driver needs to know for a feed.
pub(crate) fn settings(config: &Config) -> Settings {
    Settings { connections_max: CONNECTIONS, connect_timeout: config.connect_timeout }
}

/// What goes on from session to session.
struct Life<'a> {
    feed: &'a MongoFeed,
    sink: &'a dyn Sink,
    database: Option<Database>,
    /// Where the feed is, once it has started; none after a loss.
    place: Option<Place>,
    may_note: bool,
    /// What the log was told last about an attempt that failed.
    told: String,
}

/// A place in a deployment's log.
struct Place {
    identity: Identity,
    progress: Progress,
    /// None until the stream has said something: then it starts anew at its beginning.
    resume: Option<Token>,
    began_at: u64,
}

impl Life<'_> {
    /// One session, from the connection to its end.
    async fn session(&mut self) -> Ended {
        match self.try_session().await {
            Ok(ended) | Err(ended) => ended,
        }
    }

    async fn try_session(&mut self) -> Result<Ended, Ended> {
        let MongoFeed { tuning, shared, served, schemas, .. } = self.feed;
        let limit = tuning.silence_max;
        let database = self.database().await?;
        let greeting = timely(limit, "the deployment", greet(database.client())).await?;
        let identity = timely(limit, "the deployment", identify(database.client(), &greeting)).await?;
        self.meet(&identity)?;
        if self.feed.config.follow == Follow::Nothing {
            return Ok(self.look_only(&database, &identity).await);
        }
        let is_secondary = matches!(greeting.kind, Kind::ReplicaSet(_)) && !greeting.is_primary;
        if greeting.kind == Kind::Standalone || is_secondary {
            let detail = format!("{identity} cannot be followed: no primary of a replica set answers");
            // A connection to one member alone would go on reading it.
            shared.down(&detail);
            return Err(Ended::interrupted(detail));
        }
        let start = match &self.place {
            Some(Place { resume: Some(token), .. }) => Start::Token(token.clone()),
            Some(place) => Start::Time(place.began_at),
            None => {
                let end = timely(limit, "the log's end", super::server::log_end(&database, &greeting.kind)).await?;
                // One before the newest operation, so that the stream comes to tell that it has looked at that one.
                let end = end.ok_or_else(|| Ended::interrupted("the deployment tells no time of its operations"))?;
                Start::Time(end.saturating_sub(1))
            }
        };
        let names: Vec<&str> = served.iter().map(|s| s.name.as_str()).collect();
        let opening = ChangeStream::open(&database, &names, &start, tuning.wait_max);
        let mut stream = match timeout(limit, opening).await {
            Ok(opened) => opened.map_err(|e| Ended::stream("opening the change stream", &e))?,
            Err(_) => return Err(Ended::silent("the change stream", limit)),
        };
        let first = match timeout(limit, stream.next()).await {
            Ok(Some(Ok(batch))) => batch,
            Ok(Some(Err(e))) => return Err(Ended::stream("opening the change stream", &e)),
            Ok(None) => return Err(Ended::interrupted("the server closed the change stream")),
            Err(_) => return Err(Ended::silent("the change stream", limit)),
        };
        self.begin(&identity, &start);
        let Some(place) = &mut self.place else { return Err(Ended::interrupted("the feed has no place")) };
        let session = Session {
            database: &database,
            identity: &identity,
            tuning: *tuning,
            shared,
            sink: self.sink,
            delivery: Delivery::new(served, schemas, shared, self.sink, identity.incarnation()),
            progress: &mut place.progress,
            resume: &mut place.resume,
            first: first.token(),
            may_note: &mut self.may_note,
        };
        self.told.clear();
        Ok(session.run(&mut stream, &first).await)
    }

    /// The stream is open.
    fn begin(&mut self, identity: &Identity, start: &Start) {
        let shared = &self.feed.shared;
        shared.publish(identity);
        if self.place.is_some() {
            tracing::info!(deployment = %identity, "the change feed goes on where it was");
            return;
        }
        let began_at = match start {
            Start::Time(at) => *at,
            Start::Token(token) => token.at,
        };
        // What is before the stream's beginning it will not tell: every read must see it.
        shared.raise(began_at.saturating_add(1));
        let position = Position { incarnation: identity.incarnation(), at: began_at };
        tracing::info!(deployment = %identity, %position, "the change feed starts");
        self.place =
            Some(Place { identity: identity.clone(), progress: Progress::new(began_at), resume: None, began_at });
        self.sink.started(Some(position));
    }

    /// Without a stream, until another deployment answers or none.
    async fn look_only(&mut self, database: &Database, identity: &Identity) -> Ended {
        self.feed.shared.publish(identity);
        self.told.clear();
        self.sink.started(None);
        let limit = self.feed.tuning.silence_max;
        loop {
            tokio::time::sleep(self.feed.config.schema_poll).await;
            let looked = async {
                let greeting = timely(limit, "the deployment", greet(database.client())).await?;
                let now = timely(limit, "the deployment", identify(database.client(), &greeting)).await?;
                self.feed.shared.answered();
                self.meet(&now)
            };
            if let Err(ended) = looked.await {
                return ended;
            }
        }
    }

    /// Another deployment than last time: everything is stale, also what was read since that one was lost.
    fn meet(&mut self, identity: &Identity) -> Result<(), Ended> {
        let before = match &self.place {
            Some(place) => place.identity.clone(),
            None => match self.feed.shared.deployment() {
                Ok(before) => (*before).clone(),
                Err(_) => return Ok(()),
            },
        };
        if before.is_same(identity) {
            return Ok(());
        }
        let detail = format!("{before} was followed, {identity} answers now");
        // First the readers: a read that begins after the loss must not see what is gone.
        self.feed.shared.down(&detail);
        Err(Ended::Lost(LossCause::OtherDatabase, detail))
    }

    fn end(&mut self, ended: Ended) {
        match ended {
            Ended::Lost(cause, detail) if self.place.take().is_some() || cause == LossCause::OtherDatabase => {
                tracing::warn!(?cause, %detail, "the change feed lost its place; everything is read anew");
                self.sink.loss(cause, &detail);
            }
            ended => {
                let detail = ended.detail();
                if self.told != detail {
                    tracing::error!(error = %detail, "the change feed is interrupted; trying again");
                    detail.clone_into(&mut self.told);
                }
            }
        }
    }

    /// The driver finds servers again by itself, so one client serves for good.
    async fn database(&mut self) -> Result<Database, Ended> {
        if let Some(database) = &self.database {
            return Ok(database.clone());
        }
        let MongoFeed { config, target, tuning, .. } = self.feed;
        let connecting = connect(target, "hotrow feed", settings(config));
        let database = timely(tuning.silence_max, "the deployment", connecting).await?;
        Ok(self.database.insert(database).clone())
    }
}

/// A client of its own. It connects when it is needed, on the runtime of the caller.
///
/// # Errors
/// When a `mongodb+srv:` name cannot be looked up.
pub(crate) async fn connect(target: &Target, name: &str, settings: Settings) -> Result<Database, Error> {
    let options = target.options(name, settings).await?;
    Ok(Client::with_options(options)?.database(&target.database))
}

/// Waits for an answer, but not for ever.
async fn timely<T>(
    limit: Duration,
    what: &'static str,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Ended> {
    match timeout(limit, answer).await {
        Ok(answer) => answer.map_err(|e| Ended::interrupted(format!("{what}: {}", text(&e)))),
        Err(_) => Err(Ended::silent(what, limit)),
    }
}
