//! One thread that serves one request after the other (W14).

use std::sync::Arc;

use super::floor::FloorRule;
use super::job::{HandedRequest, Job};
use super::work::Response;
use super::{Model, ThreadRefused};

pub(super) struct Sequential;

impl Model for Sequential {
    fn name(&self) -> String {
        "sequential".to_owned()
    }

    fn workload(&self) -> &'static str {
        "W14"
    }

    fn design(&self) -> [&'static str; 2] {
        [
            "One thread serves one request after the other.",
            "While one sleeps, all wait: the sum of all sleeps is its floor.",
        ]
    }

    fn explanation(&self) -> [&'static str; 3] {
        [
            "Its time is the sum of everything: all sleeps and all work, one after the other.",
            "Nearly all of it is sleep, in which the CPU has nothing to do though most requests \
             are ready to run.",
            "Nothing is shared, so nothing is locked, switched or woken: per request it is the \
             cheapest of all.",
        ]
    }

    fn threads(&self, _requests: u64) -> u64 {
        1
    }

    fn floor_rule(&self, _requests: u64) -> FloorRule {
        FloorRule::Threads(1)
    }

    fn run(&self, job: &Arc<Job>) -> Result<(), ThreadRefused> {
        let mut response = Response::default();
        for id in 0..job.requests() {
            job.serve(0, HandedRequest::now(id), &mut response, std::thread::sleep);
        }
        Ok(())
    }
}
