//! Every model in this process, at a reduced scale, with all checks.

use std::time::Duration;

use super::report::PublishedModel;
use super::*;
use crate::work::Scale;

fn job(requests: u64) -> Arc<Job> {
    Arc::new(Job::new(
        requests,
        Scale::new(0.01).expect("a scale"),
        Duration::ZERO,
        Box::new(|_| {}),
    ))
}

#[test]
fn every_model_does_all_of_the_work() {
    // In parallel, because most of them wait most of the time.
    std::thread::scope(|scope| {
        for cores in [1, 3] {
            for model in catalogue(cores) {
                scope.spawn(move || {
                    // Three multiples of 500, an odd end, more than the queue's capacity.
                    let job = job(1_501);
                    assert!(model.run(&job).is_ok(), "{}", model.name());
                    let checks = job.checks();
                    let wrong: Vec<_> = checks.into_iter().filter(|check| !check.right).collect();
                    assert!(wrong.is_empty(), "{} with {cores}: {wrong:?}", model.name());
                });
            }
        }
    });
}

#[test]
fn every_model_ends_without_requests() {
    for model in catalogue(2) {
        for requests in [0, 1] {
            let job = job(requests);
            assert!(model.run(&job).is_ok(), "{}", model.name());
            assert!(job.checks().iter().all(|check| check.right), "{}", model.name());
        }
    }
}

#[test]
fn the_timeline_shows_the_sleep_of_requests() {
    // A window long enough for a busy machine, and sleeps longer than its parts. In parallel,
    // because each run takes a second.
    const WINDOW: Duration = Duration::from_secs(20);
    std::thread::scope(|scope| {
        for model in catalogue(2) {
            scope.spawn(move || {
                let job = Arc::new(Job::new(600, Scale::FULL, WINDOW, Box::new(|_| {})));
                assert!(model.run(&job).is_ok(), "{}", model.name());
                let rows = job.timeline.rows("thread", std::time::Instant::now());
                let asleep = rows
                    .iter()
                    .flat_map(|row| &row.spans)
                    .any(|span| span.state == hotrow_report::plot::LaneState::Sleeping);
                assert!(asleep, "{}: {rows:?}", model.name());
            });
        }
    });
}

#[test]
fn models_are_selected_by_name_and_prefix() {
    let chosen = |asked: &[&str]| {
        chosen(&asked.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), 2)
    };
    assert_eq!(chosen(&[]).unwrap().len(), 16);
    assert_eq!(chosen(&["async", "pool-1x", "async"]).unwrap(), ["pool-1x", "async"]);
    assert_eq!(
        chosen(&["batches"]).unwrap(),
        ["batches-100", "batches-50", "batches-16", "batches-cores"]
    );
    for unknown in ["", "poo", "pool-", "Async"] {
        assert_eq!(chosen(&["async", unknown]), Err(unknown.to_owned()));
    }
    let names = chosen(&[]).unwrap();
    let mut sorted = names.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), names.len());
    for figure in report::PUBLISHED {
        match figure.model {
            PublishedModel::Named(model) => assert!(names.iter().any(|name| name == model)),
            PublishedModel::Pool { threads } => {
                // On the machines on which multiples of the cores have as many threads.
                for cores in [2, 4, 8, 16] {
                    let models = catalogue(cores);
                    let mut pools = models.iter().filter(|model| model.name().starts_with("pool-"));
                    assert!(pools.any(|pool| pool.threads(1) == threads), "{cores} cores");
                }
            }
        }
    }
}
