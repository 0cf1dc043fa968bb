use std::time::Duration;

use hotrow_measure::clock::Nanos;
use proptest::prelude::*;

use super::*;

fn all() -> impl Iterator<Item = (Load, Kind, Priority)> {
    let loads =
        Level::ALL.into_iter().flat_map(|delay| Level::ALL.map(|room| Load { delay, room }));
    let asked = |load| {
        Kind::ALL
            .into_iter()
            .flat_map(move |kind| Priority::ALL.map(|priority| (load, kind, priority)))
    };
    loads.flat_map(asked)
}

#[test]
fn cheaper_or_more_important_requests_are_refused_later() {
    for (load, kind, priority) in
        all().filter(|(load, kind, priority)| sheds(*load, *kind, *priority))
    {
        for other in Kind::ALL.into_iter().filter(|other| *other > kind) {
            assert!(sheds(load, other, priority), "{kind:?} before {other:?} under {load:?}");
        }
        for other in Priority::ALL.into_iter().filter(|other| *other < priority) {
            assert!(sheds(load, kind, other), "{priority:?} before {other:?} under {load:?}");
        }
        for (worse, ..) in all().filter(|(l, ..)| l.delay >= load.delay && l.room >= load.room) {
            assert!(sheds(worse, kind, priority), "under {load:?} and not under {worse:?}");
        }
    }
}

#[test]
fn the_table_equals_the_documented_one() {
    let refused = |delay, room| -> Vec<String> {
        let load = Load { delay, room };
        let one =
            |(kind, priority): (Kind, Priority)| format!("{} {}", priority.label(), kind.label());
        let all = Priority::ALL.into_iter().flat_map(|p| Kind::ALL.map(|k| (k, p)));
        all.filter(|(k, p)| sheds(load, *k, *p)).map(one).collect()
    };
    assert!(refused(Level::Normal, Level::Normal).is_empty());
    assert_eq!(refused(Level::Elevated, Level::Normal), ["low miss", "low bypass"]);
    assert_eq!(
        refused(Level::Critical, Level::Normal),
        ["low hit", "low batch", "low miss", "low bypass", "normal miss", "normal bypass"]
    );
    assert_eq!(
        refused(Level::Normal, Level::Elevated),
        ["low batch", "low miss", "low bypass", "normal bypass"]
    );
    let by_room = [
        "low hit",
        "low batch",
        "low miss",
        "low bypass",
        "normal batch",
        "normal miss",
        "normal bypass",
    ];
    assert_eq!(refused(Level::Normal, Level::Critical), [&by_room[..], &["high bypass"]].concat());
}

#[test]
fn a_load_fits_a_byte_and_normal_is_zero() {
    for (load, ..) in all() {
        assert_eq!(Load::unpack(load.pack()), load);
        assert_eq!(load.pack() == 0, load.level() == Level::Normal);
    }
    assert_eq!(
        Load::unpack(0xff).level(),
        Level::Critical,
        "what cannot be is taken for the worst"
    );
}

const TICK: Duration = Duration::from_millis(100);

fn config() -> Config {
    Config {
        queue_delay_target: Duration::from_millis(20),
        queue_delay_interval: Duration::from_millis(500),
        memory_share: 0.85,
        open_files_threshold: 0.85,
    }
}

/// Takes readings every [`TICK`].
struct Watch {
    pressure: Pressure,
    now: Nanos,
}

impl Watch {
    fn new() -> Self {
        Self { pressure: Pressure::new(config()), now: Nanos(1) }
    }

    fn observe(&mut self, reading: &Reading) -> Load {
        self.now = self.now.after(TICK);
        self.pressure.observe(reading, self.now)
    }

    /// Takes readings until the load is `load`. Returns their number.
    fn until(&mut self, reading: &Reading, load: Load) -> usize {
        (1..1000).find(|_| self.observe(reading) == load).expect("within 100 seconds")
    }
}

const NORMAL: Load = Load { delay: Level::Normal, room: Level::Normal };

fn loops(ms: &[u64]) -> Reading {
    let loop_delays = ms.iter().copied().map(Duration::from_millis).collect();
    Reading { loop_delays, database_wait: Some(Duration::ZERO), ..Reading::default() }
}

