//! A server's side: which messages it applies, when it has lost changes, and how it joins.
//!
//! A server joins by a watermark of the chain that it follows. What the chain had before does not
//! matter: reads begin after the join, and see all of it but the hidden changes, which the
//! watermark lists. Everything after the watermark follows it in the chain.

use crate::message::{Beginning, Body, Event, Generation, Message, Watermark};
use crate::rules::{Rule, Rules};
use crate::tag::Tag;

/// Messages of lower chains, without one of the followed chain between them, after which the server
/// follows the lower chain.
const IGNORED_MAX: u32 = 8;

/// State of one server.
#[derive(Debug)]
pub struct Follower {
    rules: Rules,
    /// Collections that the server serves.
    collections: Vec<Tag>,
    /// Database that its readers lead to; `None` while they lead to none.
    origin: Option<String>,
    followed: Option<Followed>,
    /// Messages of lower chains since the last one of the followed chain.
    ignored: u32,
    is_joined: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Followed {
    generation: Generation,
    counter: u64,
    complete: u64,
    /// See [`Watermark::watched`]: as the chain said last.
    watched: Option<u64>,
}

/// What a message requires of the server.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'m> {
    /// Nothing: it is of another chain, or the server has not joined.
    Ignored,
    /// To apply these events, in order. Everything before `complete` is applied then.
    Apply {
        /// The events.
        events: &'m [Event],
        /// Point of the log.
        complete: u64,
    },
    /// Nothing: another relay goes on where the last one ended.
    Continued,
    /// To begin: entries are stale; the hidden changes of the watermark are marks of every key.
    Join(&'m Watermark),
    /// To advance the server's own watermark.
    Advance(&'m Watermark),
    /// All entries are stale.
    Lost(Lost),
    /// Nothing: the watermark cannot be joined, for this reason.
    CannotJoin(Obstacle),
}

/// Reason for which changes may be missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The relay reports a loss: number of the cause, and a text.
    #[error("the relay lost changes: {1}")]
    AtRelay(u8, String),
    /// A chain began that does not continue the one before.
    #[error("chain {number} of the hub began: {reason}")]
    Began {
        /// Its number.
        number: u64,
        /// As the relay gives it.
        reason: String,
    },
    /// Another message than the next.
    #[error("message {expected} of chain {chain} of the hub was expected, and {got} came")]
    Gap {
        /// Number of the chain.
        chain: u64,
        /// The next counter.
        expected: u64,
        /// The counter that came.
        got: u64,
    },
    /// A message of a chain whose beginning did not come.
    #[error("messages of chain {0} of the hub came without its beginning")]
    NoBeginning(u64),
    /// Only messages of a lower chain come: its number.
    #[error("the stream of the hub lost its end: it goes on with chain {0}")]
    Lower(u64),
    /// The server's readers lead to another database.
    #[error("the relay follows {relay}, and the readers lead to {readers}")]
    OtherOrigin {
        /// Database of the relay.
        relay: String,
        /// Database of the readers.
        readers: String,
    },
}

/// Reason for which a server cannot join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// See [`Lost::OtherOrigin`].
    #[error("the relay follows {relay}, and the readers lead to {readers}")]
    OtherOrigin {
        /// Database of the relay.
        relay: String,
        /// Database of the readers.
        readers: String,
    },
    /// The relay does not follow a collection; its index among the server's.
    #[error("the relay does not publish every collection")]
    Collection(usize),
    /// Changes that no read sees yet are not known, or too many.
    #[error("the relay cannot list the changes that are not visible yet; the next may do so")]
    Hidden,
}

impl Follower {
    /// Creates the state of a server that serves these collections.
    #[must_use]
    pub fn new(collections: Vec<Tag>, rules: Rules) -> Self {
        let (origin, followed, ignored) = (None, None, 0);
        Self { rules, collections, origin, followed, ignored, is_joined: false }
    }

    /// Sets the database that the readers lead to. Returns whether it changed while the server
    /// followed a chain: that is a loss.
    #[must_use]
    pub fn set_origin(&mut self, origin: Option<String>) -> bool {
        let is_other = self.origin != origin;
        self.origin = origin;
        is_other && std::mem::take(&mut self.is_joined)
    }

    /// Forgets the chain, for another subscription. Returns whether that is a loss.
    #[must_use]
    pub fn reset(&mut self) -> bool {
        self.followed = None;
        std::mem::take(&mut self.is_joined)
    }

    /// Returns whether the server follows a chain without a loss.
    pub fn is_joined(&self) -> bool {
        self.is_joined
    }

    /// Returns the chain and the counter of the last message.
    pub fn place(&self) -> Option<(Generation, u64)> {
        self.followed.map(|followed| (followed.generation, followed.counter))
    }

