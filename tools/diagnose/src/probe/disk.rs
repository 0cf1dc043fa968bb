//! Use, queue length and latency of disks: `/proc/diskstats`.

use std::time::Duration;

/// The file's path.
pub const FILE: &str = "proc/diskstats";
/// The file counts sectors of 512 bytes, independent of the disk's sector size
/// (Documentation/admin-guide/iostats.rst).
const SECTOR_BYTES: u64 = 512;
/// Most devices read.
const DEVICES_MAX: usize = 256;
/// Devices in memory, which have no disk limit.
const NOT_DISKS: [&str; 3] = ["loop", "ram", "zram"];

/// Devices built on others, whose bytes would count twice.
const STAND_FOR_OTHERS: [&str; 2] = ["dm-", "md"];

/// Counters of one device since boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Its name; partitions and composite devices are listed too.
    pub name: String,
    /// Completed requests: reads, writes, and flushes where reported (since 5.5).
    pub requests: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Total time of all requests, each from queueing to completion.
    pub request_time: Duration,
    /// Time with at least one request in flight.
    pub busy: Duration,
    /// Requests in flight.
    pub in_flight: u64,
}

/// Rates of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskRate {
    /// Its name.
    pub name: String,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Bytes per second, read and written.
    pub bytes_per_s: f64,
    /// Share of the time with a request in flight, 0 to 1. Devices with internal parallelism can do
    /// more even at 1.
    pub utilisation: f64,
    /// Mean number of requests in flight (Little's law: total request time over elapsed time).
    pub queue: f64,
    /// Mean time of a request; none without requests.
    pub latency: Option<Duration>,
}

/// Parses the file: `major minor name`, then 11 counters before 4.18, 15 up to 5.4, 17 since.
pub fn parse(text: &str) -> Option<Vec<Disk>> {
    let wanted = |line: &&str| {
        let name = line.split_ascii_whitespace().nth(2).unwrap_or_default();
        !NOT_DISKS.iter().any(|prefix| name.starts_with(prefix))
    };
    text.lines().filter(wanted).take(DEVICES_MAX).map(device).collect()
}

fn device(line: &str) -> Option<Disk> {
    let mut words = line.split_ascii_whitespace().skip(2);
    let name = words.next()?.to_owned();
    let counters: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let [reads, _, read, read_ms, writes, _, written, write_ms, in_flight, busy_ms, _] =
        *counters.first_chunk()?;
    let (flushes, flush_ms) =
        (counters.get(15).copied().unwrap_or(0), counters.get(16).copied().unwrap_or(0));
    Some(Disk {
        name,
        requests: reads.saturating_add(writes).saturating_add(flushes),
        read_bytes: read.saturating_mul(SECTOR_BYTES),
        written_bytes: written.saturating_mul(SECTOR_BYTES),
        request_time: Duration::from_millis(
            read_ms.saturating_add(write_ms).saturating_add(flush_ms),
        ),
        busy: Duration::from_millis(busy_ms),
        in_flight,
    })
}

impl Disk {
    /// Returns rates since `earlier`, `elapsed` ago; `None` for zero time.
    pub fn rate(&self, earlier: &Self, elapsed: Duration) -> Option<DiskRate> {
        let seconds = elapsed.as_secs_f64();
        let requests = self.requests.saturating_sub(earlier.requests);
        let time = self.request_time.saturating_sub(earlier.request_time);
        let bytes = self.read_bytes.saturating_sub(earlier.read_bytes);
        let bytes = bytes.saturating_add(self.written_bytes.saturating_sub(earlier.written_bytes));
        (seconds > 0.0).then(|| DiskRate {
            name: self.name.clone(),
            requests_per_s: requests as f64 / seconds,
            bytes_per_s: bytes as f64 / seconds,
            // The two clocks are not read at the same instant.
            utilisation: (self.busy.saturating_sub(earlier.busy).as_secs_f64() / seconds).min(1.0),
            queue: time.as_secs_f64() / seconds,
            latency: (requests > 0).then(|| time.div_f64(requests as f64)),
        })
    }
}

/// Returns bytes read and written by all disks, without partitions and composite devices.
pub fn total_bytes(disks: &[Disk]) -> (u64, u64) {
    let counts = |disk: &&Disk| {
        let stands_for_others = STAND_FOR_OTHERS.iter().any(|prefix| disk.name.starts_with(prefix));
        !stands_for_others && !disks.iter().any(|other| is_partition(&disk.name, &other.name))
    };
    disks.iter().filter(counts).fold((0, 0), |(read, written): (u64, u64), disk| {
        (read.saturating_add(disk.read_bytes), written.saturating_add(disk.written_bytes))
    })
}

/// Returns whether `name` is a partition of `disk`: `sda1` of `sda`, `nvme0n1p2` of `nvme0n1`.
pub fn is_partition(name: &str, disk: &str) -> bool {
    let Some(rest) = name.strip_prefix(disk) else { return false };
    let rest = if disk.ends_with(|c: char| c.is_ascii_digit()) {
        rest.strip_prefix('p').unwrap_or("")
    } else {
        rest
    };
    !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit())
}