#[test]
fn persistent_loop_delay_raises_the_level_which_falls_step_by_step() {
    let mut watch = Watch::new();
    assert_eq!(
        watch.until(&loops(&[0, 25]), Load { delay: Level::Elevated, ..NORMAL }),
        6,
        "five intervals of 100 ms"
    );
    assert_eq!(watch.until(&loops(&[0, 300]), Load { delay: Level::Critical, ..NORMAL }), 6);
    assert_eq!(
        watch.until(&loops(&[0, 0]), Load { delay: Level::Elevated, ..NORMAL }),
        11,
        "held for a second"
    );
    assert_eq!(watch.until(&loops(&[0, 0]), NORMAL), 10);
}

#[test]
fn alternating_loop_delays_are_not_a_standing_queue() {
    let mut watch = Watch::new();
    for i in 0..100 {
        let reading = if i % 2 == 0 { loops(&[900, 0]) } else { loops(&[0, 900]) };
        assert_eq!(watch.observe(&reading), NORMAL);
    }
}

#[test]
fn a_database_wait_raises_the_level_by_one_and_an_unknown_wait_changes_nothing() {
    let mut watch = Watch::new();
    let waits = |wait: Option<u64>| Reading {
        database_wait: wait.map(Duration::from_millis),
        ..Reading::default()
    };
    let elevated = Load { delay: Level::Elevated, ..NORMAL };
    assert_eq!(watch.until(&waits(Some(5_000)), elevated), 6);
    for _ in 0..100 {
        assert_eq!(watch.observe(&waits(Some(5_000))), elevated);
    }
    for _ in 0..100 {
        assert_eq!(watch.observe(&waits(None)), elevated);
    }
    assert_eq!(watch.until(&waits(Some(0)), NORMAL), 11);
}

#[test]
fn a_lifo_queue_raises_the_level_although_its_newest_keys_do_not_wait() {
    let mut watch = Watch::new();
    let lifo = |wait| Reading { standing: true, database_wait: wait, ..Reading::default() };
    let elevated = Load { delay: Level::Elevated, ..NORMAL };
    assert_eq!(
        watch.observe(&lifo(Some(Duration::ZERO))),
        elevated,
        "at once: it has stood for its own interval"
    );
    for _ in 0..100 {
        assert_eq!(watch.observe(&lifo(Some(Duration::ZERO))), elevated);
        assert_eq!(watch.observe(&lifo(None)), elevated);
    }
    let over = Reading { database_wait: Some(Duration::ZERO), ..Reading::default() };
    assert_eq!(watch.until(&over, NORMAL), 11);
}

#[test]
fn memory_and_files_raise_the_level_at_their_shares() {
    let room = |room| Load { room, ..NORMAL };
    for used in [0.0, 0.8499] {
        let mut watch = Watch::new();
        assert_eq!(
            watch.observe(&Reading { memory: Some(used), files: Some(used), ..Reading::default() }),
            NORMAL
        );
    }
    for (used, level) in [
        (0.85, Level::Elevated),
        (0.949, Level::Elevated),
        (0.951, Level::Critical),
        (7.0, Level::Critical),
    ] {
        let mut watch = Watch::new();
        assert_eq!(
            watch.observe(&Reading { memory: Some(used), ..Reading::default() }),
            room(level),
            "at once"
        );
        assert_eq!(watch.pressure.levels(), [Level::Normal, Level::Normal, level, Level::Normal]);
        let mut watch = Watch::new();
        assert_eq!(
            watch.observe(&Reading { files: Some(used), ..Reading::default() }),
            room(level)
        );
        assert_eq!(watch.pressure.levels(), [Level::Normal, Level::Normal, Level::Normal, level]);
    }
}

proptest! {
    #[test]
    fn recovery_takes_at_most_four_intervals(
        delays in prop::collection::vec((0_u64..500, 0.0_f64..1.2), 0..100),
    ) {
        let mut watch = Watch::new();
        for (delay, used) in delays {
            let reading = Reading {
                memory: Some(used),
                database_wait: Some(Duration::from_millis(delay)),
                ..loops(&[delay])
            };
            watch.observe(&reading);
        }
        // Two steps of two intervals each, and the first good reading.
        let readings = watch.until(&loops(&[0]), NORMAL);
        prop_assert!(readings <= 22, "{} readings", readings);
    }
}
