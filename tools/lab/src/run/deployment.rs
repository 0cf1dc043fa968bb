//! A running deployment: database, services, proxy and relay, started in this order and stopped in
//! reverse.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotrow_transport::target::Address;
use hotrow_transport::tls::{Tls, TlsOptions};

use super::instance::{Backend, DeployedProcess, EntryPoint, Role};
use super::proxy;
use super::reach::{Reach, SERVER_NAME};
use super::ready::{self, Launch};
use super::rendered::RenderedService;
use super::start_error::{StartError, port_free};
use crate::experiment::{DeploymentSpec, Experiment, Service, placeholder};
use crate::stage::{self, Command, Stage, StageError, StopSignal};
use hotrow_proxies::haproxy;
use hotrow_results::TierKind;

/// Context of a run's deployments.
pub(super) struct RunContext<'a> {
    pub(super) experiment: &'a Experiment,
    /// The run's folder; absolute.
    pub(super) folder: &'a Path,
    /// This program.
    pub(super) program: &'a Path,
    /// The program of the server.
    pub(super) hotrow: &'a Path,
    pub(super) stop: &'a AtomicBool,
    /// Keys of the preparations already made.
    pub(super) prepared: BTreeSet<String>,
}

/// A running deployment.
#[derive(Debug)]
pub(super) struct Deployment {
    /// Its processes, in order of their start.
    pub(super) members: Vec<DeployedProcess>,
    pub(super) backends: Vec<Backend>,
    pub(super) entry_point: EntryPoint,
    work: PathBuf,
}

impl Deployment {
    /// Starts a deployment and waits until all of it is ready. On a failure everything is stopped.
    pub(super) fn start(
        context: &mut RunContext<'_>,
        stage: &mut Stage,
        spec: &DeploymentSpec,
    ) -> Result<Self, StartError> {
        let work = context.folder.join("work");
        // Files of an earlier run would be mistaken for this one's.
        let _ = fs::remove_dir_all(&work);
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let entry_point =
            EntryPoint { reach: Reach::plain(loopback), host: SERVER_NAME.to_owned() };
        let mut deployment = Self { members: Vec::new(), backends: Vec::new(), entry_point, work };
        match deployment.build(context, stage, spec) {
            Ok(()) => Ok(deployment),
            Err(why) => {
                // The first failure is the informative one.
                let _ = deployment.end(stage);
                Err(why)
            }
        }
    }

    fn build(
        &mut self,
        context: &mut RunContext<'_>,
        stage: &mut Stage,
        spec: &DeploymentSpec,
    ) -> Result<(), StartError> {
        let mut inherited = BTreeMap::new();
        if let Some(name) = &spec.database {
            let port = self.service(
                context,
                stage,
                spec,
                &Role { kind: TierKind::Database, name, instance: None },
                &inherited,
            )?;
            inherited.insert("database_port".to_owned(), port.port().to_string());
            inherited.insert("database_dir".to_owned(), text(&self.work.join(name)));
        }
        for instance in 1..=spec.weights.len() as u32 {
            let role =
                Role { kind: TierKind::Service, name: &spec.service, instance: Some(instance) };
            self.service(context, stage, spec, &role, &inherited)?;
        }
        let Some(first) = self.backends.first() else { return Ok(()) };
        let (mut port, mut reach) = (first.address, first.reach.clone());
        if let Some(proxy) = &spec.proxy {
            let ready =
                context.experiment.services.get(&spec.service).and_then(|of| of.ready.as_deref());
            let process = proxy::process(proxy, &self.backends, ready, &self.work)?;
            port = SocketAddr::from((Ipv4Addr::LOCALHOST, process.listen));
            self.begin(stage, TierKind::Proxy, StopSignal::Terminate, &process.command)?;
            self.await_tcp(stage, port, proxy::READY_WITHIN, context.stop)?;
            if let (Some(ready), Some(member)) = (process.ready, self.members.last()) {
                let ready = SocketAddr::from((Ipv4Addr::LOCALHOST, ready));
                let within = proxy::READY_WITHIN;
                let path = haproxy::READY_PATH;
                ready::wait_http(stage, &member.process, ready, path, within, context.stop)?;
            }
            let trusted = process.certificate.map(TlsOptions::trusting);
            reach.tls = trusted.map(|options| Tls::new(SERVER_NAME, &options)).transpose()?;
            reach.address = Address::Tcp(port);
        }
        if let Some(delay) = spec.delay {
            let relay = proxy::relay(context.program, port, delay, &self.work)?;
            port = SocketAddr::from((Ipv4Addr::LOCALHOST, relay.listen));
            self.begin(stage, TierKind::Proxy, StopSignal::Terminate, &relay.command)?;
            self.await_tcp(stage, port, proxy::READY_WITHIN, context.stop)?;
            reach.address = Address::Tcp(port);
        }
        self.entry_point = EntryPoint { reach, host: format!("{SERVER_NAME}:{}", port.port()) };
        Ok(())
    }

