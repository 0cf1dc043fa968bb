//! Every key of an experiment file, as written. Unknown keys are refused.
//! The head of this file documents them.
//!
//! Reference `experiment`: # Experiment files
//!
//! Read by [`hotrow lab run`](lab/experiments.md).
//!
//! Unknown keys are refused, with all other mistakes at once. Times: `"500ms"`, `"10s"`, `"5m"`.
//! Top level: `title`, `question`, `note` (Markdown), `published_source`.
//!
//! Reference `experiment`: `[run]`
//!
//! `rounds` (1 to 1000, default 5), `duration` (`"5s"`) and `requests` of one measurement, `warmup`
//! (`"1s"`, uncounted).
//!
//! Reference `experiment`: `[services.NAME]`
//!
//! - `command`: required, a list. It must listen on 127.0.0.1.
//! - `env`, `port`: environment; the port, if it is fixed.
//! - `files`, `vars`: files in `{dir}` (name and text); own placeholders.
//! - `prepare`: commands run once, in `{data}`, each for at most `prepare_within` (`"5m"`).
//! - `ready`: path that answers 2xx when ready, with `ready_on_admin = true` at `{admin_port}`;
//!   `ready_command` exits with status 0 instead. Without both an open port suffices.
//!   `ready_within` (`"30s"`).
//! - `cores`: CPU limit of each instance, 0.1 to 1024.
//! - `access`: a table, if the service is not reached in cleartext at `{port}` by anyone: `cacert`
//!   (it speaks TLS with a certificate for `localhost` that one of this file signs); `cert`, `key`
//!   of its clients; `unix`: its socket; `token_file`: sent as `Authorization: Bearer`;
//!   `headers_file`: header fields, one a line. A proxy speaks cleartext to its services, and
//!   passes on the fields. `ready` is then asked for at `{admin_port}`, and requests are counted by
//!   `count_metric`.
//! - `count`, `count_metric`: path with, or metric of, the number of served requests.
//! - `reads_metric`: metric of the number of keys read from the database, for `events`.
//! - `needs_commands`: list of commands; if one fails, deployments of the service are skipped.
//! - `metrics`: path of Prometheus metrics, at `{admin_port}` if used. `figures` from them: `name`,
//!   `unit`, `of` (series), `over` (divisor), `at_end` (final value instead of the increase).
//!
//! Placeholders: `{port}`, `{admin_port}`, `{instance}` (from 1), `{dir}` (new for each start),
//! `{data}` (of the whole run), `{here}` (the file's folder), `{hotrow}`, `{cpus}`, `{half_cpus}`,
//! `{four_times_cpus}`, `{eight_times_cpus}`, `{database_port}`, `{database_dir}`.
//!
//! Reference `experiment`: `[[deployments]]`
//!
//! - `name`, `service`: required.
//! - `instances`: 1 to 64; more than one needs a `proxy`. `spares`: number of them, the last ones,
//!   that only an event starts. The proxy knows them from the beginning.
//! - `proxy`: `kind = "nginx"` or `"haproxy"`. Both: `balance = "round_robin"`, `"weights"`,
//!   `"least_connections"`, `"hash_on_id"` (consistent), `"modulo_on_id"` or `"ip_hash"`; `retry =
//!   false` (a failed attempt is not repeated at another instance).
//! - `proxy` (nginx): `profile = "published"` or `"tuned"`, or `template = "FILE"`
//!   ([nginx](routing.md#nginx-in-front-of-other-services)); `cache = "1s"`; `upstream_keepalive`
//!   (connections, 0 for none); `max_fails`, `fail_timeout = "2s"`; `backups` (number of instances,
//!   the last ones, that serve while no other does); `gzip` (level 1 to 9); `response_rate`
//!   (bytes/s of each response); `access_log`; `tls`.
//! - `load_bound`: HAProxy, with the settings of [routing](routing.md#recipes) (with
//!   `"hash_on_id"`: most open requests of an instance, in percent of the average). It hashes the
//!   path, nginx the path's last segment. It checks `ready` of each instance, or its port, each
//!   second.
//! - `weights`: one per instance, with `balance = "weights"`. `delay`: round-trip time added by a
//!   relay in front (alone: `hotrow lab delay`). `database`: name of a service that is started
//!   first.
//! - `args`, `env`, `vars`, `cores`: added to the service's, or overriding them. `conditions`:
//!   shown with its rows. `needs_env`: variables without which it is skipped.
//!
//! Reference `experiment`: `[[loads]]`
//!
//! - `name`, `path`, `connections`: required. Every `{id}` in the path is replaced; `connections`
//!   is a list.
//! - `ids`, `ids_file`, `distribution`: as in [load](load.md#options). `ids_env` names an
//!   environment variable with the file; unset, the load is skipped.
//! - `method`, `headers`, `body`, `form` (a table): GET, with a body POST.
//! - `keepalive`: `true` without it.
//! - `rate`: a closed loop without it.
//! - `threads`, `timeout`: half of the CPUs and `"10s"` without them.
//! - `duration`, `requests`, `warmup`: as in `[run]`.
//! - `expect`: `status` (any 2xx), `body_contains`, `body_bytes = [least, most]`, checked first at
//!   every backend and through the proxy; status and bytes also during the measurement.
//! - `deployments`: names of those it applies to. `cold = true`: without a check or warm-up.
//! - `events = [{ at = 0.3, kill = 1 }, { at = 0.6, start = 1 }]`: kills (SIGKILL) and starts
//!   instances (killed ones, and spares) after these shares of the measurement. Failed requests do
//!   not fail the measurement. Figures: `failed requests`, `failed` (%) and, if an instance was
//!   killed and started, `outage` (s, until it is ready); they include what killed instances
//!   counted. If other instances run at the end than at the begin, the deployment is started anew
//!   for the next load.
//! - `events`, `distribution = "sequential"` and the service's `reads_metric`: the figure `read
//!   again, instance 1 killed` (or `started`) is the number of keys read from the database
//!   until the next event or the end, whatever the reason, in units of 1/N of the ids. N counts the
//!   instances with the one that was killed or started. Let the ids fit in memory, and the warm-up
//!   read all. A phase needs two requests for each id.
//! - `background = true`: a load without rows; `background_load = "NAME"` runs it beside another.
//!
//! Reference `experiment`: `[[published]]`, `[[compare]]` and `[[goals]]`
//!
//! - `[[published]]`: figures of others: `deployment`, `load`, `connections`, `rps`, `more` (a
//!   table).
//! - `[[compare]]`: `row`, `with`, `claim` (the beginning of a sentence), `figure` (of the
//!   service's `figures`, instead of the rate). These ratios answer the question, the main one
//!   first.
//! - `[[goals]]`: `row`, `figure` (of the service's `figures`, or of `events`), `at_most` or
//!   `at_least`, `claim` (what the goal is). The report shows each with its verdict.

