//! The supervisor: does what the lab asks for, and ends everything when the lab is gone.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, set_child_subreaper, setsid};

use super::limiter::Limiter;
use super::message::{self, Answer, Request};
use super::service::{Service, offspring};
use super::{Command, Limits, StopSignal, ending, leftovers};

/// Most processes that run at the same time, without their descendants.
const RUNNING_MAX: usize = 64;
/// Processes that are over, and whose use of CPU can still be asked for.
const OVER_MAX: usize = 256;
/// How often orphans are waited for, and signals looked for, when nothing else happens.
const TICK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Whether cgroups are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cgroups {
    /// Wherever the system lets us.
    Try,
    /// Not at all, as where none may be written: for tests, and where they make trouble.
    Avoid,
}

/// Runs the supervisor until standard input closes or `stop` is set; then kills all it started, and what descends from
/// that. Requests come over standard input, answers go to standard output.
///
/// # Errors
/// When it cannot adopt orphans, cannot read, or something outlived SIGKILL.
pub fn supervise(stop: &AtomicBool, cgroups: Cgroups) -> io::Result<()> {
    // A leader of its own session already: it was started by hand.
    let _ = setsid();
    set_child_subreaper(Some(getpid()))?;
    let requests = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let label = leftovers::label(std::process::id())
        .ok_or_else(|| io::Error::other("/proc does not tell about this process; it must be mounted"))?;
    let (limiter, limits) = Limiter::new(&label, cgroups);
    let mut supervisor = Supervisor { limiter, limits, services: BTreeMap::new(), next_id: 0, requests };
    let served = supervisor.serve(stop);
    let mut services: Vec<&mut Service> = supervisor.services.values_mut().filter(|s| !s.is_over()).collect();
    let killed = ending::kill_all(&mut services);
    services.iter().for_each(|service| supervisor.limiter.release(&service.place));
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
            self.look_after();
            if !asked {
                continue;
            }
            let Some(request) = message::receive(&mut requests)? else { return Ok(()) };
            let answer = self.answer(request);
            match message::send(io::stdout().lock(), &answer) {
                // The lab has died.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                sent => sent?,
            }
        }
        Ok(())
    }

    /// Waits until the lab says something or is gone (true), a process ends, or a tick has passed.
    fn await_event(&self) -> io::Result<bool> {
        let running = self.services.values().filter(|service| service.runs());
        let mut fds = vec![PollFd::new(&self.requests, PollFlags::IN)];
        fds.extend(running.map(|service| PollFd::from_borrowed_fd(service.handle(), PollFlags::IN)));
        match poll(&mut fds, Some(&TICK)) {
            Ok(_) => Ok(!fds[0].revents().is_empty()),
            // A signal: the flag is looked at next.
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for orphans; and where processes must be seen while they live, sees them.
    fn look_after(&mut self) {
        if self.services.values().any(Service::must_be_seen) {
            let family = offspring();
            for service in self.services.values_mut().filter(|service| !service.is_over()) {
                service.members(&family);
            }
        }
        ending::reap(self.services.values_mut());
    }

    fn answer(&mut self, request: Request) -> Answer {
        let unknown = |id| {
            Answer::Failed(format!("there is no process of number {id}; those that are over are forgotten in time"))
        };
        match request {
            Request::Limits => Answer::Limits(self.limits.clone()),
            Request::Start { name, argv, env, dir, log, cores } => {
                self.start(&Command { name, argv, env, dir, log, cores }).unwrap_or_else(Answer::Failed)
            }
            Request::Stop { id, signal } => self.stop(id, signal).unwrap_or_else(Answer::Failed),
            Request::Exited { id } => match self.services.get_mut(&id) {
                Some(service) => Answer::Exited(service.exited()),
                None => unknown(id),
            },
            Request::Usage { id } => match self.services.get_mut(&id) {
                Some(service) => Answer::Usage(service.usage()),
                None => unknown(id),
            },
        }
    }

    fn start(&mut self, command: &Command) -> Result<Answer, String> {
        if self.services.values().filter(|service| !service.is_over()).count() >= RUNNING_MAX {
            return Err(format!("{RUNNING_MAX} processes run already, and more are not supervised"));
        }
        let id = self.next_id;
        let place = self.limiter.admit(&id.to_string(), command.cores)?;
        self.next_id += 1;
        match Service::start(command, id, place) {
            Ok(service) => {
                let answer = Answer::Started { id, pid: service.pid, limit_cores: service.place.limit_cores };
                self.services.insert(id, service);
                Ok(answer)
            }
            Err((why, place)) => {
                self.limiter.release(&place);
                Err(why)
            }
        }
    }

    /// A process that is forgotten was over long ago.
    fn stop(&mut self, id: u32, signal: StopSignal) -> Result<Answer, String> {
        let Some(mut service) = self.services.remove(&id) else { return Ok(Answer::Stopped) };
        let mut others: Vec<&mut Service> = self.services.values_mut().collect();
        let was_over = service.is_over();
        let stopped = ending::stop(&mut service, &mut others, number(signal), &self.requests);
        if !was_over && service.is_over() {
            self.limiter.release(&service.place);
        }
        self.services.insert(id, service);
        self.forget();
        stopped.map(|()| Answer::Stopped)
    }

    /// Forgets the oldest of those that are over, when they are too many.
    fn forget(&mut self) {
        let over: Vec<u32> = self.services.iter().filter(|(_, service)| service.is_over()).map(|(id, _)| *id).collect();
        for id in over.iter().take(over.len().saturating_sub(OVER_MAX)) {
            self.services.remove(id);
        }
    }
}

fn number(signal: StopSignal) -> Signal {
    match signal {
        StopSignal::Terminate => Signal::TERM,
        StopSignal::Quit => Signal::QUIT,
        StopSignal::Interrupt => Signal::INT,
    }
}
