//! `[[loads]]`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use hotrow_load::ids::{Distribution, Ids};
use hotrow_load::plan::StopCondition;
use hotrow_load::request::{FORM_MEDIA_TYPE, RequestMix, RequestSpec, encode_form};
use hotrow_load::run::CONNECTIONS_MAX;

use super::{
    Defaults, Problems, QUICK_DURATION, QUICK_EVENTS_DURATION, QUICK_REQUESTS, QUICK_WARMUP,
};
use crate::experiment::file::{self, File};
use crate::experiment::{Event, EventKind, Expect, Load, values};

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Largest file of ids, in bytes.
const IDS_BYTES_MAX: u64 = 1 << 28;
/// Most events of a load.
const EVENTS_MAX: usize = 16;

pub(super) fn loads(
    raw: &File,
    folder: &Path,
    defaults: &Defaults,
    problems: &Problems,
) -> Vec<Load> {
    if raw.loads.iter().all(|load| load.background) {
        problems.refuse(
            "loads",
            "every load has background = true; add [[loads]] with a name, a path and connections",
        );
    }
    let mut names = BTreeSet::new();
    for (i, load) in raw.loads.iter().enumerate() {
        problems.take(format!("loads[{i}].name"), values::name(&load.name));
        if !names.insert(&load.name) {
            problems.refuse(
                format!("loads[{i}].name"),
                format!("{:?} is defined twice; names must differ", load.name),
            );
        }
    }
    raw.loads
        .iter()
        .enumerate()
        .map(|(i, load)| resolve(raw, i, load, folder, defaults, problems))
        .collect()
}

fn resolve(
    raw: &File,
    i: usize,
    load: &file::Load,
    folder: &Path,
    defaults: &Defaults,
    problems: &Problems,
) -> Load {
    let at = |key: &str| format!("loads[{i}].{key}");
    let (headers, body) = body(load, &at, problems);
    let mut connections = load.connections.clone();
    if load.background && connections.is_empty() {
        connections.push(1);
    }
    if connections.is_empty() {
        problems.refuse(at("connections"), "must list at least one number, as in [1, 6]");
    }
    if let Some(wrong) =
        connections.iter().find(|n| !(1..=CONNECTIONS_MAX as u64).contains(&u64::from(**n)))
    {
        problems.refuse(
            at("connections"),
            format!("must be between 1 and {CONNECTIONS_MAX}, not {wrong}"),
        );
    }
    let mut listed = BTreeSet::new();
    if let Some(twice) = connections.iter().find(|n| !listed.insert(**n)) {
        problems.refuse(at("connections"), format!("{twice} is listed twice"));
    }
    background_load(raw, load, &at("background_load"), problems);
    let (stop_condition, warmup) = stop_condition(load, defaults, &at, problems);
    let timeout =
        problems.take_optional(at("timeout"), load.timeout.as_ref(), values::positive_duration);
    let (ids, missing_env) = ids(load, folder, &at, problems);
    let method = load
        .method
        .clone()
        .unwrap_or_else(|| if body.is_some() { "POST" } else { "GET" }.to_owned());
    let resolved = Load {
        name: load.name.clone(),
        method,
        path: load.path.clone(),
        headers,
        body,
        ids,
        missing_env,
        connections,
        threads: load.threads,
        keepalive: load.keepalive.unwrap_or(true),
        rate: load.rate.and_then(|rate| problems.take(at("rate"), values::rate(rate))),
        stop_condition,
        warmup,
        timeout: timeout.unwrap_or(TIMEOUT_DEFAULT),
        expect: expect(load, &at, problems),
        background_load: load.background_load.clone(),
        background: load.background,
        cold: load.cold,
        events: events(load, stop_condition, &at, problems),
    };
    if !load.path.starts_with('/') {
        let what = format!("must begin with a slash, as in {:?}, not {:?}", "/hello", load.path);
        problems.refuse(at("path"), what);
    } else if let Err(e) = resolved.requests("localhost", &[]) {
        problems.refuse(at("path"), e.to_string());
    }
    resolved
}

