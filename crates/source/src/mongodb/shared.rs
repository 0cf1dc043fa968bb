//! What the feed tells the readers: which deployment it follows, and how much a read must have seen at least.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mongodb::ClusterTime;
use parking_lot::{Mutex, RwLock};

use super::server::{Identity, Kind};

/// State shared by feed and readers.
#[derive(Debug)]
pub(crate) struct Shared {
    deployment: RwLock<Deployment>,
    /// Every read asks for this cluster time at least: all that was delivered, and on a replica set all that was read.
    floor: AtomicU64,
    /// The newest signed time of the stream, without which another server would not believe the floor.
    gossip: Mutex<Option<ClusterTime>>,
    causality_off: AtomicBool,
    /// Why the last read got no answer, until the deployment gives one.
    outage: Mutex<Option<String>>,
    /// Queries sent since the start.
    pub(crate) queries: AtomicU64,
    /// Changes of documents whose `_id` no URL can name.
    pub(crate) ignored: AtomicU64,
}

/// The deployment that was read last, and whether it still is.
#[derive(Debug)]
struct Deployment {
    identity: Arc<Identity>,
    /// Why nothing can be read.
    down: Option<Arc<str>>,
}

impl Shared {
    pub(crate) fn new(identity: Identity) -> Self {
        Self {
            deployment: RwLock::new(Deployment { identity: Arc::new(identity), down: None }),
            floor: AtomicU64::new(0),
            gossip: Mutex::new(None),
            causality_off: AtomicBool::new(false),
            outage: Mutex::new(None),
            queries: AtomicU64::new(0),
            ignored: AtomicU64::new(0),
        }
    }

    /// The deployment that is read, or why nothing can be read.
    pub(crate) fn deployment(&self) -> Result<Arc<Identity>, Arc<str>> {
        let deployment = self.deployment.read();
        match &deployment.down {
            None => Ok(Arc::clone(&deployment.identity)),
            Some(why) => Err(Arc::clone(why)),
        }
    }

    /// From now on this deployment is read. Times of another one mean nothing here.
    pub(crate) fn publish(&self, identity: &Identity) {
        let mut deployment = self.deployment.write();
        if !deployment.identity.is_same(identity) {
            self.floor.store(0, Ordering::Release);
            *self.gossip.lock() = None;
        }
        *deployment = Deployment { identity: Arc::new(identity.clone()), down: None };
    }

    /// From now on nothing can be read.
    pub(crate) fn down(&self, why: &str) {
        self.deployment.write().down = Some(why.into());
    }

    /// From now on every read that is sent sees everything up to here. To be called before the changes are handed over.
    pub(crate) fn raise(&self, at: u64) {
        self.floor.fetch_max(at, Ordering::AcqRel);
    }

    /// A read has seen something that may be as new as this. After a fail-over the new primary may not show it at once,
    /// and no later read may see less. Not on a sharded cluster: every other shard would have to write to its log first.
    pub(crate) fn saw(&self, identity: &Identity, at: u64) {
        if matches!(identity.kind, Kind::ReplicaSet(_)) {
            self.raise(at);
        }
    }

    /// What a read that is sent now has to see.
    pub(crate) fn floor(&self) -> u64 {
        if self.causality_off.load(Ordering::Relaxed) { 0 } else { self.floor.load(Ordering::Acquire) }
    }

    /// A read got no answer.
    pub(crate) fn failed(&self, why: &str) {
        *self.outage.lock() = Some(why.to_owned());
    }

    /// The deployment has answered a read or a probe.
    pub(crate) fn answered(&self) {
        *self.outage.lock() = None;
    }

    /// Whether the deployment answers.
    pub(crate) fn outage(&self) -> Result<(), String> {
        self.outage.lock().clone().map_or(Ok(()), Err)
    }

    pub(crate) fn gossiped(&self, time: ClusterTime) {
        *self.gossip.lock() = Some(time);
    }

    pub(crate) fn gossip(&self) -> Option<ClusterTime> {
        self.gossip.lock().clone()
    }

    /// Reads ask for nothing from now on (the fix of Race B is out).
    #[cfg(any(test, feature = "sabotage"))]
    pub(crate) fn take_out_causality(&self) {
        self.causality_off.store(true, Ordering::Relaxed);
    }
}
