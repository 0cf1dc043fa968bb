//! Deliveries of the feed, against a real server.

use hotrow_types::key::KeyPart;
use hotrow_types::version::ChangeId;

use super::recorder::config;
use super::recorder::{Event, Feed};
use super::server::Server;
use hotrow_source::{FlushCause, LossCause};

mod catalog;
mod delivers;
mod idle;
mod kept;
mod losses;
mod poll;
mod publication;
mod schema;
mod start;

/// Waits until a gap of the collection, found after event `from`, is closed.
fn gap_closes(feed: &Feed, from: usize, collection: u16) {
    feed.sink.wait("the end of a gap", |events| {
        let after = &events[from..];
        let opened = after.iter().rposition(|e| matches!(e, Event::Gap(c) if c.0 == collection))?;
        after[opened..]
            .iter()
            .any(|e| matches!(e, Event::GapClosed(c) if c.0 == collection))
            .then_some(())
    });
}

/// Asserts that nothing was lost after event `from`: the other collections are unaffected.
fn assert_no_loss(feed: &Feed, from: usize) {
    let events = feed.sink.since(from);
    assert!(!events.iter().any(|e| matches!(e, Event::Loss(..) | Event::Started(_))), "{events:?}");
}