use std::collections::BTreeMap;

use serde::Deserialize;

use hotrow_proxies::nginx::{Balance, ProxyProfile};

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) title: String,
    pub(super) question: String,
    #[serde(default)]
    pub(super) note: String,
    #[serde(default)]
    pub(super) published_source: String,
    #[serde(default)]
    pub(super) run: Run,
    pub(super) services: BTreeMap<String, Service>,
    pub(super) deployments: Vec<DeploymentSpec>,
    pub(super) loads: Vec<Load>,
    #[serde(default)]
    pub(super) published: Vec<Published>,
    #[serde(default)]
    pub(super) compare: Vec<Compare>,
    #[serde(default)]
    pub(super) goals: Vec<Goal>,
}

/// `[run]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    pub(super) rounds: Option<u32>,
    pub(super) duration: Option<String>,
    pub(super) requests: Option<u64>,
    pub(super) warmup: Option<String>,
}

/// `[services.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Service {
    pub(super) port: Option<u16>,
    pub(super) command: Vec<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) files: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) vars: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) prepare: Vec<Vec<String>>,
    pub(super) prepare_within: Option<String>,
    pub(super) ready: Option<String>,
    #[serde(default)]
    pub(super) ready_on_admin: bool,
    #[serde(default)]
    pub(super) ready_command: Vec<String>,
    pub(super) ready_within: Option<String>,
    pub(super) cores: Option<f64>,
    #[serde(default)]
    pub(super) access: super::Access,
    pub(super) count: Option<String>,
    pub(super) count_metric: Option<String>,
    pub(super) metrics: Option<String>,
    pub(super) reads_metric: Option<String>,
    #[serde(default)]
    pub(super) figures: Vec<Figure>,
    #[serde(default)]
    pub(super) needs_commands: Vec<Vec<String>>,
}