    /// Starts one instance of a service and waits until it is ready; returns its address.
    fn service(
        &mut self,
        context: &mut RunContext<'_>,
        stage: &mut Stage,
        spec: &DeploymentSpec,
        role: &Role<'_>,
        inherited: &BTreeMap<String, String>,
    ) -> Result<SocketAddr, StartError> {
        // Its name was validated with the file.
        let Some(service) = context.experiment.services.get(role.name) else {
            return Err(StartError::Interrupted);
        };
        let name = role.instance_name(spec);
        let dir = self.work.join(&name);
        let port = port(service.port)?;
        let admin_port = if uses(service, spec, "admin_port") { port_free()? } else { port };
        let mut values = inherited.clone();
        values.extend(base_values(context, &dir, port, admin_port, role.instance.unwrap_or(1)));
        let rendered = RenderedService::filled(service, spec, role, values, &name)?;
        prepare(context, stage, service, &rendered, &self.work)?;
        rendered.write_files(&dir)?;
        let command = Command {
            name: name.clone(),
            argv: rendered.argv,
            env: rendered.env,
            dir,
            log: self.work.join(format!("{name}.log")),
            cores: if role.kind == TierKind::Service {
                spec.cores.or(service.cores)
            } else {
                service.cores
            },
        };
        let signal = if role.kind == TierKind::Database {
            StopSignal::Interrupt
        } else {
            StopSignal::Terminate
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, admin_port));
        let launch = Launch {
            command,
            ready: if service.ready_on_admin { admin } else { address },
            ready_command: rendered.ready_command,
            ready_log: self.work.join("ready.log"),
        };
        let place = role.instance.unwrap_or(1) as usize - 1;
        let running = place + spec.spares < spec.weights.len() || role.kind != TierKind::Service;
        let mut member = None;
        if running {
            member = Some(self.begin(stage, role.kind, signal, &launch.command)?);
            let Some(started) = self.members.last() else { return Ok(address) };
            ready::wait(stage, &started.process, &launch.check(service), context.stop)?;
        }
        if role.kind == TierKind::Service {
            let weight = spec.weights.get(place).copied().unwrap_or(1);
            // Files that it names exist once it is ready.
            let reach =
                if running { Reach::of(address, &rendered.access)? } else { Reach::plain(address) };
            self.backends.push(Backend {
                name,
                weight,
                address,
                reach,
                admin,
                launch,
                running,
                member,
            });
        }
        Ok(address)
    }

    /// Returns which instances run.
    pub(super) fn running(&self) -> Vec<bool> {
        self.backends.iter().map(|backend| backend.running).collect()
    }

    fn begin(
        &mut self,
        stage: &mut Stage,
        kind: TierKind,
        signal: StopSignal,
        command: &Command,
    ) -> Result<usize, StartError> {
        let process = stage.start(command)?;
        self.members.push(DeployedProcess { kind, process, killed: false, signal });
        Ok(self.members.len() - 1)
    }

    fn await_tcp(
        &self,
        stage: &mut Stage,
        address: SocketAddr,
        within: Duration,
        stop: &AtomicBool,
    ) -> Result<(), StartError> {
        let Some(member) = self.members.last() else { return Ok(()) };
        Ok(ready::wait_tcp(stage, &member.process, address, within, stop)?)
    }

    /// Returns the first of its processes that ended, and how.
    pub(super) fn first_exited(&self, stage: &mut Stage) -> Option<String> {
        self.members.iter().filter(|member| !member.killed).find_map(|member| {
            let how = stage.exited(&member.process)?;
            Some(format!("{} {how}", member.process.name))
        })
    }

    /// Stops everything in reverse order and removes the folder. Returns descriptions of processes
    /// left behind by services.
    pub(super) fn end(self, stage: &mut Stage) -> Result<Vec<String>, StageError> {
        let (mut left, mut failed) = (Vec::new(), None);
        for member in self.members.iter().rev() {
            // The others must end even if this one cannot be stopped.
            if let Err(error) = stage.stop_with(&member.process, member.signal) {
                failed = failed.or(Some(error));
            }
            let children = stage.usage(&member.process).left_children;
            if children > 0 && member.kind == TierKind::Service {
                left.push(format!(
                    "{} left {children} child processes running at its end; the lab ended them",
                    member.process.name
                ));
            }
        }
        // The next deployment removes remaining files, or reports the reason.
        let _ = fs::remove_dir_all(&self.work);
        failed.map_or(Ok(left), Err)
    }
}

