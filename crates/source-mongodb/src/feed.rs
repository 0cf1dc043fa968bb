//! Thread of the feed: runs session after session until shutdown.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotrow_types::key::KeySchema;
use hotrow_types::version::Position;
use mongodb::error::Error;
use mongodb::{Client, Database};
use tokio::time::timeout;

use super::config::Tuning;
use super::config::{Config, Follow};
use super::delivery::Delivery;
use super::error::{Ended, text};
use super::indexes;
use super::inspect::Served;
use super::probe::Progress;
use super::server::{DeploymentKind, Identity, greet, identify};
use super::session::{Aliases, Session};
use super::shared::Shared;
use super::stream::{Batch, ChangeStream, Proof, Start, Token, Watched};
use super::target::{Settings, Target};
use hotrow_source::catalog_watermark::{self, CatalogWatermark};
use hotrow_source::feed_loop::{self, Pauses};
use hotrow_source::{LossCause, Sink};
use hotrow_supervisor::{self as supervisor, shutdown::Shutdown};

/// Connections of the feed: stream, probe, note, and one to kill an old cursor.
const CONNECTIONS: u32 = 4;

/// Feed of the database's changes.
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
    /// Runs until everything must end; it blocks and needs a thread of its own. It may run again
    /// after an error or a panic, once the sink has received a loss: it then starts anew.
    ///
    /// # Errors
    /// Fails if the system has no event loop left; nothing was delivered then.
    // By value: the feed is the last owner of the sink.
    #[allow(clippy::needless_pass_by_value)]
    pub fn run(&mut self, sink: Arc<dyn Sink>, shutdown: &Shutdown) -> std::io::Result<()> {
        feed_loop::run(shutdown, self.follow(&*sink))
    }

    async fn follow(&self, sink: &dyn Sink) -> Infallible {
        let mut feed_loop = FeedLoop {
            feed: self,
            sink,
            database: None,
            position: None,
            may_note: true,
            malformed_at: None,
            last_error: String::new(),
        };
        let mut pauses = Pauses::new();
        loop {
            let began_at = Instant::now();
            let ended = Box::pin(feed_loop.session()).await;
            pauses.worked(began_at.elapsed());
            feed_loop.end(ended);
            pauses.wait().await;
        }
    }
}

pub(crate) fn settings(config: &Config) -> Settings {
    Settings { connections_max: CONNECTIONS, connect_timeout: config.server.connect_timeout }
}

/// State that survives sessions.
struct FeedLoop<'a> {
    feed: &'a MongoFeed,
    sink: &'a dyn Sink,
    database: Option<Database>,
    /// Position of the feed once it has started; `None` after a loss.
    position: Option<StreamPosition>,
    may_note: bool,
    /// Start of the stream after the last malformed answer.
    malformed_at: Option<Start>,
    /// Last logged error of a failed attempt.
    last_error: String,
}

/// Position in a deployment's log.
struct StreamPosition {
    identity: Identity,
    progress: Progress,
    /// `None` until the stream has sent a token: then it starts again at its beginning.
    resume: Option<Token>,
    began_at: u64,
}

impl StreamPosition {
    /// Returns the start of the next session.
    fn start(&self) -> Start {
        self.resume.clone().map_or(Start::Time(self.began_at), Start::Token)
    }
}

