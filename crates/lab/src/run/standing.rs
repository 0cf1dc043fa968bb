//! A set-up that stands: its database, services, proxy and relay, started in this order and ended in the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotrow_load::target::Address;
use hotrow_load::tls::{Tls, Trust};

use super::front;
use super::ready::{self, NotReady};
use crate::experiment::{Experiment, Service, Setup, placeholder};
use crate::nginx::NginxError;
use crate::results::Part;
use crate::stage::{self, Command, Process, Stage, StageError, StopSignal};

/// Where a set-up can stand.
pub(super) struct Ground<'a> {
    pub(super) experiment: &'a Experiment,
    /// The run's folder; absolute.
    pub(super) folder: &'a Path,
    /// The program `hotrow`.
    pub(super) hotrow: &'a Path,
    pub(super) stop: &'a AtomicBool,
    /// Services whose databases are prepared, with what that depends on.
    pub(super) prepared: BTreeSet<String>,
}

/// A set-up that stands.
#[derive(Debug)]
pub(super) struct Standing {
    /// In the order in which they were started.
    pub(super) members: Vec<Member>,
    pub(super) backends: Vec<Backend>,
    pub(super) entrance: Entrance,
    work: PathBuf,
}

/// One process of it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) part: Part,
    pub(super) process: Process,
    signal: StopSignal,
}

/// An instance of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Backend {
    pub(super) name: String,
    pub(super) weight: u32,
    pub(super) address: SocketAddr,
    /// Where its metrics are.
    pub(super) admin: SocketAddr,
}

/// Where the generator goes.
#[derive(Clone, Debug)]
pub(super) struct Entrance {
    pub(super) address: Address,
    pub(super) host: String,
    pub(super) tls: Option<Tls>,
}

