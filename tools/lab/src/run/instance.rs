//! The parts of a deployment: processes, instances of the service, and the target of the generator.

use std::net::SocketAddr;

use super::reach::Reach;
use super::ready::Launch;
use crate::experiment::DeploymentSpec;
use crate::stage::{Process, StopSignal};
use hotrow_results::TierKind;

/// One process of a deployment.
#[derive(Debug)]
pub(super) struct DeployedProcess {
    pub(super) kind: TierKind,
    pub(super) process: Process,
    /// True if an event has killed it.
    pub(super) killed: bool,
    pub(super) signal: StopSignal,
}

/// An instance of the service.
#[derive(Clone, Debug)]
pub(super) struct Backend {
    pub(super) name: String,
    pub(super) weight: u32,
    /// Address at which it listens, if not on a Unix socket.
    pub(super) address: SocketAddr,
    pub(super) reach: Reach,
    /// Address of its metrics.
    pub(super) admin: SocketAddr,
    pub(super) launch: Launch,
    /// False if it is a spare that no event has started yet, or was killed.
    pub(super) running: bool,
    /// Index of its process among the deployment's.
    pub(super) member: Option<usize>,
}

/// Target of the generator.
#[derive(Clone, Debug)]
pub(super) struct EntryPoint {
    pub(super) reach: Reach,
    pub(super) host: String,
}

/// A service's role in a deployment.
pub(super) struct Role<'a> {
    pub(super) kind: TierKind,
    pub(super) name: &'a str,
    pub(super) instance: Option<u32>,
}

impl Role<'_> {
    /// Returns `date`, or `date-2` if there are several.
    pub(super) fn instance_name(&self, spec: &DeploymentSpec) -> String {
        match self.instance {
            Some(instance) if spec.weights.len() > 1 => format!("{}-{instance}", self.name),
            _ => self.name.to_owned(),
        }
    }
}
