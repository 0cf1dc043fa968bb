//! `hotrow relay`: follows the database once and publishes its changes for servers.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use hotrow_cli::output::print_line;
use hotrow_cli::signals::{OnAbort, Phase};
use hotrow_hub_nats::config::{HubConfig, Slot, tags};
use hotrow_hub_nats::relay::{Relay, RelayCounts};
use hotrow_measure::clock::Nanos;
use hotrow_server::documents::{Document, Documents, DocumentsListener};
use hotrow_source::spec::Follow;
use hotrow_source_postgres::Hooks;
use hotrow_source_postgres::config::KeptSlot;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_supervisor::{self as supervisor, Supervisor};

use crate::config::{Overrides, Resolved, SourceConfig};
use crate::init::auto::{self, AutoError};
use crate::logging;
use crate::serve::{Host, ServeError};
use engine::Engine;

pub(crate) mod engine;
mod view;

/// Arguments of `relay`.
#[derive(Debug, Args)]
pub struct RelayArgs {
    /// Configuration file (TOML) whose source.feed names NATS servers; the one of the servers will
    /// do
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Address of health, status and metrics; overrides listen.admin
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
}

/// Reason for which a relay does not run.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] AutoError),
    /// The configuration names no hub.
    #[error(
        "source.feed must be the address of NATS servers, such as \"nats://10.0.0.1:4222\": that \
         is where a relay publishes"
    )]
    NoHub,
    /// A subsystem failed; its message names the cause and the remedy.
    #[error("{0}")]
    Subsystem(String),
    /// The process could not be set up.
    #[error(transparent)]
    Host(#[from] ServeError),
}

fn subsystem(error: impl std::fmt::Display) -> RelayError {
    RelayError::Subsystem(error.to_string())
}

/// Runs `hotrow relay` until a signal to stop.
///
/// # Errors
/// The cause if it could not start or could not continue.
pub fn relay(args: &RelayArgs) -> Result<(), RelayError> {
    let host = Host::start(OnAbort::act(logging::flush))?;
    let overrides = Overrides { admin: args.admin, ..Overrides::default() };
    let mut resolved = auto::load(&args.config, &overrides, None)?.resolved;
    let hub = resolved.hub.take().ok_or(RelayError::NoHub)?;
    #[cfg(feature = "failpoints")]
    let hub = HubConfig { rules: host.failpoints.rules_in_force(), ..hub };
    logging::start(resolved.log, &host.supervisor, Arc::default()).map_err(subsystem)?;
    let supervisor = host.supervisor.clone();
    // No replacement: this thread owns the composition.
    let ran = supervisor.run_once("main", || {
        supervisor::turn();
        compose(resolved, hub, &host)
    });
    logging::flush();
    ran.unwrap_or_else(|| Err(ServeError::Panic.into()))
}

fn compose(resolved: Resolved, mut hub: HubConfig, host: &Host) -> Result<(), RelayError> {
    let max_staleness = resolved.cache.max_staleness;
    // The address first: if it is in use, nothing is added to the database.
    let listener = DocumentsListener::bind(&resolved.server).map_err(subsystem)?;
    // The configuration has refused other engines.
    // Of several sources, the one whose feed names NATS.
    let of_hub = resolved.sources.into_iter().find(SourceConfig::follows_hub);
    let Some(source) = of_hub else { return Err(RelayError::NoHub) };
    let collections = source.collections().to_vec();
    let engine = open(source, &mut hub, host)?;
    let tags = tags(&collections, engine.schemas());
    let relay = Relay::new(hub, tags, engine.origins());
    let counts = relay.counts();
    let shutdown = Shutdown::new();
    stop_on_signal(host, &shutdown).map_err(subsystem)?;
    let working = start(relay, engine, &shutdown, &host.supervisor).map_err(subsystem)?;
    let address = listener.address();
    let documents = Arc::new(View { counts, max_staleness, supervisor: host.supervisor.clone() });
    let admin_shutdown = Shutdown::new();
    let admin = listener.serve(documents, &admin_shutdown, &host.supervisor);
    let admin = admin.map_err(subsystem)?;
    print_line(io::stdout(), &format!("relay, admin on http://{address}"));
    // The supervisor catches panics.
    _ = working.join();
    admin_shutdown.now();
    admin.join().map_err(subsystem)
}

/// Opens the feed of the hub's source. The reader is closed at once: a relay reads no records.
fn open(source: SourceConfig, hub: &mut HubConfig, host: &Host) -> Result<Engine, RelayError> {
    let supervisor = &host.supervisor;
    let (_, engine) = match source {
        SourceConfig::Postgres(mut source) => {
            source.server.follow = Follow::Changes;
            source.server.reads_in_flight = 1;
            let kept = |Slot { name, has_failover }| KeptSlot { name, has_failover };
            source.slot = hub.slot.clone().map(kept);
            engine::open_postgres(source, Hooks::default(), supervisor).map_err(subsystem)?
        }
        #[cfg(feature = "mysql")]
        SourceConfig::Mysql(mut source) => {
            source.server.follow = Follow::Changes;
            source.server.reads_in_flight = 1;
            #[cfg(feature = "failpoints")]
            {
                source.resume_rules = host.failpoints.resume_rules_in_force();
            }
            hub.resumes_from_stream = true;
            engine::open_mysql(source, Hooks::default(), supervisor).map_err(subsystem)?
        }
        // The configuration has refused other engines.
        _ => return Err(RelayError::NoHub),
    };
    Ok(engine)
}

/// Starts the thread of the relay. After a panic it begins a new term.
fn start(
    mut relay: Relay,
    engine: Engine,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<std::thread::JoinHandle<Option<()>>> {
    supervisor.spawn_until_end("relay", shutdown, move |shutdown| relay.run(&engine, shutdown))
}

fn stop_on_signal(host: &Host, shutdown: &Shutdown) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut phase = host.phase.clone();
    let shutdown = shutdown.clone();
    let body = move || {
        supervisor::turn();
        // An error means that the sender is gone: no stop request can arrive.
        if runtime.block_on(phase.wait_for(|phase| *phase == Phase::Draining)).is_ok() {
            tracing::info!("stop requested");
            shutdown.now();
        }
        Ok(())
    };
    host.supervisor.spawn("drain", || false, || (), body)?;
    Ok(())
}

/// What the admin side shows.
struct View {
    counts: Arc<RelayCounts>,
    max_staleness: Duration,
    supervisor: Supervisor,
}

impl Documents for View {
    fn document(&self, path: &str) -> Option<Document> {
        const TEXT: &str = "text/plain; charset=utf-8";
        const JSON: &str = "application/json";
        let now = Nanos::now();
        let state = self.counts.state(now);
        let document = |is_fine, content_type, text| Document { is_fine, content_type, text };
        Some(match path {
            "/healthz" => match self.supervisor.failing(now) {
                None => document(true, TEXT, "alive\n".to_owned()),
                Some(thread) => {
                    let text = format!("thread {} keeps failing; restart\n", thread.name);
                    document(false, TEXT, text)
                }
            },
            "/readyz" => {
                let unmet = view::unmet(&state, self.max_staleness);
                let text = serde_json::json!({ "ready": unmet.is_empty(), "unmet": unmet });
                document(unmet.is_empty(), JSON, text.to_string())
            }
            "/status" => document(true, JSON, view::status(&state).to_string()),
            "/metrics" => {
                document(true, "text/plain; version=0.0.4; charset=utf-8", view::metrics(&state))
            }
            _ => return None,
        })
    }
}
