//! One thread: its event loop, connections, requests and counts. It shares nothing while it runs but the flag that ends it.
//!
//! A *place* is room for one request on one connection. Free places stand in a queue, so that all connections are used
//! in turn. Whoever has a free place and a due slot sends; closed loop and open loop differ in the plan only.
//!
//! Sockets are watched edge-triggered for everything from the beginning: one read and one write per request, and no
//! further call to change what is watched.

mod exchange;
mod opening;
mod timer;
mod unread;

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::connection::{Connection, Phase};
use crate::outcome::ThreadUse;
use crate::plan::{Agenda, Next, Slot};
use crate::request::Requests;
use crate::run::{Config, Finish, Message};
use crate::tally::Tally;
use timer::Timer;

/// Bytes read at once; shared by all connections of the thread.
const READ_BYTES: usize = 64 * 1024;
/// Events taken at once.
const EVENTS: usize = 256;
/// Most reads of one connection before the others have their turn: an answer without an end must not hold up the run.
const READS_MAX: u32 = 4;
/// Longest sleep, so that the flag that ends the run is seen.
const SLEEP_MAX_NS: u64 = 50_000_000;
/// Shortest time between two looks at all deadlines.
const SWEEP_MIN_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// A wait that only looks.
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// Slots of a thread that follow each other faster than this go out together, once in this time. Alone, each would wake this thread
/// and most often the target too, which costs more than sending it. It adds at most this to the schedule lag (where it is
/// reported), at more than 10,000 requests per second and thread.
const GRAIN_NS: u64 = 100_000;

/// Room for events. They may carry pointers, so it cannot move between threads with the worker.
type Events = Vec<epoll::Event>;

/// One thread of a run.
pub(crate) struct Worker {
    config: Arc<Config>,
    index: usize,
    out: Sender<Message>,
    ended: Arc<AtomicBool>,
    epoll: OwnedFd,
    timer: Timer,
    connections: Vec<Connection>,
    /// Connections, once for each of their free places.
    free: VecDeque<u32>,
    /// Slots that were taken when an answer came, and the connections that will send them.
    ready: Vec<(u32, Slot)>,
    /// Connections that were left with bytes to read, by index and generation: their sockets will not be reported again.
    postponed: Vec<(u32, u32)>,
    /// Places that hold a slot, but for those of `ready`.
    held: usize,
    agenda: Agenda,
    requests: Requests,
    tally: Tally,
    buffer: Vec<u8>,
    looks: unread::Looks,
    /// Whether requests are gathered to be sent together; only for a pipeline, while `ready` is sent.
    gathering: bool,
    /// When the schedule began. Before that, when connecting began.
    begin: Nanos,
    began: bool,
    /// Connections that are being opened.
    connecting: usize,
    /// Slots of before this time had to wait for a connection.
    starved_ns: u64,
    /// When the slot that was taken last was intended.
    taken_ns: u64,
    /// When slots were handed out last.
    dispatched_ns: u64,
    sweep_at_ns: u64,
    timeout_ns: u64,
    connect_timeout_ns: u64,
    burn_ns: u64,
}

/// What the thread used, from one moment on.
#[derive(Clone, Copy)]
struct Usage {
    cpu: Duration,
    wait: Option<Duration>,
    at_ns: u64,
}

/// The seconds of the measurement, and what the thread used in it.
#[derive(Clone, Copy)]
struct Meter {
    second: u64,
    second_ends_ns: u64,
    first: Option<Usage>,
    last: Option<Usage>,
}