/// `[[services.NAME.figures]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figure {
    pub(super) name: String,
    #[serde(default)]
    pub(super) unit: String,
    pub(super) of: Vec<String>,
    #[serde(default)]
    pub(super) over: Vec<String>,
    #[serde(default)]
    pub(super) at_end: bool,
}

/// `[[deployments]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeploymentSpec {
    pub(super) name: String,
    pub(super) service: String,
    pub(super) database: Option<String>,
    pub(super) instances: Option<u32>,
    #[serde(default)]
    pub(super) spares: u32,
    pub(super) weights: Option<Vec<u32>>,
    pub(super) proxy: Option<Proxy>,
    pub(super) delay: Option<String>,
    #[serde(default)]
    pub(super) args: Vec<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) vars: BTreeMap<String, String>,
    pub(super) cores: Option<f64>,
    #[serde(default)]
    pub(super) conditions: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) needs_env: Vec<String>,
}

/// `proxy` of a deployment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Proxy {
    pub(super) kind: super::ProxyKind,
    pub(super) profile: Option<ProxyProfile>,
    pub(super) balance: Option<Balance>,
    pub(super) gzip: Option<u32>,
    pub(super) response_rate: Option<u32>,
    pub(super) max_fails: Option<u32>,
    pub(super) fail_timeout: Option<String>,
    pub(super) backups: Option<u32>,
    pub(super) retry: Option<bool>,
    pub(super) load_bound: Option<u32>,
    pub(super) cache: Option<String>,
    pub(super) upstream_keepalive: Option<u32>,
    #[serde(default)]
    pub(super) access_log: bool,
    #[serde(default)]
    pub(super) tls: bool,
    pub(super) template: Option<String>,
}

/// `[[loads]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Load {
    pub(super) name: String,
    pub(super) method: Option<String>,
    pub(super) path: String,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) form: BTreeMap<String, String>,
    pub(super) body: Option<String>,
    pub(super) ids: Option<String>,
    pub(super) ids_file: Option<String>,
    pub(super) ids_env: Option<String>,
    pub(super) distribution: Option<String>,
    #[serde(default)]
    pub(super) connections: Vec<u32>,
    pub(super) threads: Option<usize>,
    pub(super) keepalive: Option<bool>,
    pub(super) rate: Option<f64>,
    pub(super) duration: Option<String>,
    pub(super) requests: Option<u64>,
    pub(super) warmup: Option<String>,
    pub(super) timeout: Option<String>,
    #[serde(default)]
    pub(super) expect: Expect,
    pub(super) deployments: Option<Vec<String>>,
    pub(super) background_load: Option<String>,
    #[serde(default)]
    pub(super) background: bool,
    #[serde(default)]
    pub(super) cold: bool,
    #[serde(default)]
    pub(super) events: Vec<Event>,
}

/// An entry of a load's `events`: what happens, and when.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Event {
    pub(super) at: f64,
    pub(super) kill: Option<u32>,
    pub(super) start: Option<u32>,
}

/// `expect` of a load.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    pub(super) status: Option<u16>,
    #[serde(default)]
    pub(super) body_contains: String,
    pub(super) body_bytes: Option<(usize, usize)>,
}

/// `[[published]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Published {
    pub(super) deployment: String,
    pub(super) load: String,
    pub(super) connections: u32,
    pub(super) rps: Option<f64>,
    #[serde(default)]
    pub(super) more: BTreeMap<String, String>,
}

/// `[[compare]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Compare {
    pub(super) row: String,
    pub(super) with: String,
    pub(super) claim: String,
    pub(super) figure: Option<String>,
}

/// `[[goals]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Goal {
    pub(super) row: String,
    pub(super) figure: String,
    pub(super) claim: String,
    pub(super) at_most: Option<f64>,
    pub(super) at_least: Option<f64>,
}
