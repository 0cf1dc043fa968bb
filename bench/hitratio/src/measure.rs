//! Hit ratio, thread CPU time and heap bytes of each policy on each trace and capacity.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::time::{ClockId, clock_gettime};

use hotrow_replay::opt;
use hotrow_replay::trace::Trace;

use crate::{Candidate, PERCENTS};

/// Replays per cell; the cheapest counts, because other work of the machine only adds time.
const REPLAYS: usize = 3;

/// Allocator that counts heap bytes in use, at one atomic addition per allocation for every policy.
struct Counting;

static HEAP_BYTES: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is forwarded to the system's allocator unchanged; only a counter is updated.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HEAP_BYTES.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's promise about `layout` is forwarded.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HEAP_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise about `at` and `layout` is forwarded.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Result of one policy on one trace with one capacity.
#[derive(Debug)]
pub struct Figure {
    /// Hits over requests, in %.
    pub hit_percent: f64,
    /// Thread CPU time per get-or-insert, in nanoseconds.
    pub cost_ns: f64,
    /// Heap bytes per entry after the replay, keys and 4-byte values included.
    pub entry_bytes: f64,
}

/// One line of the table.
#[derive(Debug)]
pub struct Cell {
    /// The trace's name.
    pub trace: String,
    /// Capacity in % of the unique keys.
    pub percent: f64,
    /// Capacity in entries.
    pub capacity_entries: usize,
    /// The clairvoyant bound in %, computed here.
    pub opt_percent: f64,
    /// One per candidate, in their order.
    pub figures: Vec<Figure>,
}

/// All results.
#[derive(Debug)]
pub struct Results {
    /// The candidates' names.
    pub names: Vec<String>,
    /// Traces in order, capacities rising.
    pub cells: Vec<Cell>,
}

/// Returns the CPU time of this thread, in nanoseconds.
fn thread_cpu_ns() -> i64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn figure(candidate: &Candidate, trace: &Trace, capacity: usize) -> Figure {
    let mut best_ns = i64::MAX;
    let mut hit_percent = 0.0;
    let mut entry_bytes = 0.0;
    for _ in 0..REPLAYS {
        let heap = HEAP_BYTES.load(Relaxed);
        let mut policy = (candidate.build)(capacity);
        let start = thread_cpu_ns();
        let hits = policy.replay(&trace.keys);
        best_ns = best_ns.min(thread_cpu_ns() - start);
        hit_percent = trace.percent(hits);
        entry_bytes =
            HEAP_BYTES.load(Relaxed).saturating_sub(heap) as f64 / policy.entries().max(1) as f64;
    }
    Figure { hit_percent, cost_ns: best_ns as f64 / trace.keys.len() as f64, entry_bytes }
}

/// Measures every candidate on every trace and capacity; candidates take turns within a cell.
pub fn all(traces: &[Trace], candidates: &[Candidate]) -> Results {
    let mut cells = Vec::new();
    for trace in traces {
        for percents in PERCENTS {
            let capacity = trace.capacity_entries(percents);
            eprintln!("{} {percents} % ({capacity} entries)", trace.name);
            cells.push(Cell {
                trace: trace.name.clone(),
                percent: percents,
                capacity_entries: capacity,
                opt_percent: trace.percent(opt::hits(&trace.keys, capacity)),
                figures: candidates
                    .iter()
                    .map(|candidate| figure(candidate, trace, capacity))
                    .collect(),
            });
        }
    }
    Results { names: candidates.iter().map(|c| c.name.clone()).collect(), cells }
}
