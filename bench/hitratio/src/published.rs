//! Published figures for the same traces, in % of hits: read-through, one thread.

/// One row of the published table.
#[derive(Debug)]
pub struct Row {
    /// The trace's name.
    pub trace: &'static str,
    /// Capacity in % of the unique keys.
    pub percent: f64,
    /// The clairvoyant bound.
    pub opt: f64,
    /// quick_cache with its defaults, get and insert.
    pub quick: f64,
    /// quick_cache with hot share 0.9 and ghost 1.0, which our policy must reach within half a
    /// point in every cell.
    pub tuned: f64,
    /// moka.
    pub moka: f64,
    /// Caffeine 3.3.1.
    pub caffeine: f64,
    /// foyer's S3-FIFO.
    pub s3fifo: f64,
    /// SIEVE.
    pub sieve: f64,
    /// LRU.
    pub lru: f64,
}

type Figures = [f64; 8];

const fn row(trace: &'static str, percent: f64, f: Figures) -> Row {
    let [opt, quick, tuned, moka, caffeine, s3fifo, sieve, lru] = f;
    Row { trace, percent, opt, quick, tuned, moka, caffeine, s3fifo, sieve, lru }
}

/// Cells of the published table for our two traces.
pub const TABLE: [Row; 7] = [
    row("orm-busy", 0.5, [76.2, 62.8, 66.9, 44.8, 65.1, 66.5, 63.5, 65.7]),
    row("orm-busy", 1.0, [82.8, 71.5, 76.4, 52.3, 74.4, 75.5, 70.5, 77.0]),
    row("orm-busy", 5.0, [90.2, 84.4, 84.6, 69.5, 84.7, 84.4, 83.9, 84.1]),
    row("orm-busy", 10.0, [93.3, 88.2, 88.2, 77.5, 88.6, 87.9, 88.1, 88.0]),
    row("orm-busy", 30.0, [97.1, 94.6, 94.5, 90.2, 95.1, 94.3, 94.7, 94.4]),
    row("web12", 1.0, [58.6, 38.4, 40.8, 31.2, 42.9, 40.4, 40.3, 39.8]),
    row("web12", 10.0, [80.0, 71.3, 71.6, 65.7, 69.9, 71.4, 71.7, 68.5]),
];

/// Returns the published row of a cell, if there is one.
pub fn find(trace: &str, percent: f64) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.trace == trace && row.percent == percent)
}
