//! The handler of a worker after its settings have changed.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use hotrow_answer::record_answer::RecordHeads;
use hotrow_gate::access::Authenticator;
use hotrow_representation::header_writer::HeaderWriter;

use super::Handler;
use crate::shared::Shared;

impl Handler {
    /// Creates the handler that replaces this one under other settings.
    pub(crate) fn replaced_by(&self, shared: Shared) -> Self {
        let is_same = |own: &&Rc<Authenticator>| {
            shared.access.as_ref().is_some_and(|access| own.is_of(access))
        };
        let known = self.authenticator.as_ref().filter(is_same).map(Rc::clone);
        let made = || shared.access.clone().map(|access| Rc::new(Authenticator::new(access)));
        Self {
            authenticator: known.or_else(made),
            heads: RecordHeads::new(&shared.collections),
            shared,
            metrics: Arc::clone(&self.metrics),
            lookups: Arc::clone(&self.lookups),
            samples: Rc::clone(&self.samples),
            observer: self.observer.clone(),
            header_writer: HeaderWriter::default(),
            hits_of_turn: Cell::default(),
            redis_hits_of_turn: Cell::default(),
            client_detectors: Rc::clone(&self.client_detectors),
            key_sampler: self.key_sampler.clone(),
            followers: Rc::clone(&self.followers),
            tracking: self.tracking.clone(),
        }
    }
}