impl Worker {
    pub(crate) fn new(
        config: &Arc<Config>,
        index: usize,
        out: Sender<Message>,
        ended: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let (threads, own) = (config.threads, index as u32);
        let count = config.connections / threads + usize::from(index < config.connections % threads);
        let agenda = config.plan.share(own, threads as u32);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut events: Events = Vec::with_capacity(1);
        // The library waits with a call that came with Linux 5.11.
        match epoll::wait(&epoll, spare_capacity(&mut events), Some(&NO_TIME)) {
            Err(Errno::NOSYS) => return Err(io::Error::other("Linux 5.11 or later is needed (epoll_pwait2)")),
            done => done?,
        };
        let free = (0..config.pipeline).flat_map(|_| 0..count as u32).collect();
        Ok(Self {
            index,
            out,
            ended,
            timer: Timer::new(&epoll)?,
            epoll,
            connections: (0..count).map(|_| Connection::default()).collect(),
            free,
            ready: Vec::new(),
            postponed: Vec::new(),
            held: 0,
            tally: Tally::new(&config.expect, agenda.end_ns()),
            agenda,
            requests: config.requests.share(config.seed, own, threads as u32),
            buffer: vec![0; READ_BYTES],
            looks: unread::Looks::default(),
            gathering: false,
            begin: Nanos::now(),
            began: false,
            connecting: 0,
            starved_ns: 0,
            taken_ns: 0,
            dispatched_ns: 0,
            sweep_at_ns: 0,
            timeout_ns: nanos(config.timeout),
            connect_timeout_ns: nanos(config.connect_timeout),
            burn_ns: nanos(config.burn_per_request),
            config: config.clone(),
        })
    }

    /// Connects, waits for the start, runs. Whoever is not listening any more has given the run up.
    pub(crate) fn work(mut self, start: &Receiver<Nanos>) {
        // Timers of a thread may be 50 µs late by default, for the sake of laptops' batteries; refusal changes little.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut events = Vec::with_capacity(EVENTS);
        let opened = self.open_all(&mut events);
        let trouble = std::mem::take(&mut self.tally.troubles).into_keys().next();
        let trouble = trouble.map(|words| words.trim_start_matches(opening::NO_CONNECTION).to_owned());
        if self.out.send(Message::Ready { opened, trouble }).is_err() {
            return;
        }
        let Ok(begin) = start.recv() else { return };
        std::thread::sleep(begin.since(Nanos::now()));
        self.restart_clock(begin);
        let finish = Box::new(self.run(&mut events));
        // The receiver is gone only when the run was given up.
        let _ = self.out.send(Message::Done { worker: self.index, finish });
    }

    /// From here on times count from the beginning of the schedule. Rests from connecting are moved along.
    fn restart_clock(&mut self, begin: Nanos) {
        let passed_ns = begin.0.saturating_sub(self.begin.0);
        for connection in &mut self.connections {
            if let Phase::Resting { until_ns } = &mut connection.phase {
                *until_ns = until_ns.saturating_sub(passed_ns);
            }
        }
        self.begin = begin;
        self.began = true;
        self.sweep_at_ns = 0;
        // What connecting counted belongs to no second.
        self.tally.take();
    }

    fn run(&mut self, events: &mut Events) -> Finish {
        let warmup_ns = self.agenda.warmup_ns();
        let mut meter = Meter { second: 0, second_ends_ns: warmup_ns + SECOND_NS, first: None, last: None };
        let mut last_call = false;
        let interrupted = loop {
            if self.ended.load(Ordering::Relaxed) {
                break true;
            }
            self.send_ready();
            let now_ns = self.dispatch();
            if !last_call && now_ns >= self.agenda.end_ns() {
                last_call = true;
                self.send_overdue();
            }
            self.note_time(&mut meter, now_ns);
            if self.held == 0 && self.ready.is_empty() && self.agenda.next(now_ns) == Next::Over {
                break false;
            }
            if now_ns >= self.sweep_at_ns {
                self.sweep(now_ns);
                self.send_ready();
            }
            let soon = if self.ready.is_empty() { u64::MAX } else { now_ns };
            let wake_ns = self.next_slot_ns().min(self.sweep_at_ns).min(meter.second_ends_ns).min(soon);
            self.wait(wake_ns.min(now_ns.saturating_add(SLEEP_MAX_NS)), events);
        };
        self.finish(meter, interrupted)
    }

