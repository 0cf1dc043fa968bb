//! Warm start: the hot keys are written to a file while the service runs and when it stops, and
//! read from the database after the next start, the hottest first.
//!
//! A file has keys, never rows: what is served after a start was read after it, under the
//! consistency contract. The reads begin when the feed is current. One query is in flight at a
//! time, and none while a request's key waits for the database, while the circuit breaker is not
//! closed or under load. They end when the store has no room, or at a time limit.

mod hot_keys;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hotrow_cache::Walk;
use hotrow_measure::clock::Nanos;
use hotrow_supervisor::shutdown::{Shutdown, Stage};
use hotrow_supervisor::{self as supervisor, Supervisor};
use hotrow_telemetry::lookups::Calendar;
use hotrow_types::key::{CollectionId, Key, KeySchema};
use tokio::time::sleep;

use self::hot_keys::{HotKeys, HotKeysError, HotKeysWriter};
use crate::read::{Fetcher, SourceReads, run_batches};

/// Most keys of one query: a request that arrives during it waits for no more.
const QUERY_KEYS: usize = 100;
/// Keys of the file that are put in the order of their collections, so that queries are full.
const WINDOW_KEYS: usize = 8_192;
/// Time between two looks at whether the reads may continue.
const PAUSE: Duration = Duration::from_millis(10);

/// Stage of a warm start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmStage {
    /// The feed is not current yet.
    Waiting,
    /// The database is read.
    Loading,
    /// There was no file.
    NoFile,
    /// The file cannot be used.
    FileRefused,
    /// All keys of the file have been read.
    Complete,
    /// The store has no more room.
    Full,
    /// The time limit was reached.
    TimeOver,
}

impl WarmStage {
    const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Loading,
        Self::NoFile,
        Self::FileRefused,
        Self::Complete,
        Self::Full,
        Self::TimeOver,
    ];

    /// Returns the name of the stage in `/status`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Loading => "loading",
            Self::NoFile => "no_file",
            Self::FileRefused => "file_refused",
            Self::Complete => "complete",
            Self::Full => "full",
            Self::TimeOver => "time_over",
        }
    }

    /// Returns whether nothing more is read.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Waiting | Self::Loading)
    }
}

/// Progress of the warm start, for the admin side.
#[derive(Debug, Default)]
pub struct WarmProgress {
    /// `true`: readiness waits for the end of the reads.
    before_ready: bool,
    /// Index in [`WarmStage::ALL`].
    stage: AtomicU8,
    /// Keys in the file that was read.
    pub file_keys: AtomicU64,
    /// Keys read from the database.
    pub read_keys: AtomicU64,
    /// Keys of no collection, or malformed as a key of theirs.
    pub unusable_keys: AtomicU64,
    /// Files written.
    pub files: AtomicU64,
    /// Files that could not be written.
    pub failed_files: AtomicU64,
    /// Keys in the last file written.
    pub written_keys: AtomicU64,
}

impl WarmProgress {
    /// Begins before the first record.
    pub fn new(config: &hotrow_config::WarmStart) -> Self {
        Self { before_ready: config.before_ready, ..Self::default() }
    }

    /// Returns whether readiness need not wait.
    pub fn allows_readiness(&self) -> bool {
        !self.before_ready || self.stage().is_over()
    }

    /// Returns the stage.
    pub fn stage(&self) -> WarmStage {
        let index = usize::from(self.stage.load(Ordering::Acquire));
        WarmStage::ALL.get(index).copied().unwrap_or(WarmStage::Complete)
    }

    fn enter(&self, stage: WarmStage) {
        self.stage.store(stage as u8, Ordering::Release);
    }
}

/// The parts of the thread.
pub struct Warmer {
    /// Its settings.
    pub config: hotrow_config::WarmStart,
    /// Reads of the databases.
    pub fetcher: Arc<Fetcher>,
    /// Maps clock readings to days.
    pub calendar: Calendar,
    /// What operators see of it.
    pub progress: Arc<WarmProgress>,
}

/// Starts the thread. It ends when the drain begins, after a last file.
pub fn start(
    warmer: Warmer,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<JoinHandle<Option<()>>> {
    let ending = shutdown.clone();
    let shutdown = shutdown.clone();
    supervisor.spawn(
        "warm-start",
        move || ending.stage() != Stage::Running,
        || (),
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                tokio::select! {
                    () = shutdown.draining() => {}
                    never = warmer.run() => match never {},
                }
            });
            // Stopped while it loads, the service does not know what is hot: the file stays.
            if warmer.progress.stage().is_over() {
                warmer.write();
            }
            Ok(())
        },
    )
}

impl Warmer {
    async fn run(&self) -> Infallible {
        supervisor::turn();
        // After a failure of this thread the keys are not read again.
        if !self.progress.stage().is_over() {
            let stage = self.load().await;
            self.progress.enter(stage);
        }
        loop {
            sleep(self.config.interval).await;
            supervisor::turn();
            self.write();
        }
    }

    /// Reads the keys of the file from the database. Returns how that ended.
    async fn load(&self) -> WarmStage {
        let keys = match self.read_file() {
            Ok(Some(keys)) => keys,
            Ok(None) => return WarmStage::NoFile,
            Err(error) => {
                let path = self.config.file.display();
                tracing::warn!(%path, %error, "the file of hot keys is not used: a cold start");
                return WarmStage::FileRefused;
            }
        };
        self.progress.file_keys.store(keys.count, Ordering::Relaxed);
        let looked = Instant::now();
        while !self.may_begin(looked.elapsed()) {
            sleep(PAUSE).await;
        }
        self.progress.enter(WarmStage::Loading);
        let began = Instant::now();
        let end = self.load_all(&keys, began + self.config.time_limit).await;
        let progress = &self.progress;
        tracing::info!(
            file_keys = keys.count,
            read = progress.read_keys.load(Ordering::Relaxed),
            unusable = progress.unusable_keys.load(Ordering::Relaxed),
            seconds = began.elapsed().as_secs_f64(),
            end = end.label(),
            "warm start: hot keys of the last run were read from the database"
        );
        end
    }