/// Why a set-up does not stand.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotStanding {
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error(transparent)]
    NotReady(#[from] NotReady),
    #[error(transparent)]
    Nginx(#[from] NginxError),
    #[error("{0}")]
    Port(std::io::Error),
    #[error("{what} cannot be made: {error}")]
    File { what: String, error: std::io::Error },
    #[error("{name}: {{{placeholder}}} has no value here")]
    Placeholder { name: String, placeholder: String },
    #[error("TLS: {0}")]
    Tls(#[from] hotrow_load::tls::TlsError),
    #[error("preparing {name} failed ({command}): {how}")]
    Prepare { name: String, command: String, how: String },
    #[error("interrupted")]
    Interrupted,
}

impl Standing {
    /// Starts a set-up and waits until all of it is ready. What was started is ended when something fails.
    pub(super) fn start(ground: &mut Ground<'_>, stage: &mut Stage, setup: &Setup) -> Result<Self, NotStanding> {
        let work = ground.folder.join("work");
        // What an earlier run left would be taken for this one's.
        let _ = fs::remove_dir_all(&work);
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let entrance = Entrance { address: Address::Tcp(loopback), host: "localhost".to_owned(), tls: None };
        let mut standing = Self { members: Vec::new(), backends: Vec::new(), entrance, work };
        match standing.build(ground, stage, setup) {
            Ok(()) => Ok(standing),
            Err(why) => {
                // The first failure is the one that tells.
                let _ = standing.end(stage);
                Err(why)
            }
        }
    }

    fn build(&mut self, ground: &mut Ground<'_>, stage: &mut Stage, setup: &Setup) -> Result<(), NotStanding> {
        let mut given = BTreeMap::new();
        if let Some(name) = &setup.database {
            let port =
                self.service(ground, stage, setup, &Role { part: Part::Database, name, instance: None }, &given)?;
            given.insert("database_port".to_owned(), port.port().to_string());
            given.insert("database_dir".to_owned(), text(&self.work.join(name)));
        }
        for instance in 1..=setup.weights.len() as u32 {
            let role = Role { part: Part::Service, name: &setup.service, instance: Some(instance) };
            self.service(ground, stage, setup, &role, &given)?;
        }
        let first = self.backends.first().map_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), |backend| backend.address);
        let (mut port, mut secure) = (first, None);
        if let Some(proxy) = &setup.proxy {
            let front = front::nginx(proxy, &self.backends, &self.work)?;
            port = SocketAddr::from((Ipv4Addr::LOCALHOST, front.listen));
            self.begin(stage, Part::Proxy, StopSignal::Terminate, &front.command)?;
            self.await_tcp(stage, port, front::READY_WITHIN, ground.stop)?;
            secure = front.certificate;
        }
        if let Some(delay) = setup.delay {
            let relay = front::relay(ground.hotrow, port, delay, &self.work)?;
            port = SocketAddr::from((Ipv4Addr::LOCALHOST, relay.listen));
            self.begin(stage, Part::Proxy, StopSignal::Terminate, &relay.command)?;
            self.await_tcp(stage, port, front::READY_WITHIN, ground.stop)?;
        }
        let tls = secure.map(|certificate| Tls::new("localhost", &Trust::Authority(certificate))).transpose()?;
        self.entrance = Entrance { address: Address::Tcp(port), host: format!("localhost:{}", port.port()), tls };
        Ok(())
    }

    /// Starts one instance of a service and waits until it is ready; where it listens.
    fn service(
        &mut self,
        ground: &mut Ground<'_>,
        stage: &mut Stage,
        setup: &Setup,
        role: &Role<'_>,
        given: &BTreeMap<String, String>,
    ) -> Result<SocketAddr, NotStanding> {
        // Its name was checked when the file was read.
        let Some(service) = ground.experiment.services.get(role.name) else { return Err(NotStanding::Interrupted) };
        let name = role.words(setup);
        let dir = self.work.join(&name);
        let port = port(service.port)?;
        let admin_port = if uses(service, setup, "admin_port") { port_free()? } else { port };
        let mut values = given.clone();
        values.extend(base_values(ground, &dir, port, admin_port, role.instance.unwrap_or(1)));
        let own = Own::filled(service, setup, role, values, &name)?;
        prepare(ground, stage, service, &own, &self.work)?;
        own.write_files(&dir)?;
        let command = Command {
            name: name.clone(),
            argv: own.argv,
            env: own.env,
            dir,
            log: self.work.join(format!("{name}.log")),
            cores: if role.part == Part::Service { setup.cores.or(service.cores) } else { service.cores },
        };
        let signal = if role.part == Part::Database { StopSignal::Interrupt } else { StopSignal::Terminate };
        self.begin(stage, role.part, signal, &command)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if role.part == Part::Service {
            let weight = setup.weights.get(role.instance.unwrap_or(1) as usize - 1).copied().unwrap_or(1);
            let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, admin_port));
            self.backends.push(Backend { name, weight, address, admin });
        }
        let Some(member) = self.members.last() else { return Ok(address) };
        let asked = if service.ready_on_admin { SocketAddr::from((Ipv4Addr::LOCALHOST, admin_port)) } else { address };
        let ask = ready::Ask {
            service,
            address: asked,
            ready_command: &own.ready_command,
            log: &self.work.join("ready.log"),
            dir: &command.dir,
        };
        ready::wait(stage, &member.process, &ask, ground.stop)?;
        Ok(address)
    }

    fn begin(
        &mut self,
        stage: &mut Stage,
        part: Part,
        signal: StopSignal,
        command: &Command,
    ) -> Result<(), NotStanding> {
        let process = stage.start(command)?;
        self.members.push(Member { part, process, signal });
        Ok(())
    }

    fn await_tcp(
        &self,
        stage: &mut Stage,
        address: SocketAddr,
        within: Duration,
        stop: &AtomicBool,
    ) -> Result<(), NotStanding> {
        let Some(member) = self.members.last() else { return Ok(()) };
        Ok(ready::wait_tcp(stage, &member.process, address, within, stop)?)
    }

    /// The first of its processes that ended, and how.
    pub(super) fn fallen(&self, stage: &mut Stage) -> Option<String> {
        self.members.iter().find_map(|member| {
            let how = stage.exited(&member.process)?;
            Some(format!("{} {how}", member.process.name))
        })
    }

    /// Ends all of it, the last started first, and removes its folder. How many children services left behind, in words.
    pub(super) fn end(self, stage: &mut Stage) -> Result<Vec<String>, StageError> {
        let (mut left, mut failed) = (Vec::new(), None);
        for member in self.members.iter().rev() {
            // The others must end, whatever became of this one.
            if let Err(error) = stage.stop_with(&member.process, member.signal) {
                failed = failed.or(Some(error));
            }
            let children = stage.usage(&member.process).left_children;
            if children > 0 && member.part == Part::Service {
                left.push(format!(
                    "{} left {children} child processes behind when it ended; the lab ended them",
                    member.process.name
                ));
            }
        }
        // The next set-up removes what cannot be removed now, or says why not.
        let _ = fs::remove_dir_all(&self.work);
        failed.map_or(Ok(left), Err)
    }
}

/// What a service is in a set-up.
struct Role<'a> {
    part: Part,
    name: &'a str,
    instance: Option<u32>,
}

impl Role<'_> {
    /// `date`, or `date-2` where there are several.
    fn words(&self, setup: &Setup) -> String {
        match self.instance {
            Some(instance) if setup.weights.len() > 1 => format!("{}-{instance}", self.name),
            _ => self.name.to_owned(),
        }
    }
}

/// A service's own texts with all placeholders filled.
struct Own {
    name: String,
    key: String,
    argv: Vec<String>,
    env: Vec<(String, String)>,
    files: Vec<(String, String)>,
    prepare: Vec<Vec<String>>,
    ready_command: Vec<String>,
}

