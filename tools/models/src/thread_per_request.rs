//! A thread per request (W15): all are started in sequence and joined at the end. A thread that has
//! ended but is not joined keeps its stack mapped, which is what exhausts this model's limit.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::floor::FloorRule;
use super::job::{HandedRequest, Job};
use super::limits::{Evidence, Limit, RESERVE_BYTES};
use super::raw::RawThread;
use super::raw::STACK_BYTES;
use super::work::Response;
use super::{Model, ThreadRefused};

/// Threads between two checks whether the machine has room for more.
const CHECK_EVERY_THREADS: u64 = 500;

pub(super) struct ThreadPerRequest;

impl Model for ThreadPerRequest {
    fn name(&self) -> String {
        super::THREAD_PER_REQUEST.to_owned()
    }

    fn workload(&self) -> &'static str {
        "W15"
    }

    fn design(&self) -> [&'static str; 2] {
        [
            "A thread for each request, all of them started at once and joined at the end.",
            "No request waits for another's sleep, until a limit of the system refuses the next \
             thread.",
        ]
    }

    fn explanation(&self) -> [&'static str; 3] {
        [
            "No sleep delays another, so without a refusal it takes little more than \
             the longest sleep.",
            "Each unjoined thread keeps two memory maps and some pages, so the system bounds the \
             number of requests.",
            "The kernel starts, schedules and ends a thread for work that takes less time than \
             starting one.",
        ]
    }

    fn threads(&self, requests: u64) -> u64 {
        requests
    }

    fn floor_rule(&self, requests: u64) -> FloorRule {
        FloorRule::Threads(requests.max(2))
    }

    fn run(&self, job: &Arc<Job>) -> Result<(), ThreadRefused> {
        let reserve = std::hint::black_box(vec![1_u8; RESERVE_BYTES]);
        let mut threads = Vec::with_capacity(usize::try_from(job.requests()).unwrap_or_default());
        let mut stopped = None;
        for id in 0..job.requests() {
            if let Some(limit) = exhausted_for_others(id) {
                stopped = Some(ThreadRefused {
                    started: id,
                    limit: Some(limit),
                    evidence: Box::new(Evidence::now("")),
                });
                break;
            }
            match start(job, id) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    drop(reserve);
                    stopped = Some(ThreadRefused::now(id, &error));
                    break;
                }
            }
        }
        // A thread that cannot be joined has not done its work, which the checks report.
        threads.into_iter().for_each(|thread| drop(thread.join()));
        stopped.map_or(Ok(()), Err)
    }
}

fn start(job: &Arc<Job>, id: u64) -> io::Result<RawThread> {
    let job = job.clone();
    let request = HandedRequest::now(id);
    let lane = usize::try_from(id).unwrap_or(usize::MAX);
    // Allocated here, where a failure can be reported: a thread without memory would abort the
    // process.
    let mut response = Response::try_new()?;
    let serve = move || {
        job.serve(lane, request, &mut response, std::thread::sleep);
        job.timeline.leave(lane, Instant::now());
    };
    RawThread::spawn(STACK_BYTES, Box::new(serve))
}

/// Returns, every so often, a limit that further threads would exhaust for the rest of the machine.
fn exhausted_for_others(id: u64) -> Option<Limit> {
    if id.is_multiple_of(CHECK_EVERY_THREADS) {
        Evidence::of_machine().exhausted_for_others()
    } else {
        None
    }
}
