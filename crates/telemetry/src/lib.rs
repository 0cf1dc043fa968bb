//! What operators see of the service: [`exposition`] (the text of metrics), [`lookups`] and
//! [`outcome`] (what the cache did for a request), [`access_log`] (lines of requests), [`traces`]
//! and [`trace_context`] (spans), [`server_timing`], [`query_log`] (slow queries), [`history`] (ten
//! minutes of samples, and hot keys), [`miss_ratio_curve`] (hit ratios of other capacities) and
//! [`throttle`] (log lines that could flood).
//!
//! It imports words (`access`, `config`, `types`, `measure`), `http1` for fields of a request,
//! `otel`, `net` for the collector, `supervisor`, and names of `cache` and `source`. It knows no
//! handler and no connection: its callers pass what a line or a span says. Nothing here
//! delays a request: queues are bounded in bytes, what does not fit is dropped and counted, and one
//! thread writes.
//!
//! Reference `logs`: # Access log and traces
//!
//! Of the [access log](logs.md#access-log) and of [traces](traces.md).

pub mod access_log;
pub mod exposition;
pub mod history;
pub mod lookups;
pub mod miss_ratio_curve;
pub mod names;
pub mod outcome;
pub mod query_log;
pub mod request;
pub mod server_timing;
pub mod throttle;
pub mod trace_context;
pub mod traces;
