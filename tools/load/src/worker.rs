//! One thread of a run: event loop, connections, requests and counts. While running it shares
//! nothing but the flag that ends it.
//!
//! A *permit* is room for one request on one connection. Free permits are in a queue, so that all
//! connections are used in turn. A due slot with a free permit is sent; closed and open loop differ
//! only in the schedule.
//!
//! Sockets are registered once, edge-triggered, for all events: one read and one write per request,
//! and no further call to change the registration.

mod connect;
mod exchange;
mod http2;
pub(crate) mod message;
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
use hotrow_transport::tls::HttpVersion;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::config::Config;
use crate::connection::{Connection, ConnectionPhase};
use crate::http2::FinishedStream;
use crate::outcome::ThreadUse;
use crate::plan::{NextSlot, Schedule, Slot};
use crate::request::RequestGenerator;
use crate::tally::Tally;
use message::{WorkerMessage, WorkerReport};
use timer::Timer;

/// Bytes per read; one buffer for all connections of the thread.
const READ_BYTES: usize = 64 * 1024;
/// Events per wait.
const EVENTS: usize = 256;
/// Most reads of one connection before the others get their turn: an endless response must not
/// stall the run.
const READS_MAX: u32 = 4;
/// Longest sleep, so that the stop flag is seen.
const SLEEP_MAX_NS: u64 = 50_000_000;
/// Shortest time between two sweeps over all deadlines.
const SWEEP_MIN_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// A wait that only polls.
const POLL_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// Slots of a thread that follow each other faster than this are sent together, once in this time.
/// Sent separately, each would wake this thread and usually the target, which costs more than the
/// send. It adds at most this to the schedule lag (which is reported), at more than 10,000 requests
/// per second and thread.
const BATCH_INTERVAL_NS: u64 = 100_000;

/// Buffer of events. They may carry pointers, so it cannot move between threads with the worker.
type Events = Vec<epoll::Event>;

/// One thread of a run.
pub(crate) struct Worker {
    config: Arc<Config>,
    index: usize,
    out: Sender<WorkerMessage>,
    ended: Arc<AtomicBool>,
    epoll: OwnedFd,
    timer: Timer,
    connections: Vec<Connection>,
    /// Connections, once for each of their free permits.
    free: VecDeque<u32>,
    /// Slots taken on a response, and the connections that will send them.
    ready: Vec<(u32, Slot)>,
    /// Connections left with unread bytes, by index and generation: their sockets will not be
    /// reported again.
    postponed: Vec<(u32, u32)>,
    /// Permits in use, except those of `ready`.
    occupied: usize,
    schedule: Schedule,
    requests: RequestGenerator,
    tally: Tally,
    buffer: Vec<u8>,
    /// Buffer of ended HTTP/2 streams.
    finished: Vec<FinishedStream>,
    unread_sampler: unread::UnreadSampler,
    /// True if requests are being batched; only for a pipeline or HTTP/2, while `ready` is sent.
    gathering: bool,
    /// Start of the schedule; before it, start of connecting.
    begin: Nanos,
    began: bool,
    /// Connections being opened.
    connecting: usize,
    /// Slots due before this time had to wait for a connection.
    starved_ns: u64,
    /// Intended time of the last taken slot.
    taken_ns: u64,
    /// Time of the last dispatch of slots.
    dispatched_ns: u64,
    sweep_at_ns: u64,
    timeout_ns: u64,
    connect_timeout_ns: u64,
    burn_ns: u64,
}

/// CPU use of the thread at one moment.
#[derive(Clone, Copy)]
struct ThreadClock {
    cpu: Duration,
    wait: Option<Duration>,
    at_ns: u64,
}

/// The seconds of the measurement, and the thread's CPU use at its ends.
#[derive(Clone, Copy)]
struct Meter {
    second: u64,
    second_ends_ns: u64,
    first: Option<ThreadClock>,
    last: Option<ThreadClock>,
}