    /// Returns whether every feed is current; after the time limit, whether one is.
    fn may_begin(&self, waited: Duration) -> bool {
        let (cache, now) = (self.fetcher.cache.get(), Nanos::now());
        let mut sources = self.fetcher.sources.iter();
        let is_current = |reads: &SourceReads| cache.is_current(reads.id, now);
        match waited < self.config.time_limit {
            true => sources.all(is_current),
            false => sources.any(is_current),
        }
    }

    fn read_file(&self) -> Result<Option<HotKeys>, HotKeysError> {
        let config = &self.config;
        HotKeys::read(&config.file, config.file_bytes_max, config.age_max, self.unix_s())
    }

    async fn load_all(&self, keys: &HotKeys, until: Instant) -> WarmStage {
        let collections = self.fetcher.collections.all();
        let schema_of = |name: &String| collections.iter().find(|own| own.name == *name);
        let schemas: Vec<Option<&KeySchema>> =
            keys.collections.iter().map(|name| schema_of(name).map(|own| &own.schema)).collect();
        let mut lines = keys.keys().peekable();
        while lines.peek().is_some() {
            let mut window: Vec<Vec<Key>> = vec![Vec::new(); schemas.len()];
            for (collection, id) in lines.by_ref().take(WINDOW_KEYS) {
                let schema = schemas.get(collection).copied().flatten();
                match schema.and_then(|schema| schema.parse_url(id).ok()) {
                    Some(key) => window[collection].push(key),
                    None => _ = self.progress.unusable_keys.fetch_add(1, Ordering::Relaxed),
                }
            }
            let cache = self.fetcher.cache.get();
            let query_keys = |keys: &[Key]| {
                let id = keys.first().map_or(CollectionId(0), Key::collection);
                QUERY_KEYS.min(cache.source_settings(cache.source_of(id)).query_keys.max(1))
            };
            for query in window.iter().flat_map(|keys| keys.chunks(query_keys(keys))) {
                if let Some(end) = self.read_some(query, until).await {
                    return end;
                }
                supervisor::turn();
            }
        }
        WarmStage::Complete
    }

    /// Reads keys of one collection when nothing else is to be read. Returns the end, if it is
    /// reached before.
    async fn read_some(&self, keys: &[Key], until: Instant) -> Option<WarmStage> {
        let cache = self.fetcher.cache.get();
        let reads = keys.first().map(|key| self.fetcher.of(key.collection()))?;
        // The feed of this database was not current when the reads began.
        if !cache.has_watermark(reads.id) && cache.is_followed(reads.id) {
            return None;
        }
        loop {
            if Instant::now() >= until {
                return Some(WarmStage::TimeOver);
            }
            if !cache.has_room() {
                return Some(WarmStage::Full);
            }
            let now = Nanos::now();
            if self.may_read(reads, now)
                && let Some(queued) = cache.warm_up(keys, now)
            {
                self.progress.read_keys.fetch_add(queued as u64, Ordering::Relaxed);
                break;
            }
            sleep(PAUSE).await;
        }
        // Without a loader, those of requests read the keys.
        if let Some(loader) = keys.first().and_then(|key| cache.batch_loader(key.collection())) {
            run_batches(&self.fetcher, loader).await;
        }
        None
    }

    /// Returns whether no request waits for the database and none is kept waiting for good reason.
    fn may_read(&self, reads: &SourceReads, now: Nanos) -> bool {
        let cache = self.fetcher.cache.get();
        let mut collections = self.fetcher.collections.of_source(reads.id);
        reads.may_read_in_background(now) && !collections.any(|id| cache.stats(id).waiting_keys > 0)
    }

    /// Writes the hot keys of now.
    fn write(&self) {
        let progress = &self.progress;
        match self.try_write() {
            Ok(keys) => {
                progress.written_keys.store(keys, Ordering::Relaxed);
                progress.files.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                progress.failed_files.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    path = %self.config.file.display(),
                    %error,
                    "the file of hot keys was not written; an earlier one stays"
                );
            }
        }
    }

    fn try_write(&self) -> io::Result<u64> {
        let collections = self.fetcher.collections.all();
        let names = collections.iter().map(|own| own.name.clone()).collect();
        let config = &self.config;
        let mut writer =
            HotKeysWriter::create(&config.file, config.file_bytes_max, names, self.unix_s())?;
        let (mut walk, mut records) = (Walk::default(), Vec::new());
        let mut is_more = true;
        while is_more {
            is_more = self.fetcher.cache.get().step(&mut walk, &mut records);
            for record in records.drain(..) {
                let collection = usize::from(record.collection().0);
                let id =
                    collections.get(collection).map(|own| own.schema.id_of(record.key_bytes()));
                if let Some(Some(id)) = id
                    && !writer.push(collection, &id)?
                {
                    return writer.finish();
                }
            }
        }
        writer.finish()
    }

    fn unix_s(&self) -> u64 {
        self.calendar.wall_lead_ns().saturating_add(Nanos::now().0) / 1_000_000_000
    }
}
