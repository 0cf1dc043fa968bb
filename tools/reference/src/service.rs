//! The state of the service.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::database::Database;
use crate::{Config, Model};

/// The state shared by all requests.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) clock: Clock,
    /// None when the service was started without a database.
    pub(crate) database: Option<Database>,
    /// Requests that were answered.
    pub(crate) served: Arc<AtomicU64>,
    /// The free workers of the blocking model.
    pub(crate) workers: Option<Arc<Semaphore>>,
}

impl Service {
    pub(crate) fn new(config: &Config, database: Option<Database>) -> Self {
        let workers = match config.model {
            Model::Async => None,
            Model::Blocking => Some(Arc::new(Semaphore::new(config.workers.get()))),
        };
        Self { clock: config.clock.clone(), database, served: Arc::default(), workers }
    }
}
