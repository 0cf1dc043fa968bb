//! One follower: the body of an answer that is never complete.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::events::{BEHIND, EventText};
use bytes::Bytes;
use foldhash::fast::RandomState;
use hotrow_access::verify::UnixSeconds;
use hotrow_answer::activity::Activity;
use hotrow_answer::body::EndlessBody;
use hotrow_answer::context::ReadRequest;
use hotrow_changes::follow::worker::Registration;
use hotrow_changes::follow::{CHANGES_PER_READ, EndCause, FRAME_BYTES, FollowerGuard, Follows};
use hotrow_gate::admission::rate::seed;
use hotrow_measure::clock::Nanos;
use hotrow_push::{Cursor, Event, Opening, Progress};
use hotrow_telemetry::throttle::SLOW_FOLLOWER;
use hotrow_types::key::{CollectionId, Key};
use tokio::time::Instant;

use super::Following;
use super::follow_request::{FollowRequest, Framing};
use super::judge::Credential;

/// Interval of looking for changed grants and settings, and for the expiry of a token.
const JUDGE_INTERVAL: Duration = Duration::from_secs(1);
/// Least and greatest time after which a client returns. Those of one process do not return at
/// once.
const RETRY: std::ops::Range<u64> = 500..2_500;

/// A follower.
pub(super) struct Follower {
    id: CollectionId,
    cursor: Cursor,
    opening: Option<Opening>,
    /// Records that it follows; `None`: all.
    keys: Option<HashSet<Key, RandomState>>,
    credential: Credential,
    registration: Registration<Following>,
    guard: FollowerGuard,
}

impl Follower {
    /// Registers a follower and sets it to where its replay begins, in one step.
    pub(crate) fn open(
        following: &Rc<Following>,
        id: CollectionId,
        asked: FollowRequest,
        (guard, expires): (FollowerGuard, Option<UnixSeconds>),
        request: &ReadRequest<'_>,
    ) -> Option<Self> {
        let (cursor, opening) = guard.follows().open(id, asked.last)?;
        Some(Self {
            id,
            cursor,
            opening: Some(opening),
            keys: asked.keys,
            credential: Credential::new(request, expires, following),
            registration: following.followers.register(),
            guard,
        })
    }

    fn follows(&self) -> &Follows {
        self.guard.follows()
    }

    /// Follows until there is a reason to end.
    async fn run(mut self, out: Rc<NextFrame>) -> EndCause {
        let heartbeat = self.follows().settings().heartbeat;
        let mut next_heartbeat = Instant::now() + heartbeat;
        let mut text = EventText::default();
        text.retry(Duration::from_millis(RETRY.start + seed()[0] % (RETRY.end - RETRY.start)));
        if let Some(opening) = self.opening.take() {
            if matches!(opening, Opening::Reset(_)) {
                self.follows().counts.reset();
            }
            text.opening(&opening);
        }
        loop {
            let progress = self.read(&mut text);
            if !text.is_empty() {
                out.put(std::mem::take(&mut text)).await;
            }
            match progress {
                Progress::Overrun => return EndCause::Slow,
                Progress::More => {
                    self.registration.called_again().await;
                    continue;
                }
                Progress::Current => {}
            }
            let look_at = next_heartbeat.min(Instant::now() + JUDGE_INTERVAL);
            let is_called = tokio::select! {
                biased;
                () = self.registration.called() => true,
                () = tokio::time::sleep_until(look_at) => false,
            };
            if is_called {
                continue;
            }
            if let Err(cause) = self.credential.judge(self.registration.newest(), self.id) {
                return cause;
            }
            if Instant::now() >= next_heartbeat {
                next_heartbeat = Instant::now() + heartbeat;
                self.heartbeat(&mut text);
            }
        }
    }

    /// Reads what waits, about a frame of it.
    fn read(&mut self, text: &mut EventText) -> Progress {
        let schema = &self.credential.following().reads.collections.get(self.id).schema;
        let keys = &self.keys;
        let wants = |key: &Key| keys.as_ref().is_none_or(|keys| keys.contains(key));
        let follows = self.guard.follows();
        loop {
            let mut take = |event: Event<'_>| {
                if matches!(event, Event::Reset { .. }) {
                    follows.counts.reset();
                }
                text.event(&event, schema);
            };
            let progress = follows.log(self.id).lock().read(
                self.id,
                &mut self.cursor,
                &wants,
                CHANGES_PER_READ,
                &mut take,
            );
            // A follower of few records looks at many others: its worker has other work too.
            if progress != Progress::More || text.len() >= FRAME_BYTES || text.is_empty() {
                return progress;
            }
        }
    }

    /// Adds a heartbeat, unless the feed is behind or this follower is.
    fn heartbeat(&self, text: &mut EventText) {
        let cache = &self.credential.following().reads.cache;
        let now = Nanos::now();
        let source = self.follows().source(self.id);
        let id = self.follows().log(self.id).lock().resume_point(self.id, &self.cursor);
        match id.filter(|_| cache.is_current(source, now)) {
            Some(id) => text.heartbeat(id, cache.staleness(source, now)),
            None => text.comment(BEHIND),
        }
    }
}