impl Own {
    fn filled(
        service: &Service,
        setup: &Setup,
        role: &Role<'_>,
        mut values: BTreeMap<String, String>,
        name: &str,
    ) -> Result<Self, NotStanding> {
        let of_setup = role.part == Part::Service;
        let missing = |placeholder: String| NotStanding::Placeholder { name: name.to_owned(), placeholder };
        let mut vars = service.vars.clone();
        if of_setup {
            vars.extend(setup.vars.clone());
        }
        for (var, text) in &vars {
            let filled = placeholder::fill(text, &values).map_err(missing)?;
            values.insert(var.clone(), filled);
        }
        let fill = |text: &String| placeholder::fill(text, &values).map_err(missing);
        let fill_all = |texts: &[String]| texts.iter().map(fill).collect::<Result<Vec<_>, _>>();
        let pair = |(key, text): (&String, &String)| Ok::<_, NotStanding>((key.clone(), fill(text)?));
        let (mut argv, mut env) = (fill_all(&service.command)?, service.env.clone());
        if of_setup {
            argv.extend(fill_all(&setup.args)?);
            env.extend(setup.env.clone());
        }
        Ok(Self {
            name: name.to_owned(),
            key: preparation_key(role.name, service, &vars),
            argv,
            env: env.iter().map(pair).collect::<Result<_, _>>()?,
            files: service.files.iter().map(pair).collect::<Result<_, _>>()?,
            prepare: service.prepare.iter().map(|command| fill_all(command)).collect::<Result<_, _>>()?,
            ready_command: fill_all(&service.ready_command)?,
        })
    }

    fn write_files(&self, dir: &Path) -> Result<(), NotStanding> {
        let failed = |path: &Path| {
            let what = path.display().to_string();
            move |error| NotStanding::File { what, error }
        };
        fs::create_dir_all(dir).map_err(failed(dir))?;
        for (name, text) in &self.files {
            let path = dir.join(name);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(failed(folder))?;
            }
            fs::write(&path, text).map_err(failed(&path))?;
        }
        Ok(())
    }
}

/// Runs a service's commands of preparation, once per run.
fn prepare(
    ground: &mut Ground<'_>,
    stage: &mut Stage,
    service: &Service,
    own: &Own,
    work: &Path,
) -> Result<(), NotStanding> {
    if own.prepare.is_empty() || ground.prepared.contains(&own.key) {
        return Ok(());
    }
    let data = ground.folder.join("data");
    for dir in [&data, &work.to_path_buf()] {
        fs::create_dir_all(dir).map_err(|error| NotStanding::File { what: dir.display().to_string(), error })?;
    }
    for argv in &own.prepare {
        let failed = |how: String| NotStanding::Prepare { name: own.name.clone(), command: argv.join(" "), how };
        let command = Command {
            name: format!("{}, prepare", own.name),
            argv: argv.clone(),
            env: own.env.clone(),
            dir: data.clone(),
            log: work.join("prepare.log"),
            cores: None,
        };
        let how = ready::run_to_end(stage, &command, service.prepare_within, ground.stop)?;
        if !ready::went_well(&how) {
            return Err(failed(how));
        }
    }
    ground.prepared.insert(own.key.clone());
    Ok(())
}

/// What a preparation depends on: the service, and those of its variables that its commands name.
fn preparation_key(name: &str, service: &Service, vars: &BTreeMap<String, String>) -> String {
    let named = |var: &str| service.prepare.iter().flatten().any(|text| placeholder::names(text).any(|n| n == var));
    let used: Vec<_> = vars.iter().filter(|(var, _)| named(var)).collect();
    format!("{name} {used:?}")
}

fn base_values(ground: &Ground<'_>, dir: &Path, port: u16, admin_port: u16, instance: u32) -> BTreeMap<String, String> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    [
        ("port", port.to_string()),
        ("admin_port", admin_port.to_string()),
        ("instance", instance.to_string()),
        ("dir", text(dir)),
        ("data", text(&ground.folder.join("data"))),
        ("here", text(&ground.experiment.here)),
        ("hotrow", text(ground.hotrow)),
        ("cpus", cpus.to_string()),
        ("half_cpus", (cpus / 2).max(1).to_string()),
        ("four_times_cpus", (cpus * 4).to_string()),
        ("eight_times_cpus", (cpus * 8).to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Whether a service's texts name a placeholder.
fn uses(service: &Service, setup: &Setup, wanted: &str) -> bool {
    let texts = service.command.iter().chain(service.env.values()).chain(service.files.values()).chain(&setup.args);
    texts.chain(setup.env.values()).any(|text| placeholder::names(text).any(|name| name == wanted))
}

fn port(fixed: Option<u16>) -> Result<u16, NotStanding> {
    match fixed {
        Some(port) => stage::ports::available(port).map(|()| port).map_err(NotStanding::Port),
        None => port_free(),
    }
}

pub(super) fn port_free() -> Result<u16, NotStanding> {
    stage::free_port().map_err(NotStanding::Port)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Whether the user wants to stop.
pub(super) fn stopped(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}
