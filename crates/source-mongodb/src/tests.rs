//! Tests against a stand-in: a fake MongoDB server in this process. With `HOTROW_TEST_MONGODB_URL`
//! in the environment they run against that real deployment instead, except tests that need a
//! fault.

mod feed;
mod harness;
use hotrow_testkit::place;
mod races;
mod reads;
mod refusals;
use hotrow_testkit::standin;
mod troubles;