impl Load {
    /// Builds its requests for a server of this name, with more header fields.
    ///
    /// # Errors
    /// Invalid requests, or ids and `{id}` of which only one is present.
    pub fn requests(
        &self,
        host: &str,
        more: &[(String, String)],
    ) -> Result<RequestMix, hotrow_load::request::RequestError> {
        let headers = [&self.headers[..], more].concat();
        let description = RequestSpec {
            method: &self.method,
            path: &self.path,
            host,
            headers: &headers,
            body: self.body.as_deref(),
            weight: 1,
            keepalive: self.keepalive,
        };
        RequestMix::new(&[description], self.ids.clone())
    }
}

type Body = (Vec<(String, String)>, Option<Vec<u8>>);

/// Returns the header fields and the body; a form adds its own field.
fn body(load: &file::Load, at: &dyn Fn(&str) -> String, problems: &Problems) -> Body {
    let mut headers: Vec<(String, String)> = load.headers.clone().into_iter().collect();
    if load.form.is_empty() {
        return (headers, load.body.clone().map(String::into_bytes));
    }
    if load.body.is_some() {
        problems.refuse(at("body"), "cannot be combined with form; give one of them");
    }
    headers.push(("Content-Type".to_owned(), FORM_MEDIA_TYPE.to_owned()));
    let fields = load.form.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    (headers, Some(encode_form(fields).into_bytes()))
}

/// Ids of a load, and the unset environment variable that should name their file.
type IdsOrMissing = (Option<(Ids, Distribution)>, Option<String>);

fn ids(
    load: &file::Load,
    folder: &Path,
    at: &dyn Fn(&str) -> String,
    problems: &Problems,
) -> IdsOrMissing {
    let distribution = problems
        .take_optional(at("distribution"), load.distribution.as_ref(), values::distribution)
        .unwrap_or(Distribution::Uniform);
    let mut missing_env = None;
    let ids = match (&load.ids, &load.ids_file, &load.ids_env) {
        (Some(text), None, None) => problems.take(at("ids"), values::ids(text)),
        (None, Some(name), None) => problems.take(at("ids_file"), listed(&folder.join(name))),
        (None, None, Some(variable)) => match std::env::var_os(variable) {
            Some(path) => problems.take(at("ids_env"), listed(Path::new(&path))),
            // Any id serves to validate the rest of the load; it is never sent.
            None => {
                missing_env = Some(variable.clone());
                values::ids("1..1").ok()
            }
        },
        (None, None, None) => None,
        _ => {
            problems.refuse(at("ids"), "only one of ids, ids_file and ids_env may be set");
            None
        }
    };
    (ids.map(|ids| (ids, distribution)), missing_env)
}

