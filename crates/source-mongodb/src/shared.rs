//! State from the feed to the readers: the deployment, and the floor, which is the cluster time
//! that every read must have seen.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hotrow_types::key::CollectionId;
use mongodb::ClusterTime;
use parking_lot::{Mutex, RwLock};

use super::server::{DeploymentKind, Identity};
use hotrow_source::outage::Outage;

/// Name of an alias's index, or why no lookup can rely on one.
pub(crate) type AliasIndex = Result<String, String>;

#[derive(Debug)]
pub(crate) struct Shared {
    deployment: RwLock<Deployment>,
    /// Cluster time required by every read: everything delivered, and on a replica set everything
    /// read.
    floor: AtomicU64,
    /// Newest signed time of the stream, without which another server would refuse the floor.
    gossip: Mutex<Option<ClusterTime>>,
    is_causality_disabled: AtomicBool,
    /// Begins when a read gets no answer, and ends when the deployment answers a read or a probe.
    pub(crate) outage: Outage,
    /// Queries sent since the start.
    pub(crate) queries: AtomicU64,
    /// Changes of documents whose `_id` no URL can name.
    pub(crate) ignored: AtomicU64,
    /// Index of each alias.
    indexes: RwLock<HashMap<CollectionId, AliasIndex>>,
}

/// Deployment to read.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) identity: Arc<Identity>,
    /// Number of other deployments before it. An identity alone does not distinguish a deployment
    /// that was followed before another one from the same deployment after it.
    generation: u64,
}

/// Deployment that was read last, and its availability.
#[derive(Debug)]
struct Deployment {
    published: Published,
    /// Reason why nothing can be read.
    down: Option<Arc<str>>,
}

impl Shared {
    pub(crate) fn new(identity: Identity) -> Self {
        Self {
            deployment: RwLock::new(Deployment {
                published: Published { identity: Arc::new(identity), generation: 0 },
                down: None,
            }),
            floor: AtomicU64::new(0),
            gossip: Mutex::new(None),
            is_causality_disabled: AtomicBool::new(false),
            outage: Outage::default(),
            queries: AtomicU64::new(0),
            ignored: AtomicU64::new(0),
            indexes: RwLock::default(),
        }
    }

    /// Returns the index that lookups of this collection rely on; `None` if it is no alias.
    pub(crate) fn index(&self, collection: CollectionId) -> Option<AliasIndex> {
        self.indexes.read().get(&collection).cloned()
    }

    /// Sets the index of an alias.
    pub(crate) fn set_index(&self, alias: CollectionId, index: AliasIndex) {
        self.indexes.write().insert(alias, index);
    }

    /// Returns the deployment to read, or the reason why nothing can be read.
    pub(crate) fn deployment(&self) -> Result<Published, Arc<str>> {
        let deployment = self.deployment.read();
        match &deployment.down {
            None => Ok(deployment.published.clone()),
            Some(why) => Err(Arc::clone(why)),
        }
    }

    /// Makes this the deployment to read. Times of another one are not comparable.
    pub(crate) fn publish(&self, identity: &Identity) {
        let mut deployment = self.deployment.write();
        let mut generation = deployment.published.generation;
        if !deployment.published.identity.is_same(identity) {
            generation += 1;
            self.floor.store(0, Ordering::Release);
            *self.gossip.lock() = None;
        }
        let published = Published { identity: Arc::new(identity.clone()), generation };
        *deployment = Deployment { published, down: None };
    }

    /// Makes all reads fail from now on.
    pub(crate) fn down(&self, why: &str) {
        self.deployment.write().down = Some(why.into());
    }

    /// Raises the floor: every read sent from now on sees everything up to `at`. Must be called
    /// before the changes are delivered.
    pub(crate) fn raise(&self, at: u64) {
        self.floor.fetch_max(at, Ordering::AcqRel);
    }

    /// Records that a read may have seen a state as new as `at`. After a fail-over the new primary
    /// may not show it at once, and no later read may see less. On a sharded cluster the floor
    /// stays, because every other shard would have to write to its log first.
    ///
    /// A read of an earlier deployment is ignored. Its time would make the new deployment refuse
    /// every read (code 72) until its own clock passes that time.
    pub(crate) fn record_read(&self, read: &Published, at: u64) {
        // Held while the floor is raised, so that another deployment cannot be published between.
        let deployment = self.deployment.read();
        let is_current = deployment.published.generation == read.generation;
        if is_current && matches!(read.identity.kind, DeploymentKind::ReplicaSet(_)) {
            self.raise(at);
        }
    }

    /// Returns the cluster time that a read sent now must have seen.
    pub(crate) fn floor(&self) -> u64 {
        if self.is_causality_disabled.load(Ordering::Relaxed) {
            0
        } else {
            self.floor.load(Ordering::Acquire)
        }
    }

    pub(crate) fn gossiped(&self, time: ClusterTime) {
        *self.gossip.lock() = Some(time);
    }

    pub(crate) fn gossip(&self) -> Option<ClusterTime> {
        self.gossip.lock().clone()
    }

    /// Makes reads require no cluster time, which disables the safeguard against race B.
    #[cfg(any(test, feature = "failpoints"))]
    pub(crate) fn disable_causality(&self) {
        self.is_causality_disabled.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica_set(id: &str) -> Identity {
        Identity { kind: DeploymentKind::ReplicaSet("rs0".into()), id: Some(id.into()) }
    }

    #[test]
    fn a_read_of_an_earlier_deployment_does_not_raise_the_floor() {
        let shared = Shared::new(replica_set("a"));
        let read = shared.deployment().unwrap();
        shared.record_read(&read, 700);
        assert_eq!(shared.floor(), 700);
        shared.publish(&replica_set("b"));
        shared.record_read(&read, 900);
        assert_eq!(shared.floor(), 0, "the clocks of two deployments are not comparable");
        shared.record_read(&shared.deployment().unwrap(), 5);
        assert_eq!(shared.floor(), 5);
        // The first one again, perhaps restored to an earlier state.
        shared.publish(&replica_set("a"));
        shared.record_read(&read, 900);
        assert_eq!(shared.floor(), 0);
    }

    #[test]
    fn a_read_across_an_interruption_raises_the_floor() {
        let shared = Shared::new(Identity { id: None, ..replica_set("a") });
        let read = shared.deployment().unwrap();
        shared.down("no primary");
        shared.publish(&replica_set("a"));
        shared.record_read(&read, 900);
        assert_eq!(shared.floor(), 900);
    }

    #[test]
    fn a_read_of_a_sharded_cluster_does_not_raise_the_floor() {
        let shared = Shared::new(Identity { kind: DeploymentKind::Sharded, id: None });
        shared.record_read(&shared.deployment().unwrap(), 900);
        assert_eq!(shared.floor(), 0);
    }
}