/// Place for the frame that a follower hands over to its connection.
#[derive(Debug, Default)]
struct NextFrame(RefCell<Option<EventText>>);

impl NextFrame {
    /// Hands over a frame, and waits until the connection has taken it.
    async fn put(&self, text: EventText) {
        *self.0.borrow_mut() = Some(text);
        // Polled with the connection, which takes the frame first.
        poll_fn(|_| match self.0.borrow().is_some() {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
    }

    fn take(&self) -> Option<EventText> {
        self.0.borrow_mut().take()
    }
}

/// Body of a follower's answer.
pub(super) struct FollowBody {
    run: Pin<Box<dyn Future<Output = EndCause>>>,
    next: Rc<NextFrame>,
    follows: Arc<Follows>,
    following: Rc<Following>,
    activity: Rc<Activity>,
    framing: Framing,
    /// Its client has taken nothing for too long.
    is_stuck: bool,
    /// A frame was handed over, and the next one must wait for it to be written.
    has_given: Cell<bool>,
    ended: Option<EndCause>,
    collection: CollectionId,
    bytes: u64,
    /// Called with its bytes at its end.
    note: Option<Box<dyn FnOnce(u64)>>,
}

impl fmt::Debug for FollowBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FollowBody").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl FollowBody {
    pub(crate) fn new(
        follower: Follower,
        following: &Rc<Following>,
        request: &ReadRequest<'_>,
        framing: Framing,
    ) -> Self {
        let next = Rc::new(NextFrame::default());
        let follows = Arc::clone(follower.guard.follows());
        follows.counts.begun();
        let collection = follower.id;
        Self {
            run: Box::pin(follower.run(Rc::clone(&next))),
            next,
            follows,
            following: Rc::clone(following),
            activity: Rc::clone(&request.connection.activity),
            framing,
            is_stuck: false,
            has_given: Cell::new(false),
            ended: None,
            collection,
            bytes: 0,
            note: None,
        }
    }

    fn frame(&mut self, mut text: EventText, ended: Option<EndCause>) -> Bytes {
        self.ended = ended;
        if let Some(cause) = ended {
            text.end(cause);
        }
        self.has_given.set(ended.is_none());
        let frame = Bytes::from(text.into_frame(self.framing == Framing::Chunked, ended.is_some()));
        self.bytes += frame.len() as u64;
        self.follows.counts.sent(frame.len());
        frame
    }
}

impl EndlessBody for FollowBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.ended.is_some() {
            return Poll::Ready(None);
        }
        // At most one frame waits for the client.
        let is_alone = self.framing != Framing::Multiplexed;
        if is_alone && self.has_given.take() {
            // Asked before or after the write of the last frame: nothing else would ask again.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if is_alone && self.activity.is_write_blocked() {
            // It ends with a write or a flush, after which the connection asks again.
            return Poll::Pending;
        }
        let (text, ended) = if self.activity.is_leaving() {
            (EventText::default(), Some(EndCause::Draining))
        } else {
            match self.run.as_mut().poll(cx) {
                Poll::Ready(cause) => (EventText::default(), Some(cause)),
                Poll::Pending => match self.next.take() {
                    Some(text) => (text, None),
                    None => return Poll::Pending,
                },
            }
        };
        Poll::Ready(Some(self.frame(text, ended)))
    }

    fn note_stuck(&mut self) {
        self.is_stuck = true;
    }

    fn at_end(&mut self, note: Box<dyn FnOnce(u64)>) {
        self.note = Some(note);
    }
}

impl Drop for FollowBody {
    fn drop(&mut self) {
        let cause = match self.ended {
            Some(cause) => cause,
            None if self.is_stuck || self.activity.is_write_blocked() => EndCause::Slow,
            None if self.activity.is_leaving() => EndCause::Draining,
            None => EndCause::Client,
        };
        self.follows.counts.ended(cause);
        if cause == EndCause::Slow {
            let name = &self.following.reads.collections.get(self.collection).name;
            SLOW_FOLLOWER.warn(|suppressed| {
                tracing::warn!(
                    collection = name,
                    sent_bytes = self.bytes,
                    suppressed,
                    "a follower of changes did not take its events fast enough, and was dropped"
                );
            });
        }
        if let Some(note) = self.note.take() {
            note(self.bytes);
        }
    }
}