    /// Hands due slots to free places; returns the time.
    fn dispatch(&mut self) -> u64 {
        let begun_ns = self.now_ns();
        if begun_ns < self.grain_end_ns() {
            return begun_ns;
        }
        self.dispatched_ns = begun_ns;
        loop {
            let now_ns = self.now_ns();
            let Some(&place) = self.free.front() else {
                if self.agenda.next(now_ns) == Next::Due {
                    self.starved_ns = now_ns;
                }
                return now_ns;
            };
            let Some(slot) = self.agenda.take(now_ns) else { return now_ns };
            self.free.pop_front();
            self.begin_slot(place as usize, slot, now_ns);
        }
    }

    /// At the end: sends what was due before it, is late for no other reason than this thread, and finds a free place.
    fn send_overdue(&mut self) {
        while let Some(&place) = self.free.front()
            && let Some(slot) = self.agenda.take_overdue()
        {
            self.free.pop_front();
            let now_ns = self.now_ns();
            self.begin_slot(place as usize, slot, now_ns);
        }
    }

    /// When this thread must look at the plan next; never while nobody is free.
    fn next_slot_ns(&self) -> u64 {
        match self.agenda.next(0) {
            Next::At(_) if self.free.is_empty() => u64::MAX,
            Next::At(at_ns) => at_ns.max(self.grain_end_ns()),
            Next::Due | Next::Over => u64::MAX,
        }
    }

    /// Slots that follow each other faster than [`GRAIN_NS`] go out together, once in that time; others at once.
    fn grain_end_ns(&self) -> u64 {
        match self.agenda.next(0) {
            Next::At(at_ns) if at_ns.saturating_sub(self.taken_ns) < GRAIN_NS => self.dispatched_ns + GRAIN_NS,
            Next::At(_) | Next::Due | Next::Over => 0,
        }
    }

    /// Sleeps until something happens or `until_ns` comes, and sees to what happened.
    fn wait(&mut self, until_ns: u64, events: &mut Events) {
        let asleep_ns = self.now_ns();
        let sleeps = self.postponed.is_empty() && until_ns > asleep_ns;
        if sleeps {
            self.timer.set(self.begin.after(Duration::from_nanos(until_ns)));
        }
        let postponed = std::mem::take(&mut self.postponed);
        events.clear();
        // An error is an interruption; no other can befall a valid epoll descriptor.
        let woken =
            epoll::wait(&self.epoll, spare_capacity(events), if sleeps { None } else { Some(&NO_TIME) }).is_ok();
        let now_ns = self.now_ns();
        let counts = self.began && now_ns >= self.agenda.warmup_ns();
        if counts {
            self.looks.slept(asleep_ns, until_ns, now_ns);
            self.looks.before_reading(&self.connections, now_ns);
        }
        if woken {
            for event in events {
                let (flags, data) = (event.flags, event.data.u64());
                if data == timer::EVENT {
                    self.timer.went_off();
                    continue;
                }
                self.event((data & u64::from(u32::MAX)) as usize, (data >> 32) as u32, flags);
            }
        }
        for (index, generation) in postponed {
            let connection = &mut self.connections[index as usize];
            if connection.generation == generation {
                connection.postponed = false;
                self.receive(index as usize);
            }
        }
        if counts {
            self.looks.after_reading(&self.connections);
        }
        self.send_ready();
    }

    /// Closes seconds that are over, and notes use at the ends of the window.
    fn note_time(&mut self, meter: &mut Meter, now_ns: u64) {
        if meter.first.is_none() && now_ns >= self.agenda.warmup_ns() {
            meter.first = Some(self.usage(now_ns));
        }
        if meter.last.is_none() && meter.first.is_some() && self.agenda.next(now_ns) == Next::Over {
            meter.last = Some(self.usage(now_ns));
        }
        while now_ns >= meter.second_ends_ns {
            self.tell_second(meter.second, SECOND_NS);
            meter.second += 1;
            meter.second_ends_ns += SECOND_NS;
        }
    }