impl Worker {
    pub(crate) fn new(
        config: &Arc<Config>,
        index: usize,
        out: Sender<WorkerMessage>,
        ended: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let (threads, own) = (config.threads, index as u32);
        let count =
            config.connections / threads + usize::from(index < config.connections % threads);
        let schedule = config.plan.share(own, threads as u32);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut events: Events = Vec::with_capacity(1);
        // The library's wait uses a system call of Linux 5.11.
        match epoll::wait(&epoll, spare_capacity(&mut events), Some(&POLL_TIMEOUT)) {
            Err(Errno::NOSYS) => {
                return Err(io::Error::other("Linux 5.11 or later is needed (epoll_pwait2)"));
            }
            done => done?,
        };
        let free = (0..config.depth).flat_map(|_| 0..count as u32).collect();
        let mut requests = config.requests.share(config.seed, own, threads as u32);
        if config.version == HttpVersion::Http2 && !requests.prepare_http2(config.tls.is_some()) {
            // The configuration was checked.
            return Err(io::Error::other("a request cannot be sent as HTTP/2"));
        }
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
            occupied: 0,
            tally: Tally::new(&config.expect, schedule.warmup_ns(), schedule.end_ns()),
            schedule,
            requests,
            finished: Vec::new(),
            buffer: vec![0; READ_BYTES],
            unread_sampler: unread::UnreadSampler::default(),
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

    /// Connects, waits for the start, and runs. A closed channel means that the run was abandoned.
    pub(crate) fn work(mut self, start: &Receiver<Nanos>) {
        // The kernel may delay a thread's timers by 50 µs by default to save energy; without this
        // setting, little changes.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut events = Vec::with_capacity(EVENTS);
        let opened = self.open_all(&mut events);
        let failure_message = std::mem::take(&mut self.tally.failure_messages).into_keys().next();
        let failure_message = failure_message
            .map(|words| words.trim_start_matches(connect::NO_CONNECTION).to_owned());
        if self.out.send(WorkerMessage::Ready { opened, failure_message }).is_err() {
            return;
        }
        let Ok(begin) = start.recv() else { return };
        std::thread::sleep(begin.since(Nanos::now()));
        self.restart_clock(begin);
        let finish = Box::new(self.run(&mut events));
        // The receiver is gone only when the run was abandoned.
        let _ = self.out.send(WorkerMessage::Done { worker: self.index, finish });
    }

    /// From here on times count from the start of the schedule. Back-off times are shifted
    /// accordingly.
    fn restart_clock(&mut self, begin: Nanos) {
        let passed_ns = begin.0.saturating_sub(self.begin.0);
        for connection in &mut self.connections {
            if let ConnectionPhase::BackingOff { until_ns } = &mut connection.phase {
                *until_ns = until_ns.saturating_sub(passed_ns);
            }
        }
        self.begin = begin;
        self.began = true;
        self.sweep_at_ns = 0;
        self.tally.begin();
    }

    fn run(&mut self, events: &mut Events) -> WorkerReport {
        let warmup_ns = self.schedule.warmup_ns();
        let mut meter =
            Meter { second: 0, second_ends_ns: warmup_ns + SECOND_NS, first: None, last: None };
        let mut last_call = false;
        let interrupted = loop {
            if self.ended.load(Ordering::Relaxed) {
                break true;
            }
            self.send_ready();
            let now_ns = self.dispatch();
            if !last_call && now_ns >= self.schedule.end_ns() {
                last_call = true;
                self.send_overdue();
            }
            self.update_meter(&mut meter, now_ns);
            if self.occupied == 0
                && self.ready.is_empty()
                && self.schedule.next(now_ns) == NextSlot::Over
            {
                break false;
            }
            if now_ns >= self.sweep_at_ns {
                self.sweep(now_ns);
                self.send_ready();
            }
            let soon = if self.ready.is_empty() { u64::MAX } else { now_ns };
            let wake_ns =
                self.next_slot_ns().min(self.sweep_at_ns).min(meter.second_ends_ns).min(soon);
            self.wait(wake_ns.min(now_ns.saturating_add(SLEEP_MAX_NS)), events);
        };
        self.finish(meter, interrupted)
    }

    /// Assigns due slots to free permits; returns the time.
    fn dispatch(&mut self) -> u64 {
        let begun_ns = self.now_ns();
        if begun_ns < self.batch_end_ns() {
            return begun_ns;
        }
        self.dispatched_ns = begun_ns;
        loop {
            let now_ns = self.now_ns();
            let Some(&place) = self.free.front() else {
                if self.schedule.next(now_ns) == NextSlot::Due {
                    self.starved_ns = now_ns;
                }
                return now_ns;
            };
            let Some(slot) = self.schedule.take(now_ns) else { return now_ns };
            self.free.pop_front();
            self.begin_slot(place as usize, slot, now_ns);
        }
    }

    /// At the end: sends slots due before it that are late only because of this thread, as far as
    /// permits are free.
    fn send_overdue(&mut self) {
        while let Some(&place) = self.free.front()
            && let Some(slot) = self.schedule.take_overdue()
        {
            self.free.pop_front();
            let now_ns = self.now_ns();
            self.begin_slot(place as usize, slot, now_ns);
        }
    }

    /// Returns when the schedule must be checked next; never while no permit is free.
    fn next_slot_ns(&self) -> u64 {
        match self.schedule.next(0) {
            NextSlot::At(_) if self.free.is_empty() => u64::MAX,
            NextSlot::At(at_ns) => at_ns.max(self.batch_end_ns()),
            NextSlot::Due | NextSlot::Over => u64::MAX,
        }
    }

    /// Slots that follow each other faster than [`BATCH_INTERVAL_NS`] are sent together, once in
    /// that time; others at once.
    fn batch_end_ns(&self) -> u64 {
        match self.schedule.next(0) {
            NextSlot::At(at_ns) if at_ns.saturating_sub(self.taken_ns) < BATCH_INTERVAL_NS => {
                self.dispatched_ns + BATCH_INTERVAL_NS
            }
            NextSlot::At(_) | NextSlot::Due | NextSlot::Over => 0,
        }
    }

    /// Sleeps until an event or `until_ns`, and handles the events.
    fn wait(&mut self, until_ns: u64, events: &mut Events) {
        let asleep_ns = self.now_ns();
        let sleeps = self.postponed.is_empty() && until_ns > asleep_ns;
        if sleeps {
            self.timer.set(self.begin.after(Duration::from_nanos(until_ns)));
        }
        let postponed = std::mem::take(&mut self.postponed);
        events.clear();
        // A valid epoll descriptor returns no error but an interruption.
        let woken = epoll::wait(
            &self.epoll,
            spare_capacity(events),
            if sleeps { None } else { Some(&POLL_TIMEOUT) },
        )
        .is_ok();
        let now_ns = self.now_ns();
        let counts = self.began && now_ns >= self.schedule.warmup_ns();
        if counts {
            self.unread_sampler.slept(asleep_ns, until_ns, now_ns);
            self.unread_sampler.before_reading(&self.connections, now_ns);
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
            self.unread_sampler.after_reading(&self.connections);
        }
        self.send_ready();
    }

    /// Closes completed seconds, and records CPU use at the ends of the window.
    fn update_meter(&mut self, meter: &mut Meter, now_ns: u64) {
        if meter.first.is_none() && now_ns >= self.schedule.warmup_ns() {
            meter.first = Some(self.usage(now_ns));
        }
        if meter.last.is_none()
            && meter.first.is_some()
            && self.schedule.next(now_ns) == NextSlot::Over
        {
            meter.last = Some(self.usage(now_ns));
        }
        while now_ns >= meter.second_ends_ns {
            self.send_second(meter.second, SECOND_NS);
            meter.second += 1;
            meter.second_ends_ns += SECOND_NS;
        }
    }

    fn send_second(&mut self, index: u64, length_ns: u64) {
        let record = Box::new(self.tally.take());
        // The receiver is gone once the run was abandoned; `ended` stops this thread soon.
        let _ =
            self.out.send(WorkerMessage::Second { worker: self.index, index, length_ns, record });
    }

    fn usage(&self, now_ns: u64) -> ThreadClock {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let cpu = Duration::new(cpu.tv_sec.unsigned_abs(), cpu.tv_nsec.unsigned_abs() as u32);
        let tid = rustix::thread::gettid().as_raw_pid();
        ThreadClock {
            cpu,
            wait: self.config.runqueue_wait.as_ref().and_then(|of| of(tid)),
            at_ns: now_ns,
        }
    }

    fn finish(&mut self, meter: Meter, interrupted: bool) -> WorkerReport {
        let now_ns = self.now_ns();
        let in_flight = self.abandon(now_ns);
        let over_ns = now_ns.min(self.schedule.end_ns());
        for unsent in self.schedule.clone().into_unsent(now_ns) {
            self.tally.never_taken(over_ns.saturating_sub(unsent.intended_ns), unsent.slots);
        }
        // The schedule may have been exhausted before the planned end: the second still lasted
        // until then.
        let planned_ns = if interrupted || self.schedule.end_ns() == u64::MAX {
            0
        } else {
            self.schedule.end_ns()
        };
        let length_ns = (now_ns.max(planned_ns) + SECOND_NS).saturating_sub(meter.second_ends_ns);
        self.send_second(meter.second, length_ns.min(SECOND_NS));
        let last = meter.last.unwrap_or_else(|| self.usage(now_ns));
        let first = meter.first.unwrap_or(last);
        let cpu = last.cpu.saturating_sub(first.cpu);
        let wait = last.wait.zip(first.wait).map(|(last, first)| last.saturating_sub(first));
        WorkerReport {
            in_flight,
            last_answer_ns: self.tally.last_answer_ns,
            end_ns: now_ns,
            interrupted,
            used: ThreadUse {
                tid: rustix::thread::gettid().as_raw_pid(),
                cpu,
                wall: Duration::from_nanos(last.at_ns.saturating_sub(first.at_ns)),
                runqueue_wait: wait,
                not_run: Duration::from_nanos(self.unread_sampler.wanted_ns)
                    .saturating_sub(cpu + wait.unwrap_or_default()),
                unread: self.unread_sampler.after,
                unread_on_waking: self.unread_sampler.before,
            },
            failure_messages: std::mem::take(&mut self.tally.failure_messages),
            latency_map: std::mem::take(&mut self.tally.latency_map),
        }
    }

    /// Counts requests in flight, and slots that wait for a connection as unsent.
    fn abandon(&mut self, now_ns: u64) -> u64 {
        let mut in_flight = 0;
        for connection in &mut self.connections {
            for sent in connection.unanswered() {
                in_flight += self.tally.in_flight_at_end(sent, now_ns);
            }
            for waiting in connection.waiting.drain(..) {
                match waiting.sent {
                    None => self.tally.unsent(waiting.slot, now_ns),
                    Some(sent) => in_flight += self.tally.in_flight_at_end(&sent, now_ns),
                }
            }
        }
        for (_, slot) in self.ready.drain(..) {
            self.tally.scheduled(slot);
            self.tally.unsent(slot, now_ns);
        }
        in_flight
    }

    /// Abandons requests past their deadline, and ends back-offs.
    fn sweep(&mut self, now_ns: u64) {
        // Later sends have later deadlines.
        self.sweep_at_ns = now_ns.saturating_add(self.timeout_ns);
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            let Some(deadline_ns) = connection.deadline_ns(self.timeout_ns) else { continue };
            if deadline_ns > now_ns {
                self.sweep_at_ns = self.sweep_at_ns.min(deadline_ns);
                continue;
            }
            match connection.phase {
                ConnectionPhase::Open if connection.http2.is_some() => {
                    self.time_out_streams(index, now_ns)
                }
                ConnectionPhase::Open => self.time_out_oldest(index, now_ns),
                ConnectionPhase::Connecting { .. } => self.connect_timed_out(index, now_ns),
                ConnectionPhase::BackingOff { .. } => self.end_backoff(index, now_ns),
                ConnectionPhase::Closed => {}
            }
        }
        self.sweep_at_ns = self.sweep_at_ns.max(now_ns.saturating_add(SWEEP_MIN_NS));
    }

    /// Returns the time since the beginning; 0 before it.
    #[inline]
    fn now_ns(&self) -> u64 {
        Nanos::now().0.saturating_sub(self.begin.0)
    }
}

/// Saturates after 584 years.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
