//! The bottlenecks, one constructor each. The planted bottleneck sets the rate: without it every
//! service could answer more, and the generator needs a small part of one CPU.

use std::net::{IpAddr, SocketAddr};

use super::plan::{Plan, Service, Threads, Work};
use super::proxy;
use super::stage::{Group, Limit, Namespace, Process, disk_of, wrapped};

/// A bottleneck that can be planted.
pub(crate) struct Plant {
    pub(crate) name: &'static str,
    /// Class that the verdict must name.
    pub(crate) class: &'static str,
    /// Builds the bottleneck, or returns the reason why that is not possible here.
    pub(crate) plant: fn() -> Result<Planted, String>,
}

/// A planted bottleneck. Fields are dropped in this order: processes before their groups.
#[derive(Default)]
pub(crate) struct Planted {
    processes: Vec<Process>,
    /// Arguments of `hotrow load`.
    load: Vec<String>,
    load_group: Option<Group>,
    load_inside: bool,
    group: Option<Group>,
    namespace: Option<Namespace>,
    _folder: Option<tempfile::TempDir>,
}

pub(crate) const PLANTS: [Plant; 16] = [
    Plant { name: "CPU share by cgroup", class: "Throttled", plant: throttled },
    Plant { name: "one busy thread", class: "OneThread", plant: one_thread },
    Plant { name: "all CPUs", class: "AllCpus", plant: all_cpus },
    Plant { name: "slow backend", class: "External", plant: slow_backend },
    Plant { name: "bandwidth", class: "Bandwidth", plant: bandwidth },
    Plant { name: "tiny backlog", class: "AcceptQueue", plant: tiny_backlog },
    Plant { name: "few file descriptors", class: "OpenFiles", plant: few_files },
    Plant { name: "few ports", class: "Ports", plant: few_ports },
    Plant { name: "too few connections", class: "TooFewConnections", plant: few_connections },
    Plant { name: "too few workers", class: "TooFewWorkers", plant: few_workers },
    Plant { name: "global lock", class: "Lock", plant: lock },
    Plant { name: "disk", class: "Disk", plant: disk },
    Plant { name: "throttled generator", class: "Generator", plant: generator },
    Plant { name: "competing process", class: "Competitor", plant: competitor },
    Plant { name: "proxy in front", class: "Proxy", plant: proxy_in_front },
    Plant { name: "none", class: "NoneFound", plant: none },
];

/// A group with three tenths of a CPU.
fn throttled() -> Result<Planted, String> {
    let service =
        Service { threads: Threads::Loops(4), work: Work::Cpu { us: 200 }, ..Service::default() };
    let planted = Planted { group: Some(Group::new(Limit::Cores(0.3))?), ..Planted::default() };
    planted.serve(service)?.closed(16)
}

/// An event loop with work, like a single-threaded service.
fn one_thread() -> Result<Planted, String> {
    let service =
        Service { threads: Threads::Loops(1), work: Work::Cpu { us: 200 }, ..Service::default() };
    Planted::default().serve(service)?.closed(32)
}

fn all_cpus() -> Result<Planted, String> {
    Planted::default()
        .serve(Service { work: Work::Cpu { us: 400 }, ..Service::default() })?
        .closed(32)
}

/// A backend that answers four requests at once, in 5 ms each; the service waits for up to 32.
fn slow_backend() -> Result<Planted, String> {
    let backend =
        Service { threads: Threads::Loops(4), work: Work::Sleep { ms: 5 }, ..Service::default() };
    let planted = Planted::default().start(&Plan::Service(backend))?;
    let backend = planted.address()?;
    planted.serve(Service { work: Work::Query { backend }, ..Service::default() })?.closed(32)
}

/// A link of 100 Mbit/s before a service that could send 1 Gbit/s.
fn bandwidth() -> Result<Planted, String> {
    const MBIT_PER_S: u32 = 100;
    let namespace = Namespace::new()?;
    let listen = IpAddr::V4(namespace.connect(MBIT_PER_S)?);
    let planted = Planted { namespace: Some(namespace), ..Planted::default() };
    planted
        .serve(Service {
            listen,
            body_bytes: 64 << 10,
            work: Work::Cpu { us: 20 },
            ..Service::default()
        })?
        .closed(16)
}

/// A backlog of three connections, and a thread that accepts one every 5 ms.
fn tiny_backlog() -> Result<Planted, String> {
    let service =
        Service { backlog: 2, accept_rest_ms: 5, work: Work::Cpu { us: 50 }, ..Service::default() };
    Ok(Planted::default().serve(service)?.closed(50)?.and("--no-keepalive"))
}

/// Half as many files as connections.
fn few_files() -> Result<Planted, String> {
    let service =
        Service { open_files: Some(40), work: Work::Sleep { ms: 20 }, ..Service::default() };
    Planted::default().serve(service)?.closed(64)
}

/// A new connection per request, and 500 ports, each reserved by the kernel for 60 s afterwards.
fn few_ports() -> Result<Planted, String> {
    let namespace = Namespace::new()?;
    let set = "echo '40000 40499' > /proc/sys/net/ipv4/ip_local_port_range \
        && echo 0 > /proc/sys/net/ipv4/tcp_tw_reuse";
    namespace.inside(&["sh", "-c", set])?;
    let planted = Planted { namespace: Some(namespace), load_inside: true, ..Planted::default() };
    let service = Service { work: Work::Sleep { ms: 1 }, ..Service::default() };
    Ok(planted.serve(service)?.closed(8)?.and("--no-keepalive"))
}

