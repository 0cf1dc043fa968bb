use std::time::Duration;

use hotrow_measure::clock::Nanos;
use proptest::prelude::*;

use super::*;

fn all() -> impl Iterator<Item = (Load, Kind, Priority)> {
    let loads = Level::ALL.into_iter().flat_map(|delay| Level::ALL.map(|room| Load { delay, room }));
    let asked = |load| Kind::ALL.into_iter().flat_map(move |kind| Priority::ALL.map(|priority| (load, kind, priority)));
    loads.flat_map(asked)
}

#[test]
fn what_is_cheaper_or_more_important_is_never_refused_before_the_other() {
    for (load, kind, priority) in all().filter(|(load, kind, priority)| sheds(*load, *kind, *priority)) {
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
fn the_table_says_what_the_document_says() {
    let refused = |delay, room| -> Vec<String> {
        let load = Load { delay, room };
        let one = |(kind, priority): (Kind, Priority)| format!("{} {}", priority.label(), kind.label());
        let all = Priority::ALL.into_iter().flat_map(|p| Kind::ALL.map(|k| (k, p)));
        all.filter(|(k, p)| sheds(load, *k, *p)).map(one).collect()
    };
    assert!(refused(Level::Calm, Level::Calm).is_empty());
    assert_eq!(refused(Level::Busy, Level::Calm), ["low miss", "low bypass"]);
    assert_eq!(
        refused(Level::Hard, Level::Calm),
        ["low hit", "low batch", "low miss", "low bypass", "normal miss", "normal bypass"]
    );
    assert_eq!(refused(Level::Calm, Level::Busy), ["low batch", "low miss", "low bypass", "normal bypass"]);
    let hard = ["low hit", "low batch", "low miss", "low bypass", "normal batch", "normal miss", "normal bypass"];
    assert_eq!(refused(Level::Calm, Level::Hard), [&hard[..], &["high bypass"]].concat());
}

#[test]
fn a_load_fits_a_byte_and_calm_is_zero() {
    for (load, ..) in all() {
        assert_eq!(Load::unpack(load.pack()), load);
        assert_eq!(load.pack() == 0, load.level() == Level::Calm);
    }
    assert_eq!(Load::unpack(0xff).level(), Level::Hard, "what cannot be is taken for the worst");
}

const TICK: Duration = Duration::from_millis(100);

fn config() -> Config {
    Config {
        queue_delay_target: Duration::from_millis(20),
        queue_delay_interval: Duration::from_millis(500),
        memory_share: 0.85,
        files_share: 0.85,
    }
}

/// Looks every [`TICK`].
struct Watch {
    pressure: Pressure,
    now: Nanos,
}

impl Watch {
    fn new() -> Self {
        Self { pressure: Pressure::new(config()), now: Nanos(1) }
    }

    fn look(&mut self, reading: &Reading) -> Load {
        self.now = self.now.after(TICK);
        self.pressure.observe(reading, self.now)
    }

    /// Looks until the load is this one, and tells how many looks that took.
    fn until(&mut self, reading: &Reading, load: Load) -> usize {
        (1..1000).find(|_| self.look(reading) == load).expect("within 100 seconds")
    }
}

const CALM: Load = Load { delay: Level::Calm, room: Level::Calm };

fn loops(ms: &[u64]) -> Reading {
    let loop_delays = ms.iter().copied().map(Duration::from_millis).collect();
    Reading { loop_delays, database_wait: Some(Duration::ZERO), ..Reading::default() }
}

#[test]
fn a_loop_that_stays_late_presses_and_calms_down_step_by_step() {
    let mut watch = Watch::new();
    assert_eq!(watch.until(&loops(&[0, 25]), Load { delay: Level::Busy, ..CALM }), 6, "five intervals of 100 ms");
    assert_eq!(watch.until(&loops(&[0, 300]), Load { delay: Level::Hard, ..CALM }), 6);
    assert_eq!(watch.until(&loops(&[0, 0]), Load { delay: Level::Busy, ..CALM }), 11, "held for a second");
    assert_eq!(watch.until(&loops(&[0, 0]), CALM), 10);
}

#[test]
fn loops_that_are_late_in_turn_have_no_standing_queue() {
    let mut watch = Watch::new();
    for i in 0..100 {
        let reading = if i % 2 == 0 { loops(&[900, 0]) } else { loops(&[0, 900]) };
        assert_eq!(watch.look(&reading), CALM);
    }
}

#[test]
fn a_wait_for_the_database_makes_busy_and_never_more_and_not_knowing_changes_nothing() {
    let mut watch = Watch::new();
    let waits = |wait: Option<u64>| Reading { database_wait: wait.map(Duration::from_millis), ..Reading::default() };
    let busy = Load { delay: Level::Busy, ..CALM };
    assert_eq!(watch.until(&waits(Some(5_000)), busy), 6);
    for _ in 0..100 {
        assert_eq!(watch.look(&waits(Some(5_000))), busy);
    }
    for _ in 0..100 {
        assert_eq!(watch.look(&waits(None)), busy);
    }
    assert_eq!(watch.until(&waits(Some(0)), CALM), 11);
}

#[test]
fn a_queue_that_is_read_newest_first_presses_though_those_who_are_read_waited_for_nothing() {
    let mut watch = Watch::new();
    let newest_first = |wait| Reading { standing: true, database_wait: wait, ..Reading::default() };
    let busy = Load { delay: Level::Busy, ..CALM };
    assert_eq!(watch.look(&newest_first(Some(Duration::ZERO))), busy, "at once: it has stood for its own interval");
    for _ in 0..100 {
        assert_eq!(watch.look(&newest_first(Some(Duration::ZERO))), busy);
        assert_eq!(watch.look(&newest_first(None)), busy);
    }
    let over = Reading { database_wait: Some(Duration::ZERO), ..Reading::default() };
    assert_eq!(watch.until(&over, CALM), 11);
}

#[test]
fn memory_and_files_press_at_their_shares() {
    let room = |room| Load { room, ..CALM };
    for used in [0.0, 0.8499] {
        let mut watch = Watch::new();
        assert_eq!(watch.look(&Reading { memory: Some(used), files: Some(used), ..Reading::default() }), CALM);
    }
    for (used, level) in [(0.85, Level::Busy), (0.949, Level::Busy), (0.951, Level::Hard), (7.0, Level::Hard)] {
        let mut watch = Watch::new();
        assert_eq!(watch.look(&Reading { memory: Some(used), ..Reading::default() }), room(level), "at once");
        assert_eq!(watch.pressure.levels(), [Level::Calm, Level::Calm, level, Level::Calm]);
        let mut watch = Watch::new();
        assert_eq!(watch.look(&Reading { files: Some(used), ..Reading::default() }), room(level));
        assert_eq!(watch.pressure.levels(), [Level::Calm, Level::Calm, Level::Calm, level]);
    }
}

proptest! {
    #[test]
    fn when_all_is_well_again_it_is_calm_within_four_intervals(
        delays in prop::collection::vec((0_u64..500, 0.0_f64..1.2), 0..100),
    ) {
        let mut watch = Watch::new();
        for (delay, used) in delays {
            let reading = Reading { memory: Some(used), database_wait: Some(Duration::from_millis(delay)), ..loops(&[delay]) };
            watch.look(&reading);
        }
        // Two steps of two intervals each, and the first look that is well.
        let looks = watch.until(&loops(&[0]), CALM);
        prop_assert!(looks <= 22, "{} looks", looks);
    }
}
