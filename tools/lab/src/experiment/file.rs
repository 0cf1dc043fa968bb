//! Every key of an experiment file, as written. Unknown keys are refused.
//! `docs/lab/experiments.md` documents them.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::nginx::{Balance, ProxyProfile};

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