fn few_connections() -> Result<Planted, String> {
    Planted::default()
        .serve(Service { work: Work::Cpu { us: 400 }, ..Service::default() })?
        .closed(1)
}

/// Three workers that sleep.
fn few_workers() -> Result<Planted, String> {
    let service =
        Service { threads: Threads::Loops(3), work: Work::Sleep { ms: 5 }, ..Service::default() };
    Planted::default().serve(service)?.closed(50)
}

/// As many threads as connections, of which one works at a time.
fn lock() -> Result<Planted, String> {
    Planted::default()
        .serve(Service { work: Work::Locked { us: 200 }, ..Service::default() })?
        .closed(32)
}

/// Every request is stored before its answer, on a disk limited to 400 writes per second.
fn disk() -> Result<Planted, String> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).map_err(|e| e.to_string())?;
    let on = disk_of(folder.path()).ok_or("the folder for temporary files lies on no disk")?;
    let group = Group::new(Limit::Writes { disk: on, per_s: 400 })?;
    let work = Work::Sync { folder: folder.path().to_owned(), bytes: 200 };
    let planted = Planted { group: Some(group), _folder: Some(folder), ..Planted::default() };
    planted.serve(Service { work, ..Service::default() })?.closed(16)
}

/// A generator with a tenth of a CPU, and a service with almost no work.
fn generator() -> Result<Planted, String> {
    let planted =
        Planted { load_group: Some(Group::new(Limit::Cores(0.1))?), ..Planted::default() };
    planted.serve(Service { work: Work::Cpu { us: 10 }, ..Service::default() })?.closed(32)
}

/// As many busy threads as CPUs, beside a service that could use all CPUs.
fn competitor() -> Result<Planted, String> {
    let cores = std::thread::available_parallelism().map_err(|e| e.to_string())?.get();
    let planted = Planted::default().start(&Plan::Burner(cores))?;
    let service = Service {
        threads: Threads::Loops(cores),
        work: Work::Cpu { us: 400 },
        ..Service::default()
    };
    planted.serve(service)?.closed(32)
}

/// One nginx process, which compresses the prepared responses of two services.
fn proxy_in_front() -> Result<Planted, String> {
    let service =
        Service { body_bytes: 64 << 10, work: Work::Cpu { us: 20 }, ..Service::default() };
    let mut planted = Planted::default().serve(service.clone())?.serve(service)?;
    let backends: Vec<SocketAddr> =
        planted.processes.iter().filter_map(|process| process.address).collect();
    let services: Vec<String> =
        planted.processes.iter().map(|process| format!("--pid={}", process.pid())).collect();
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let nginx = proxy::start(folder.path(), &backends)?;
    let proxy = format!("--proxy-pid={}", nginx.pid());
    planted.processes.push(nginx);
    let url = format!("http://{}/", planted.address()?);
    planted.load = [url, "-c16".to_owned(), "-HAccept-Encoding: gzip".to_owned(), proxy].into();
    planted.load.extend(services);
    Ok(Planted { _folder: Some(folder), ..planted })
}

/// A rate far below the service's capacity.
fn none() -> Result<Planted, String> {
    let planted =
        Planted::default().serve(Service { work: Work::Cpu { us: 50 }, ..Service::default() })?;
    Ok(planted.closed(16)?.and("--rate").and("500"))
}

impl Planted {
    /// Adds a process outside the group and the namespace.
    fn start(mut self, plan: &Plan) -> Result<Self, String> {
        self.processes.push(Process::start(plan, None, None)?);
        Ok(self)
    }

    /// Adds the service.
    fn serve(mut self, service: Service) -> Result<Self, String> {
        let plan = Plan::Service(service);
        self.processes.push(Process::start(&plan, self.group.as_ref(), self.namespace.as_ref())?);
        Ok(self)
    }

    /// Loads the process added last, with this many connections.
    fn closed(mut self, connections: u32) -> Result<Self, String> {
        let pid = self.processes.last().map(Process::pid).ok_or("nothing was started")?;
        let url = format!("http://{}/", self.address()?);
        self.load = [url, format!("-c{connections}"), format!("--pid={pid}")].into();
        Ok(self)
    }

    fn and(mut self, word: &str) -> Self {
        self.load.push(word.to_owned());
        self
    }

    fn address(&self) -> Result<SocketAddr, String> {
        self.processes
            .last()
            .and_then(|process| process.address)
            .ok_or_else(|| "nothing listens".to_owned())
    }

    /// Returns the `hotrow load` command for this plant.
    pub(crate) fn load(&self, more: &[&str]) -> std::process::Command {
        let namespace = self.namespace.as_ref().filter(|_| self.load_inside);
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_hotrow-lab"));
        let mut command = wrapped(program, self.load_group.as_ref(), namespace);
        // Calibrations of this machine must not apply.
        command.arg("load").args(&self.load).args(more).env("XDG_CACHE_HOME", "/nonexistent");
        command
    }
}
