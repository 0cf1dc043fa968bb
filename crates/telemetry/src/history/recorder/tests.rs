use super::*;

const SECOND_NS: u64 = 1_000_000_000;

fn value(sample: &Sample, series: Series) -> f32 {
    sample.values[series as usize]
}

fn reading(requests: f64) -> Reading {
    let mut reading = Reading::empty();
    reading.set(Series::RequestsHit, requests);
    reading.set(Series::ConnectionsOpen, 7.0);
    reading
}

fn of_collections(counts: &[(&str, u64, u64)]) -> Reading {
    let mut reading = Reading::empty();
    let collection = |(name, memory, database): &(&str, u64, u64)| CollectionReading {
        name: (*name).to_owned(),
        memory: *memory,
        database: *database,
    };
    reading.collections = counts.iter().map(collection).collect();
    reading
}

#[test]
fn rates_use_the_real_interval_so_that_a_stop_is_no_spike() {
    let mut recorder = Recorder::new();
    recorder.add(Nanos(SECOND_NS), reading(1_000.0));
    assert!(recorder.samples().is_empty(), "one reading has no interval");
    recorder.add(Nanos(2 * SECOND_NS), reading(1_100.0));
    // Stopped for a minute, then 100 more requests.
    recorder.add(Nanos(62 * SECOND_NS), reading(1_220.0));
    recorder.add(Nanos(62 * SECOND_NS), reading(9_999.0));
    let rates: Vec<f32> =
        recorder.samples().iter().map(|sample| value(sample, Series::RequestsHit)).collect();
    assert_eq!(rates, [100.0, 2.0], "no interval, no sample");
    assert_eq!(recorder.samples()[1].interval_ns, 60 * SECOND_NS);
    assert!(recorder.samples().iter().all(|s| value(s, Series::ConnectionsOpen) == 7.0));
    // Continued from the last reading with an interval.
    recorder.add(Nanos(63 * SECOND_NS), reading(1_230.0));
    assert_eq!(value(&recorder.samples()[2], Series::RequestsHit), 10.0);
}

#[test]
fn counts_that_begin_again_are_no_negative_rate_and_unknown_ones_no_zero() {
    let mut recorder = Recorder::new();
    recorder.add(Nanos(SECOND_NS), reading(500.0));
    recorder.add(Nanos(2 * SECOND_NS), reading(20.0));
    assert_eq!(value(&recorder.samples()[0], Series::RequestsHit), 0.0);
    assert!(value(&recorder.samples()[0], Series::RequestsMiss).is_nan());
    assert!(value(&recorder.samples()[0], Series::FeedStaleness).is_nan());
}

#[test]
fn only_ten_minutes_are_kept_by_number_and_by_age() {
    let mut recorder = Recorder::new();
    for second in 1..=SAMPLES_MAX as u64 + 200 {
        recorder.add(Nanos(second * SECOND_NS), reading(second as f64));
    }
    assert_eq!((recorder.samples().len(), recorder.next()), (SAMPLES_MAX, 799));
    assert_eq!(recorder.samples()[0].at, Nanos(201 * SECOND_NS));
    // An hour of suspend.
    recorder.add(Nanos(4_400 * SECOND_NS), reading(900.0));
    assert_eq!(recorder.samples().len(), 1);
    assert_eq!(recorder.next(), 800);
}

#[test]
fn latency_is_that_of_the_interval() {
    let mut recorder = Recorder::new();
    let mut now = Reading::empty();
    now.hits.record_n(2_000, 1_000_000);
    recorder.add(Nanos(SECOND_NS), now.clone());
    now.hits.record_n(4_000, 99);
    now.hits.record_n(90_000, 1);
    now.misses.record_n(3_000_000, 100);
    recorder.add(Nanos(2 * SECOND_NS), now.clone());
    let sample = recorder.samples()[0].clone();
    let within = |series, expected: f32| {
        let value = value(&sample, series);
        assert!((expected..=expected * 1.016).contains(&value), "{series:?}: {value}");
    };
    within(Series::HitP50, 4.0);
    within(Series::HitP999, 90.0);
    within(Series::MissP50, 3_000.0);
    within(Series::AllP50, 90.0);
    assert!(value(&sample, Series::QueueWaitP99).is_nan());
    assert_eq!(sample.heat.iter().sum::<u32>(), 200);
    assert_eq!(sample.heat[heat_row(4_000)], 99);
    assert_eq!(sample.heat[heat_row(3_000_000)], 100);
    recorder.add(Nanos(3 * SECOND_NS), now);
    assert!(value(&recorder.samples()[1], Series::HitP50).is_nan(), "no request, no latency");
}

