//! A thread for each request (W15): all are started, one after the other, and joined at the end. A thread that has ended but is not
//! joined keeps its stack mapped, and that is what this model dies of.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::floor::Bound;
use super::job::Job;
use super::limits::{Evidence, Limit, RESERVE_BYTES};
use super::raw::RawThread;
use super::work::Response;
use super::{Model, STACK_BYTES, Stopped};

/// How often it looks whether the machine has room for more threads, in threads.
const LOOK_STEP: u64 = 500;

pub(super) struct ThreadPerRequest;

impl Model for ThreadPerRequest {
    fn name(&self) -> String {
        super::THREAD_PER_REQUEST.to_owned()
    }

    fn workload(&self) -> &'static str {
        "W15"
    }

    fn about(&self) -> [&'static str; 2] {
        [
            "A thread for each request, all of them started at once and joined at the end.",
            "No request waits for another's sleep, until a limit of the system refuses the next thread.",
        ]
    }

    fn why(&self) -> [&'static str; 3] {
        [
            "No sleep stands in the way of another, so while threads can be had it takes little more than the longest sleep.",
            "Each thread that is not joined keeps two memory maps and some pages: the system bounds the number of requests.",
            "The kernel starts, schedules and ends a thread for work that takes less time than starting one.",
        ]
    }

    fn threads(&self, requests: u64) -> u64 {
        requests
    }

    fn bound(&self, requests: u64) -> Bound {
        Bound::Threads(requests.max(2))
    }

    fn run(&self, job: &Arc<Job>) -> Result<(), Stopped> {
        let reserve = std::hint::black_box(vec![1_u8; RESERVE_BYTES]);
        let mut threads = Vec::with_capacity(usize::try_from(job.requests()).unwrap_or_default());
        let mut stopped = None;
        for id in 0..job.requests() {
            if let Some(limit) = crowded(id) {
                stopped = Some(Stopped { started: id, limit: Some(limit), evidence: Box::new(Evidence::now("")) });
                break;
            }
            match start(job, id) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    drop(reserve);
                    stopped = Some(Stopped::now(id, &error));
                    break;
                }
            }
        }
        // A thread that cannot be joined has not done its work, which the checks will say.
        threads.into_iter().for_each(|thread| drop(thread.join()));
        stopped.map_or(Ok(()), Err)
    }
}

fn start(job: &Arc<Job>, id: u64) -> io::Result<RawThread> {
    let (job, handed) = (job.clone(), Instant::now());
    let place = usize::try_from(id).unwrap_or(usize::MAX);
    // Here, where its failure can be told: a thread that is started and finds no memory ends the process.
    let mut response = Response::try_new()?;
    let serve = move || {
        job.serve(place, (id, handed), &mut response, std::thread::sleep);
        job.timeline.leave(place, Instant::now());
    };
    RawThread::spawn(STACK_BYTES, Box::new(serve))
}

/// Every so often: whether going on would leave the rest of the machine without threads or memory.
fn crowded(id: u64) -> Option<Limit> {
    if id.is_multiple_of(LOOK_STEP) { Evidence::of_machine().crowded() } else { None }
}
