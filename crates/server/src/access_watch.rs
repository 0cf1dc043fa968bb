//! Watching the file of the grants in force.

use std::sync::Arc;

use hotrow_gate::access::PrincipalsInForce;
use hotrow_net::file_watch::{Stamps, Watched};
use hotrow_service::in_force::InForce;

/// The file of grants of the settings in force, if they have one.
pub(crate) struct GrantsInForce(pub(crate) Arc<InForce>);

impl GrantsInForce {
    fn principals(&self) -> Option<Arc<PrincipalsInForce>> {
        let snapshot = self.0.newest();
        snapshot.shared.access.as_ref().map(|access| Arc::clone(access.principals()))
    }
}

impl Watched for GrantsInForce {
    fn stamps(&self) -> Stamps {
        self.principals().map(|principals| principals.stamps()).unwrap_or_default()
    }

    fn taken(&self) -> Stamps {
        self.principals().map(|principals| principals.taken()).unwrap_or_default()
    }

    fn reload(&self, now: Stamps) {
        if let Some(principals) = self.principals() {
            principals.reload(now);
        }
    }
}
