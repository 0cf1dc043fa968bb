use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use super::*;

/// Longest duration of an attempt.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);
/// Longer than any delay between two attempts.
const PAUSE: Duration = Duration::from_secs(2);

/// Server that answers or refuses, and counts attempts.
#[derive(Default)]
struct FakeServer {
    refuses: AtomicBool,
    has_plan: AtomicBool,
    attempts: AtomicUsize,
}

impl Connector for FakeServer {
    type Identity = ();
    type Connection = usize;

    async fn open(&self, (): &()) -> Result<usize, OpenError> {
        let attempt = self.attempts.fetch_add(1, SeqCst);
        if self.refuses.load(SeqCst) {
            Err(OpenError { why: "no such role".into(), is_login: false })
        } else {
            Ok(attempt)
        }
    }

    fn is_closed(_: &usize) -> bool {
        false
    }

    fn generation(&self) -> u64 {
        7
    }

    fn current(&self) -> Option<(u64, ())> {
        self.has_plan.load(SeqCst).then_some((7, ()))
    }

    fn connect_timeout(&self) -> Duration {
        ATTEMPT_MAX
    }
}

/// Creates a pool of at most `connections` without one, over a server that answers.
fn pool(connections: usize) -> Arc<Pool<FakeServer>> {
    let connector = FakeServer { has_plan: AtomicBool::new(true), ..FakeServer::default() };
    Arc::new(Pool {
        connector,
        runtime: Handle::current(),
        permits: Arc::new(Semaphore::new(connections)),
        idle: Mutex::default(),
        outage: Outage::default(),
    })
}

async fn lease(pool: &Arc<Pool<FakeServer>>) -> Result<Lease<FakeServer>, SourceError> {
    pool.lease(7, &(), Instant::now() + ATTEMPT_MAX).await
}

fn attempts(pool: &Pool<FakeServer>) -> usize {
    pool.connector.attempts.load(SeqCst)
}

#[tokio::test(start_paused = true)]
async fn an_outage_ends_without_a_request_once_readers_can_log_in() {
    let pool = pool(2);
    pool.connector.refuses.store(true, SeqCst);
    assert!(lease(&pool).await.is_err());
    tokio::spawn(Pool::keep_probing(Arc::downgrade(&pool)));
    tokio::time::sleep(10 * PAUSE).await;
    assert_eq!(pool.outage.health(), Err("no such role".into()), "a feed may work all the time");
    let probes = attempts(&pool) - 1;
    assert!((10..=20).contains(&probes), "{probes} in 20 s");
    pool.connector.refuses.store(false, SeqCst);
    tokio::time::sleep(PAUSE).await;
    assert_eq!(pool.outage.health(), Ok(()));
    let attempts_after_outage = attempts(&pool);
    assert_eq!(lease(&pool).await.map(|lease| lease.age()), Ok(Age::Used), "the probe's");
    tokio::time::sleep(10 * PAUSE).await;
    assert_eq!(attempts(&pool), attempts_after_outage, "no probe without an outage");
}

#[tokio::test(start_paused = true)]
async fn a_probe_waits_for_a_server_and_for_the_attempts_of_requests() {
    let pool = pool(1);
    pool.outage.failed("refused");
    pool.probe().await;
    assert_eq!(attempts(&pool), 0, "too early");
    tokio::time::advance(PAUSE).await;
    pool.connector.has_plan.store(false, SeqCst);
    pool.probe().await;
    pool.connector.has_plan.store(true, SeqCst);
    assert_eq!(attempts(&pool), 0, "the feed has found no server");
    let held = Arc::clone(&pool.permits).try_acquire_owned().unwrap();
    pool.probe().await;
    assert_eq!(attempts(&pool), 0, "a read has the only connection");
    drop(held);
    pool.probe().await;
    assert_eq!((attempts(&pool), pool.outage.health()), (1, Ok(())));
}

#[tokio::test(start_paused = true)]
async fn a_probe_keeps_the_pool_within_its_bound() {
    let pool = pool(2);
    let leases = [lease(&pool).await.unwrap(), lease(&pool).await.unwrap()];
    leases.into_iter().for_each(Lease::release);
    for attempt in 3..6 {
        pool.outage.failed("a query did not end");
        tokio::time::advance(PAUSE).await;
        pool.probe().await;
        assert_eq!((attempts(&pool), pool.idle.lock().len()), (attempt, 2));
    }
}