    fn tell_second(&mut self, index: u64, length_ns: u64) {
        let record = Box::new(self.tally.take());
        // Nobody listens once the run was given up; `ended` tells this thread soon.
        let _ = self.out.send(Message::Second { worker: self.index, index, length_ns, record });
    }

    fn usage(&self, now_ns: u64) -> Usage {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let cpu = Duration::new(cpu.tv_sec.unsigned_abs(), cpu.tv_nsec.unsigned_abs() as u32);
        let tid = rustix::thread::gettid().as_raw_pid();
        Usage { cpu, wait: self.config.runqueue_wait.as_ref().and_then(|of| of(tid)), at_ns: now_ns }
    }

    fn finish(&mut self, meter: Meter, interrupted: bool) -> Finish {
        let now_ns = self.now_ns();
        let in_flight = self.abandon();
        let over_ns = now_ns.min(self.agenda.end_ns());
        for unsent in self.agenda.clone().into_unsent(now_ns) {
            self.tally.never_taken(over_ns.saturating_sub(unsent.intended_ns), unsent.slots);
        }
        // The schedule may have had nothing left before the end that was planned: the second still lasted until then.
        let planned_ns = if interrupted || self.agenda.end_ns() == u64::MAX { 0 } else { self.agenda.end_ns() };
        let length_ns = (now_ns.max(planned_ns) + SECOND_NS).saturating_sub(meter.second_ends_ns);
        self.tell_second(meter.second, length_ns.min(SECOND_NS));
        let last = meter.last.unwrap_or_else(|| self.usage(now_ns));
        let first = meter.first.unwrap_or(last);
        let cpu = last.cpu.saturating_sub(first.cpu);
        let wait = last.wait.zip(first.wait).map(|(last, first)| last.saturating_sub(first));
        Finish {
            in_flight,
            last_answer_ns: self.tally.last_answer_ns,
            end_ns: now_ns,
            interrupted,
            used: ThreadUse {
                tid: rustix::thread::gettid().as_raw_pid(),
                cpu,
                wall: Duration::from_nanos(last.at_ns.saturating_sub(first.at_ns)),
                runqueue_wait: wait,
                not_run: Duration::from_nanos(self.looks.wanted_ns).saturating_sub(cpu + wait.unwrap_or_default()),
                unread: self.looks.after,
                unread_on_waking: self.looks.before,
            },
            troubles: std::mem::take(&mut self.tally.troubles),
        }
    }

    /// Counts what is in flight, and slots that wait for a connection as unsent.
    fn abandon(&mut self) -> u64 {
        let mut in_flight = 0;
        for connection in &mut self.connections {
            in_flight += connection.sent.iter().filter(|sent| sent.slot.measured).count() as u64;
            connection.waiting.drain(..).for_each(|slot| self.tally.unsent(slot));
        }
        for (_, slot) in self.ready.drain(..) {
            self.tally.scheduled(slot);
            self.tally.unsent(slot);
        }
        in_flight
    }

    /// Gives up what is past its deadline, and ends rests.
    fn sweep(&mut self, now_ns: u64) {
        // Whatever is sent from now on is due later than this.
        self.sweep_at_ns = now_ns.saturating_add(self.timeout_ns);
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            let Some(deadline_ns) = connection.deadline_ns(self.timeout_ns) else { continue };
            if deadline_ns > now_ns {
                self.sweep_at_ns = self.sweep_at_ns.min(deadline_ns);
                continue;
            }
            match connection.phase {
                Phase::Open => self.give_up(index, now_ns),
                Phase::Connecting { .. } => self.connect_timed_out(index, now_ns),
                Phase::Resting { .. } => self.end_rest(index, now_ns),
                Phase::Closed => {}
            }
        }
        self.sweep_at_ns = self.sweep_at_ns.max(now_ns.saturating_add(SWEEP_MIN_NS));
    }

    /// Time since the beginning; 0 before it.
    #[inline]
    fn now_ns(&self) -> u64 {
        Nanos::now().0.saturating_sub(self.begin.0)
    }
}

/// Saturates after 584 years.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