impl<'a> FeedLoop<'a> {
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
        let identity =
            timely(limit, "the deployment", identify(database.client(), &greeting)).await?;
        self.check_identity(&identity)?;
        if self.feed.config.server.follow != Follow::Changes {
            return Ok(self.run_without_stream(&database, &identity).await);
        }
        let is_secondary =
            matches!(greeting.kind, DeploymentKind::ReplicaSet(_)) && !greeting.is_primary;
        if greeting.kind == DeploymentKind::Standalone || is_secondary {
            let detail =
                format!("{identity} cannot be followed: no primary of a replica set answers");
            // A connection to this member alone would continue to read it.
            shared.down(&detail);
            return Err(Ended::interrupted(detail));
        }
        let (start, began_at) = match &self.position {
            Some(position) => (position.start(), position.began_at),
            None => {
                let end = timely(
                    limit,
                    "the log's end",
                    super::server::log_end(&database, &greeting.kind),
                )
                .await?;
                // One before the newest operation, so that the stream reports when it has passed
                // that operation.
                let end = end.ok_or_else(|| {
                    Ended::interrupted("the deployment reports no time of its operations")
                })?;
                let began_at = end.saturating_sub(1);
                (Start::Time(began_at), began_at)
            }
        };
        let aliases = self.aliases(&database).await?;
        let watched = Watched::of(&self.feed.config.server.collections);
        let (mut stream, mut first) = self.open(&database, &watched, &start).await?;
        let proof = Proof::of(first.token().as_ref(), began_at, &identity.kind)
            .map_err(Ended::interrupted)?;
        if proof == Proof::Answers {
            (stream, first) = self.open(&database, &watched.unfiltered(), &start).await?;
        }
        self.begin(&identity, began_at);
        let Some(position) = &mut self.position else {
            return Err(Ended::interrupted("the feed has no position"));
        };
        let session = Session {
            database: &database,
            identity: &identity,
            tuning: *tuning,
            shared,
            sink: self.sink,
            delivery: Delivery::new(served, schemas, shared, self.sink, identity.incarnation()),
            progress: &mut position.progress,
            resume: &mut position.resume,
            first: first.token(),
            proof,
            asked_through: 0,
            may_note: &mut self.may_note,
            aliases,
            reported: None,
        };
        self.last_error.clear();
        Ok(session.run(&mut stream, &first).await)
    }

    async fn open(
        &self,
        database: &Database,
        watched: &Watched<'_>,
        start: &Start,
    ) -> Result<(ChangeStream, Batch), Ended> {
        let Tuning { wait_max, silence_max, .. } = self.feed.tuning;
        let opening = ChangeStream::open(database, watched, start, wait_max);
        let opened = timeout(silence_max, opening).await;
        opened.map_err(|_| Ended::silent("the change stream", silence_max))?
    }

    /// Looks at the indexes of aliases, if there are any, before the session begins.
    async fn aliases(&self, database: &Database) -> Result<Option<Aliases<'a>>, Ended> {
        let MongoFeed { config, tuning, shared, served, .. } = self.feed;
        if served.iter().all(|own| own.alias.is_none()) {
            return Ok(None);
        }
        let looked = indexes::look(database, served, tuning.silence_max).await?;
        let (schema_poll, bound) = (config.server.schema_poll, config.server.max_staleness);
        let watermark = CatalogWatermark::new(schema_poll, bound, looked.sent_at);
        looked.apply(shared, served, self.sink);
        let look_every = catalog_watermark::check_interval(schema_poll);
        Ok(Some(Aliases { served, look_every, watermark }))
    }

    /// Records that the stream is open.
    fn begin(&mut self, identity: &Identity, began_at: u64) {
        let shared = &self.feed.shared;
        shared.publish(identity);
        if self.position.is_some() {
            tracing::info!(deployment = %identity, "the change feed resumes at its position");
            return;
        }
        // The stream does not report changes before its beginning, so every read must see them.
        shared.raise(began_at.saturating_add(1));
        let log_position = Position { incarnation: identity.incarnation(), at: began_at };
        tracing::info!(deployment = %identity, position = %log_position, "the change feed starts");
        self.position = Some(StreamPosition {
            identity: identity.clone(),
            progress: Progress::new(began_at),
            resume: None,
            began_at,
        });
        self.sink.started(Some(log_position));
    }

    /// Runs without a stream, until another deployment answers or none.
    async fn run_without_stream(&mut self, database: &Database, identity: &Identity) -> Ended {
        self.feed.shared.publish(identity);
        self.last_error.clear();
        self.sink.started(None);
        let limit = self.feed.tuning.silence_max;
        loop {
            supervisor::turn();
            tokio::time::sleep(self.feed.config.server.schema_poll).await;
            let check = async {
                let greeting = timely(limit, "the deployment", greet(database.client())).await?;
                let identity_now =
                    timely(limit, "the deployment", identify(database.client(), &greeting)).await?;
                self.feed.shared.outage.feed_answered();
                self.check_identity(&identity_now)?;
                self.aliases(database).await.map(drop)
            };
            if let Err(ended) = check.await {
                return ended;
            }
        }
    }

    /// Checks that this is the deployment of the last session. Another one makes everything stale,
    /// including rows read since the connection to the last one was lost.
    fn check_identity(&mut self, identity: &Identity) -> Result<(), Ended> {
        let before = match &self.position {
            Some(position) => position.identity.clone(),
            None => match self.feed.shared.deployment() {
                Ok(before) => (*before.identity).clone(),
                Err(_) => return Ok(()),
            },
        };
        if before.is_same(identity) {
            return Ok(());
        }
        let detail = format!("{before} was followed, {identity} answers now");
        // The readers first: a read that begins after the loss must not see the lost deployment.
        self.feed.shared.down(&detail);
        Err(Ended::Lost(LossCause::OtherDatabase, detail))
    }

    fn end(&mut self, ended: Ended) {
        match self.lost_if_repeated(ended) {
            Ended::Lost(cause, detail)
                if self.position.take().is_some() || cause == LossCause::OtherDatabase =>
            {
                tracing::warn!(
                    ?cause,
                    %detail,
                    "the change feed lost its position; everything is read anew"
                );
                self.sink.loss(cause, &detail);
            }
            ended => {
                let detail = ended.detail();
                if self.last_error != detail {
                    tracing::error!(
                        error = %detail,
                        "the change feed is interrupted; trying again"
                    );
                    detail.clone_into(&mut self.last_error);
                }
            }
        }
    }

    /// Makes a malformed answer a loss if the stream has not advanced since the last one. Otherwise
    /// every session would end at that answer, and no later change would be delivered.
    fn lost_if_repeated(&mut self, ended: Ended) -> Ended {
        let Ended::Malformed(detail) = ended else { return ended };
        let start = self.position.as_ref().map(StreamPosition::start);
        if start.is_some() && self.malformed_at == start {
            self.malformed_at = None;
            return Ended::Lost(LossCause::Unavailable, format!("{detail}, twice"));
        }
        self.malformed_at = start;
        Ended::Malformed(detail)
    }

    /// Returns the client, created once: the driver finds servers again by itself.
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

/// Creates a client that connects when needed, on the runtime of the caller.
///
/// # Errors
/// Fails if a `mongodb+srv:` name cannot be resolved.
pub(crate) async fn connect(
    target: &Target,
    name: &str,
    settings: Settings,
) -> Result<Database, Error> {
    let options = target.options(name, settings).await?;
    Ok(Client::with_options(options)?.database(&target.database))
}

/// Waits for an answer up to `limit`.
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