/// Reads ids from a file, one per line.
fn listed(path: &Path) -> Result<Ids, String> {
    let wrong = |why: String| format!("{} cannot be read: {why}", path.display());
    let bytes = std::fs::metadata(path).map_err(|e| wrong(e.to_string()))?.len();
    if bytes > IDS_BYTES_MAX {
        return Err(wrong(format!("it is larger than {IDS_BYTES_MAX} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    Ids::list(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
        .map_err(|e| e.to_string())
}

fn background_load(raw: &File, load: &file::Load, at: &str, problems: &Problems) {
    let Some(name) = &load.background_load else { return };
    if !raw.loads.iter().any(|other| other.name == *name && other.background) {
        problems.refuse(at, format!("there is no load {name:?} with background = true"));
    }
    if load.background {
        problems.refuse(at, "cannot be combined with background = true");
    }
}

/// Returns the end condition of a measurement and its warm-up.
fn stop_condition(
    load: &file::Load,
    defaults: &Defaults,
    at: &dyn Fn(&str) -> String,
    problems: &Problems,
) -> (StopCondition, Duration) {
    let own =
        problems.take_optional(at("duration"), load.duration.as_ref(), values::positive_duration);
    if load.requests == Some(0) {
        problems.refuse(at("requests"), "must be above zero");
    }
    let mut stop_condition = match (own, load.requests) {
        (None, None) => StopCondition { duration: defaults.duration, requests: defaults.requests },
        (duration, requests) => StopCondition { duration, requests },
    };
    let own = problems.take_optional(at("warmup"), load.warmup.as_ref(), values::duration);
    let mut warmup = if load.cold { Duration::ZERO } else { own.unwrap_or(defaults.warmup) };
    if load.cold && !own.unwrap_or_default().is_zero() {
        problems.refuse(at("warmup"), "cannot be combined with cold = true, which has no warm-up");
    }
    let overrides = &defaults.overrides;
    if let Some(seconds) = overrides.duration_s {
        stop_condition =
            StopCondition { duration: Some(Duration::from_secs_f64(seconds)), requests: None };
    }
    // A load that asks for all its ids in turn, around events, needs its time to do so.
    let needs_time = !load.events.is_empty() && load.distribution.as_deref() == Some("sequential");
    if overrides.quick && !needs_time {
        warmup = warmup.min(QUICK_WARMUP);
        if overrides.duration_s.is_none() {
            let has_events = !load.events.is_empty();
            let most = if has_events { QUICK_EVENTS_DURATION } else { QUICK_DURATION };
            stop_condition.duration = stop_condition.duration.map(|duration| duration.min(most));
        }
        stop_condition.requests =
            stop_condition.requests.map(|requests| requests.min(QUICK_REQUESTS));
    }
    (stop_condition, warmup)
}

fn expect(load: &file::Load, at: &dyn Fn(&str) -> String, problems: &Problems) -> Expect {
    let file::Expect { status, body_contains, body_bytes } = &load.expect;
    if let Some(status) = status.filter(|status| !(200..=599).contains(status)) {
        problems.refuse(at("expect.status"), format!("must be between 200 and 599, not {status}"));
    }
    if let Some((least, most)) = body_bytes.filter(|(least, most)| least > most) {
        problems.refuse(
            at("expect.body_bytes"),
            format!("must be [least, most], not [{least}, {most}]"),
        );
    }
    Expect { status: *status, body_contains: body_contains.clone(), body_bytes: *body_bytes }
}

/// Returns the events of a load.
fn events(
    load: &file::Load,
    stop_condition: StopCondition,
    at: &dyn Fn(&str) -> String,
    problems: &Problems,
) -> Vec<Event> {
    if load.events.is_empty() {
        return Vec::new();
    }
    if load.events.len() > EVENTS_MAX {
        let n = load.events.len();
        problems.refuse(at("events"), format!("must be at most {EVENTS_MAX}, not {n}"));
    }
    if stop_condition.duration.is_none() || stop_condition.requests.is_some() {
        problems.refuse(at("events"), "need a measurement that time ends: duration, no requests");
    }
    if load.background || load.background_load.is_some() {
        problems.refuse(at("events"), "cannot be combined with a background load");
    }
    let mut before = 0.0;
    let mut events = Vec::new();
    for (n, event) in load.events.iter().enumerate() {
        let path = at(&format!("events[{n}]"));
        let time = event.at;
        if !(before < time && time < 1.0) {
            problems.refuse(
                path.clone(),
                format!(
                    "at must be a share of the measurement, above {before} and below 1, not {time}"
                ),
            );
        }
        before = time;
        match (event.kill, event.start) {
            (Some(instance), None) => {
                events.push(Event { at: time, instance, kind: EventKind::Kill });
            }
            (None, Some(instance)) => {
                events.push(Event { at: time, instance, kind: EventKind::Start });
            }
            _ => problems.refuse(path, "must have either kill or start, with an instance from 1"),
        }
    }
    events
}