    /// Processes the next message of the stream.
    pub fn receive<'m>(&mut self, message: &'m Message) -> Step<'m> {
        if let Body::Beginning(beginning) = &message.body {
            return self.begin(message, beginning);
        }
        let here = Followed {
            generation: message.generation,
            counter: message.counter,
            complete: message.complete,
            watched: match &message.body {
                Body::Watermark(watermark) => watermark.watched,
                // Which shape the tables have now is known with the next watermark.
                Body::Changes(events) if events.iter().any(Event::is_of_schema) => None,
                _ => self.followed.and_then(|followed| followed.watched),
            },
        };
        let Some(followed) = self.followed.as_mut() else {
            self.followed = Some(here);
            return self.process(message);
        };
        if !self.rules.has(Rule::WatermarkInOrder)
            && self.is_joined
            && followed.generation == message.generation
            && let Body::Watermark(watermark) = &message.body
        {
            followed.counter = followed.counter.max(message.counter);
            return Step::Advance(watermark);
        }
        if !is_same(self.rules, followed.generation, message.generation) {
            if message.generation.number < followed.generation.number {
                return self.ignore(here);
            }
            *followed = Followed { watched: None, ..here };
            return self.lose(Lost::NoBeginning(message.generation.number));
        }
        self.ignored = 0;
        let expected = followed.counter.saturating_add(1);
        let complete = here.complete.max(followed.complete);
        *followed = Followed { complete, ..here };
        if message.counter != expected && self.rules.has(Rule::Successor) {
            followed.complete = here.complete;
            let chain = message.generation.number;
            return self.lose(Lost::Gap { chain, expected, got: message.counter });
        }
        self.process(message)
    }

    /// Processes a message that is the next of its chain, or the first.
    fn process<'m>(&mut self, message: &'m Message) -> Step<'m> {
        match &message.body {
            // Handled by the caller.
            Body::Beginning(_) => Step::Ignored,
            Body::Changes(events) if self.is_joined => {
                Step::Apply { events, complete: message.complete }
            }
            Body::Changes(_) => Step::Ignored,
            Body::Watermark(watermark) if self.is_joined => match self.other_origin(watermark) {
                Some((relay, readers)) => self.lose(Lost::OtherOrigin { relay, readers }),
                None => Step::Advance(watermark),
            },
            Body::Watermark(watermark) => match self.obstacle(watermark) {
                Some(obstacle) => Step::CannotJoin(obstacle),
                None => {
                    self.is_joined = true;
                    Step::Join(watermark)
                }
            },
            Body::Loss(loss) => self.lose(Lost::AtRelay(loss.cause, loss.detail.clone())),
        }
    }

    fn begin<'m>(&mut self, message: &'m Message, beginning: &Beginning) -> Step<'m> {
        let before = self.followed;
        let here = Followed {
            generation: message.generation,
            counter: 0,
            complete: message.complete,
            watched: beginning.watched,
        };
        if before.is_some_and(|before| message.generation.number < before.generation.number) {
            return self.ignore(here);
        }
        self.followed = Some(here);
        self.ignored = 0;
        let continues = || {
            let (before, predecessor) = before.zip(beginning.predecessor)?;
            let resumed_at = beginning.resumed_at?;
            let is_within = !self.rules.has(Rule::ResumeWithin) || resumed_at <= before.complete;
            let is_next = is_same(self.rules, before.generation, predecessor.generation)
                && before.counter == predecessor.counter
                && self.origin.as_ref() == Some(&beginning.origin);
            let is_watched = before.watched.is_some() && before.watched == beginning.watched;
            let is_watched = is_watched || !self.rules.has(Rule::SameWatch);
            (is_within && is_next && is_watched).then_some(())
        };
        if self.is_joined && continues().is_some() {
            return Step::Continued;
        }
        let number = message.generation.number;
        self.lose(Lost::Began { number, reason: beginning.reason.clone() })
    }

    /// Ignores a message of a lower chain, unless the followed chain has no messages any more: then
    /// the stream lost its end, and with it the numbers that were given.
    fn ignore<'m>(&mut self, here: Followed) -> Step<'m> {
        self.ignored += 1;
        if self.ignored < IGNORED_MAX {
            return Step::Ignored;
        }
        self.ignored = 0;
        self.followed = Some(Followed { watched: None, ..here });
        self.lose(Lost::Lower(here.generation.number))
    }

    fn lose<'m>(&mut self, lost: Lost) -> Step<'m> {
        if std::mem::take(&mut self.is_joined) { Step::Lost(lost) } else { Step::Ignored }
    }

    fn other_origin(&self, watermark: &Watermark) -> Option<(String, String)> {
        let is_same = self.origin.as_ref() == Some(&watermark.origin);
        (!is_same).then(|| {
            let readers = self.origin.clone().unwrap_or_else(|| "no database".to_owned());
            (watermark.origin.clone(), readers)
        })
    }

    fn obstacle(&self, watermark: &Watermark) -> Option<Obstacle> {
        if let Some((relay, readers)) = self.other_origin(watermark) {
            return Some(Obstacle::OtherOrigin { relay, readers });
        }
        let is_missing = |tag: &Tag| !watermark.collections.contains(tag);
        if let Some(index) = self.collections.iter().position(is_missing) {
            return Some(Obstacle::Collection(index));
        }
        watermark.hidden.is_none().then_some(Obstacle::Hidden)
    }
}

fn is_same(rules: Rules, a: Generation, b: Generation) -> bool {
    a == b || !rules.has(Rule::Identity)
}

#[cfg(test)]
mod tests;
