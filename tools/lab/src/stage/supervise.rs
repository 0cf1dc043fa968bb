//! The supervisor: carries out the lab's requests, and ends everything when the lab exits.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, set_child_subreaper, setsid};

use super::limiter::{Cgroups, Limiter};
use super::message::{self, Limits, Request, Response, StopSignal};
use super::service::{Service, descendants};
use super::{Command, ending, leftovers};

/// Most processes at the same time, without their descendants.
const RUNNING_MAX: usize = 64;
/// Ended processes whose usage can still be requested.
const ENDED_MAX: usize = 256;
/// Interval for reaping orphans and checking signals while idle.
const TICK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Runs the supervisor until standard input closes or `stop` is set; then kills all its processes
/// and their descendants. Requests arrive on standard input, responses go to standard output.
///
/// # Errors
/// It cannot adopt orphans, cannot read, or a process survived SIGKILL.
pub fn supervise(stop: &AtomicBool, cgroups: Cgroups) -> io::Result<()> {
    // It is a session leader already if it was started by hand.
    let _ = setsid();
    set_child_subreaper(Some(getpid()))?;
    let requests = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let label = leftovers::label(std::process::id()).ok_or_else(|| {
        io::Error::other("/proc has no entry for this process; it must be mounted")
    })?;
    let (limiter, limits) = Limiter::new(&label, cgroups);
    let mut supervisor =
        Supervisor { limiter, limits, services: BTreeMap::new(), next_id: 0, requests };
    let served = supervisor.serve(stop);
    let mut services: Vec<&mut Service> =
        supervisor.services.values_mut().filter(|s| !s.has_ended()).collect();
    let killed = ending::kill_all(&mut services);
    services.iter().for_each(|service| supervisor.limiter.release(&service.allocation));
    supervisor.limiter.close();
    killed.map_err(io::Error::other).and(served)
}

struct Supervisor {
    limiter: Limiter,
    limits: Limits,
    services: BTreeMap<u32, Service>,
    next_id: u32,
    requests: File,
}

impl Supervisor {
    fn serve(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let mut requests = BufReader::new(self.requests.try_clone()?);
        while !stop.load(Ordering::Relaxed) {
            let asked = !requests.buffer().is_empty() || self.await_event()?;
            self.reap_and_sample();
            if !asked {
                continue;
            }
            let Some(request) = message::receive(&mut requests)? else { return Ok(()) };
            let response = self.response(request);
            match message::send(io::stdout().lock(), &response) {
                // The lab has died.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                sent => sent?,
            }
        }
        Ok(())
    }

    /// Waits until the lab sends something or has exited (true), a process ends, or a tick has
    /// passed.
    fn await_event(&self) -> io::Result<bool> {
        let running = self.services.values().filter(|service| service.runs());
        let mut fds = vec![PollFd::new(&self.requests, PollFlags::IN)];
        fds.extend(
            running.map(|service| PollFd::from_borrowed_fd(service.handle(), PollFlags::IN)),
        );
        match poll(&mut fds, Some(&TICK)) {
            Ok(_) => Ok(!fds[0].revents().is_empty()),
            // A signal: the flag is checked next.
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reaps orphans, and samples processes that must be seen alive.
    fn reap_and_sample(&mut self) {
        if self.services.values().any(Service::needs_sampling) {
            let family = descendants();
            for service in self.services.values_mut().filter(|service| !service.has_ended()) {
                service.members(&family);
            }
        }
        ending::reap(self.services.values_mut());
    }

    fn response(&mut self, request: Request) -> Response {
        let unknown = |id| {
            Response::Failed(format!(
                "there is no process of number {id}; ended ones are removed in time"
            ))
        };
        match request {
            Request::Limits => Response::Limits(self.limits.clone()),
            Request::Weigh { generator_pid } => {
                Response::Weights(self.limiter.weigh(generator_pid))
            }
            Request::Start { name, argv, env, dir, log, cores } => self
                .start(&Command { name, argv, env, dir, log, cores })
                .unwrap_or_else(Response::Failed),
            Request::Stop { id, signal } => self.stop(id, signal).unwrap_or_else(Response::Failed),
            Request::Exited { id } => match self.services.get_mut(&id) {
                Some(service) => Response::Exited(service.exited()),
                None => unknown(id),
            },
            Request::Usage { id } => match self.services.get_mut(&id) {
                Some(service) => Response::Usage(service.usage()),
                None => unknown(id),
            },
        }
    }

    fn start(&mut self, command: &Command) -> Result<Response, String> {
        if self.services.values().filter(|service| !service.has_ended()).count() >= RUNNING_MAX {
            return Err(format!("{RUNNING_MAX} processes run already, which is the limit"));
        }
        let id = self.next_id;
        let allocation = self.limiter.admit(&id.to_string(), command.cores)?;
        self.next_id += 1;
        match Service::start(command, id, allocation) {
            Ok(service) => {
                let response = Response::Started {
                    id,
                    pid: service.pid,
                    limit_cores: service.allocation.limit_cores,
                };
                self.services.insert(id, service);
                Ok(response)
            }
            Err((why, allocation)) => {
                self.limiter.release(&allocation);
                Err(why)
            }
        }
    }

    /// A process that was removed had ended long ago.
    fn stop(&mut self, id: u32, signal: StopSignal) -> Result<Response, String> {
        let Some(mut service) = self.services.remove(&id) else { return Ok(Response::Stopped) };
        let mut others: Vec<&mut Service> = self.services.values_mut().collect();
        let was_over = service.has_ended();
        let stopped = ending::stop(&mut service, &mut others, number(signal), &self.requests);
        if !was_over && service.has_ended() {
            self.limiter.release(&service.allocation);
        }
        self.services.insert(id, service);
        self.forget();
        stopped.map(|()| Response::Stopped)
    }

    /// Removes the oldest ended processes when there are too many.
    fn forget(&mut self) {
        let ended_ids: Vec<u32> = self
            .services
            .iter()
            .filter(|(_, service)| service.has_ended())
            .map(|(id, _)| *id)
            .collect();
        for id in ended_ids.iter().take(ended_ids.len().saturating_sub(ENDED_MAX)) {
            self.services.remove(id);
        }
    }
}

fn number(signal: StopSignal) -> Signal {
    match signal {
        StopSignal::Terminate => Signal::TERM,
        StopSignal::Quit => Signal::QUIT,
        StopSignal::Interrupt => Signal::INT,
        StopSignal::Kill => Signal::KILL,
    }
}