/// Runs a service's preparation commands, once per run.
fn prepare(
    context: &mut RunContext<'_>,
    stage: &mut Stage,
    service: &Service,
    rendered: &RenderedService,
    work: &Path,
) -> Result<(), StartError> {
    if rendered.prepare.is_empty() || context.prepared.contains(&rendered.key) {
        return Ok(());
    }
    let data = context.folder.join("data");
    for dir in [&data, &work.to_path_buf()] {
        fs::create_dir_all(dir)
            .map_err(|error| StartError::File { what: dir.display().to_string(), error })?;
    }
    for argv in &rendered.prepare {
        let failed = |how: String| StartError::Prepare {
            name: rendered.name.clone(),
            command: argv.join(" "),
            how,
        };
        let command = Command {
            name: format!("{}, prepare", rendered.name),
            argv: argv.clone(),
            env: rendered.env.clone(),
            dir: data.clone(),
            log: work.join("prepare.log"),
            cores: None,
        };
        let how = ready::run_to_end(stage, &command, service.prepare_within, context.stop)?;
        if !ready::succeeded(&how) {
            return Err(failed(how));
        }
    }
    context.prepared.insert(rendered.key.clone());
    Ok(())
}

fn base_values(
    context: &RunContext<'_>,
    dir: &Path,
    port: u16,
    admin_port: u16,
    instance: u32,
) -> BTreeMap<String, String> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    [
        ("port", port.to_string()),
        ("admin_port", admin_port.to_string()),
        ("instance", instance.to_string()),
        ("dir", text(dir)),
        ("data", text(&context.folder.join("data"))),
        ("here", text(&context.experiment.here)),
        ("hotrow", text(context.hotrow)),
        ("hotrow_lab", text(context.program)),
        ("cpus", cpus.to_string()),
        ("half_cpus", (cpus / 2).max(1).to_string()),
        ("four_times_cpus", (cpus * 4).to_string()),
        ("eight_times_cpus", (cpus * 8).to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Returns whether a service's texts contain a placeholder.
fn uses(service: &Service, spec: &DeploymentSpec, wanted: &str) -> bool {
    let texts = service
        .command
        .iter()
        .chain(service.env.values())
        .chain(service.files.values())
        .chain(&spec.args);
    texts.chain(spec.env.values()).any(|text| placeholder::names(text).any(|name| name == wanted))
}

fn port(fixed: Option<u16>) -> Result<u16, StartError> {
    match fixed {
        Some(port) => stage::ports::available(port).map(|()| port).map_err(StartError::Port),
        None => port_free(),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
