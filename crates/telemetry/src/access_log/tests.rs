use hotrow_config::observability::AccessLogOutput;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn log(sample: f64, output: AccessLogOutput) -> Arc<AccessLog> {
    let config = Config { output, sample, slow: Duration::from_millis(100), has_ids: true };
    AccessLog::open(&config, 1).unwrap()
}

fn stderr(sample: f64) -> WorkerAccessLog {
    WorkerAccessLog::new(log(sample, AccessLogOutput::Stderr), 0, 7)
}

#[test]
fn failed_and_slow_requests_always_have_a_line() {
    let (none, quick) = (stderr(0.0), Duration::from_millis(99));
    let is_due = |status, took| none.is_due(status, took, Nanos(0));
    for status in [200, 304, 404, 412] {
        assert!(!is_due(status, quick), "{status}");
        assert!(is_due(status, Duration::from_millis(100)), "{status}");
    }
    for status in [400, 401, 403, 408, 413, 429, 431, 500, 503, 504] {
        assert!(is_due(status, quick), "{status}");
    }
}

#[test]
fn the_sample_has_its_share() {
    let taken = |share| (0..100_000).filter(|_| Sampler::new(share, 3).takes()).count();
    assert_eq!((taken(0.0), taken(1.0)), (0, 100_000));
    let sampler = Sampler::new(0.01, 3);
    let taken = (0..1_000_000).filter(|_| sampler.takes()).count();
    // Six standard deviations.
    assert!((9_400..=10_600).contains(&taken), "{taken}");
}

#[test]
fn an_attack_does_not_fill_the_disk() {
    let none = stderr(0.0);
    let lines = |second: u64| {
        let at = |i| Nanos(second * SECOND + i);
        (0..5_000).filter(|i| none.is_due(429, Duration::ZERO, at(*i))).count()
    };
    assert_eq!((lines(1), lines(2)), (1_000, 1_000));
    assert_eq!(none.log.dropped[Dropped::Rate as usize].load(Ordering::Relaxed), 8_000);
}

/// Queues lines of requests until one does not fit.
fn fill(worker: &WorkerAccessLog) -> u64 {
    let entry = Entry {
        ended: SystemTime::UNIX_EPOCH,
        took: None,
        client: Peer::User(0),
        protocol: "HTTP/2",
        request: Some(RequestLine { method: b"GET", target: &[b'x'; 1000] }),
        collection: None,
        status: 200,
        outcome: CacheOutcome::Hit,
        bytes: None,
        sender: None,
        trace_id: None,
    };
    let full = &worker.log.dropped[Dropped::QueueFull as usize];
    let mut queued = 0;
    while full.load(Ordering::Relaxed) == 0 {
        worker.write(&entry);
        queued += 1;
    }
    queued - 1
}

#[test]
fn what_does_not_fit_is_dropped_and_what_fits_is_written_before_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = log(1.0, AccessLogOutput::File(path.clone()));
    let worker = WorkerAccessLog::new(Arc::clone(&log), 0, 1);
    // Nothing writes yet.
    let queued = fill(&worker);
    assert!(queued > 100, "{queued}");
    log.start(&hotrow_supervisor::Supervisor::default()).unwrap();
    log.close();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count() as u64, queued);
    assert_eq!(log.written.load(Ordering::Relaxed), queued);
    for line in text.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}
