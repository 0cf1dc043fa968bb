//! Against a stand-in in this process, or against a real deployment where the environment names one
//! (`HOTROW_TEST_MONGODB_URL`); tests that need a fault always take the stand-in.

mod feed;
mod harness;
#[path = "../../../hotrow/tests/common_mongo/place.rs"]
mod place;
mod races;
mod reads;
mod refusals;
#[path = "../../../hotrow/tests/common_mongo/standin.rs"]
mod standin;
mod troubles;