#[test]
fn rows_of_the_heat_map_are_half_octaves_and_none_is_cut() {
    assert_eq!([0, 1, 2, 3].map(heat_bound_ns), [512, 768, 1_024, 1_536]);
    assert_eq!([0, 511, 512, 767, 768, 1_024].map(heat_row), [0, 0, 1, 1, 2, 3]);
    assert_eq!(heat_row(u64::MAX), HEAT_ROWS - 1);
    assert!(heat_bound_ns(HEAT_ROWS - 2) > 8_000_000_000, "up to the longest time-outs");
    let mut histogram = Histogram::default();
    (0..HEAT_ROWS - 1).for_each(|row| histogram.record(heat_bound_ns(row)));
    for bucket in histogram.iter() {
        assert_eq!(heat_row(bucket.low), heat_row(bucket.high), "{bucket:?}");
    }
}

#[test]
fn a_collection_gets_a_series_when_it_is_requested() {
    let mut recorder = Recorder::new();
    recorder.add(Nanos(SECOND_NS), of_collections(&[("a", 0, 0), ("b", 0, 0)]));
    recorder.add(Nanos(2 * SECOND_NS), of_collections(&[("a", 30, 10), ("b", 0, 0)]));
    // A reload puts another collection in between.
    let reloaded = of_collections(&[("a", 30, 10), ("new", 5, 0), ("b", 8, 2)]);
    recorder.add(Nanos(4 * SECOND_NS), reloaded);
    let found: Vec<_> = recorder
        .collections()
        .iter()
        .map(|own| {
            let memory: Vec<Option<u32>> = own
                .lookups
                .iter()
                .map(|lookups| lookups.memory.is_finite().then_some(lookups.memory as u32))
                .collect();
            (own.name.as_str(), memory)
        })
        .collect();
    assert_eq!(
        found,
        [("a", vec![Some(30), Some(0)]), ("new", vec![None, Some(2)]), ("b", vec![None, Some(4)]),]
    );
    assert!(recorder.others().iter().all(Lookups::is_idle));
}

#[test]
fn collections_without_a_place_are_added_up_until_one_is_free() {
    let mut recorder = Recorder::new();
    let all = |second: u64, idle: usize| {
        let mut reading = Reading::empty();
        reading.collections = (0..COLLECTIONS_MAX + 2)
            .map(|i| CollectionReading {
                name: format!("c{i}"),
                memory: if i == idle { 3 } else { 3 * second },
                database: 0,
            })
            .collect();
        reading
    };
    let mut at = 1;
    recorder.add(Nanos(SECOND_NS), all(at, usize::MAX));
    let mut step = |recorder: &mut Recorder, idle: usize| {
        at += 1;
        recorder.add(Nanos(at * SECOND_NS), all(at, idle));
    };
    step(&mut recorder, usize::MAX);
    assert_eq!(recorder.collections().len(), COLLECTIONS_MAX);
    assert_eq!(recorder.others()[0].memory, 6.0, "two have no place");
    // `c5` is not requested any more; its place is free when its last request is ten minutes old.
    (1..SAMPLES_MAX).for_each(|_| step(&mut recorder, 5));
    let names = |recorder: &Recorder| -> Vec<String> {
        recorder.collections().iter().map(|own| own.name.clone()).collect()
    };
    assert!(names(&recorder).contains(&"c5".to_owned()));
    (0..2).for_each(|_| step(&mut recorder, 5));
    assert!(!names(&recorder).contains(&"c5".to_owned()));
    assert!(names(&recorder).contains(&format!("c{COLLECTIONS_MAX}")));
    assert_eq!(recorder.others().back().map(|others| others.memory), Some(3.0));
}
