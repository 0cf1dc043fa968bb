//! One instance: its answers, and the numbers taken from them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use hotrow_transport::fetch::{self, FetchError, Request, RequestError};
use hotrow_transport::target::{TargetError, Url};
use hotrow_transport::tls::Tls;
use serde::Deserialize;
use serde_json::Value;

/// Largest answer that is read, in bytes. `/history` stays below 3 MiB.
const BODY_BYTES_MAX: usize = 8 << 20;
/// Values of the sparkline: one a second.
pub(super) const CURVE_SECONDS: usize = 60;
/// Most characters of a failing answer that are shown.
const SHOWN_CHARS_MAX: usize = 80;
/// Series whose last value is shown, with outcomes of requests that are added up.
const REQUESTS: [&str; 6] = [
    "requests.hit",
    "requests.miss",
    "requests.coalesced",
    "requests.stale",
    "requests.bypass",
    "requests.none",
];
const REFUSED_PREFIX: &str = "refused.";
/// Prefixes under which lookups of collections are kept beside the series.
const MEMORY_PREFIX: &str = "memory/";
const DATABASE_PREFIX: &str = "database/";

/// Reason why an instance does not report.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoReport {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    NoAnswer(#[from] FetchError),
    #[error("401: the admin token is missing or wrong; give it with --token-file")]
    TokenNeeded,
    #[error("404: no admin address of a Hotrow with /history")]
    NotHotrow,
    #[error("status {status}: {body}")]
    Status { status: u16, body: String },
    #[error("an answer that is not understood: {0}")]
    Json(#[from] serde_json::Error),
    #[error("no sample yet")]
    NoSample,
}

/// `/history`, as far as it is used.
#[derive(Debug, Deserialize)]
struct HistoryAnswer {
    started_unix_ms: u64,
    next: u64,
    series: BTreeMap<String, Vec<Option<f64>>>,
    #[serde(default)]
    collections: BTreeMap<String, CollectionAnswer>,
}

#[derive(Debug, Deserialize)]
struct CollectionAnswer {
    memory: Vec<Option<f64>>,
    database: Vec<Option<f64>>,
}

/// A frequently requested key.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct HotKey {
    pub(super) id: String,
    /// Share of the collection's requests, 0 to 1.
    pub(super) share: f64,
    pub(super) requests_per_s: f64,
}

/// A collection of an instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Collection {
    pub(super) name: String,
    /// Lookups a second answered from memory, the latest at the end.
    pub(super) memory: Vec<Option<f64>>,
    /// Those for which the database is read.
    pub(super) database: Vec<Option<f64>>,
    /// The most requested first; empty until they are asked for.
    pub(super) keys: Vec<HotKey>,
}

/// `/status`, as far as it is used.
#[derive(Debug, Deserialize)]
struct StatusAnswer {
    version: String,
    uptime_s: u64,
    readiness: ReadinessAnswer,
    cache: CacheAnswer,
}

#[derive(Debug, Deserialize)]
struct ReadinessAnswer {
    ready: bool,
    unmet: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct CacheAnswer {
    bytes: u64,
    capacity_bytes: u64,
}

/// Numbers of an instance's last second. Rates are per second; `None`: nothing is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Numbers {
    pub(super) version: String,
    pub(super) uptime_s: u64,
    /// Conditions of readiness that do not hold; none: ready.
    pub(super) unmet: Vec<String>,
    pub(super) requests: Option<f64>,
    /// Lookups answered from memory, and by the database.
    pub(super) lookups_memory: Option<f64>,
    pub(super) lookups_database: Option<f64>,
    pub(super) p99_us: Option<f64>,
    pub(super) staleness_ms: Option<f64>,
    pub(super) queries: Option<f64>,
    pub(super) refused: Option<f64>,
    pub(super) errors: Option<f64>,
    pub(super) connections: Option<f64>,
    pub(super) cpu_cores: Option<f64>,
    pub(super) memory_bytes: Option<f64>,
    pub(super) cache_bytes: u64,
    pub(super) capacity_bytes: u64,
    /// Requests a second of the last [`CURVE_SECONDS`], the latest at the end.
    pub(super) curve: Vec<Option<f64>>,
    /// In the order of their names.
    pub(super) collections: Vec<Collection>,
    /// Refusals a second by reason, without those of zero.
    pub(super) refusals: Vec<(String, f64)>,
}

impl Numbers {
    /// Returns the share of lookups answered from memory.
    pub(super) fn hit_ratio(&self) -> Option<f64> {
        ratio(self.lookups_memory, self.lookups_database)
    }
}

/// Returns the share of `part` in both together; `None` without any.
pub(super) fn ratio(part: Option<f64>, rest: Option<f64>) -> Option<f64> {
    let (part, rest) = (part?, rest?);
    (part + rest > 0.0).then(|| part / (part + rest))
}

/// A connection's parameters, and what the instance has sent so far.
pub(super) struct Instance {
    url: Url,
    headers: Vec<(String, String)>,
    tls: Option<Tls>,
    timeout: Duration,
    /// Number of the next sample, and start of the process that counts so.
    next: u64,
    started_unix_ms: u64,
    /// Last seconds of every series that is used.
    series: BTreeMap<String, VecDeque<Option<f64>>>,
}

impl Instance {
    pub(super) fn new(
        url: Url,
        headers: Vec<(String, String)>,
        tls: Option<Tls>,
        timeout: Duration,
    ) -> Self {
        let series = BTreeMap::new();
        Self { url, headers, tls, timeout, next: 0, started_unix_ms: 0, series }
    }

    /// Asks for the samples since the last call, for the present state, and for hot keys.
    ///
    /// # Errors
    /// Fails without an answer of an instance that has a sample.
    pub(super) fn report(&mut self, with_keys: bool) -> Result<Numbers, NoReport> {
        let history = self.get(&format!("history?since={}", self.next))?;
        let history: HistoryAnswer = serde_json::from_slice(&history)?;
        let status: StatusAnswer = serde_json::from_slice(&self.get("status")?)?;
        self.add(history);
        let mut found = numbers(&self.series, status)?;
        if with_keys {
            let mut keys: Value = serde_json::from_slice(&self.get("hot-keys")?)?;
            for own in &mut found.collections {
                let found = keys.get_mut("collections").and_then(|all| all.get_mut(&own.name));
                let keys = found.and_then(|own| own.get_mut("keys")).map(Value::take);
                own.keys = Option::deserialize(keys.unwrap_or_default())?.unwrap_or_default();
            }
        }
        Ok(found)
    }

    fn add(&mut self, history: HistoryAnswer) {
        if history.started_unix_ms != self.started_unix_ms {
            self.series.clear();
        }
        self.started_unix_ms = history.started_unix_ms;
        self.next = history.next;
        let collections = history.collections.into_iter().flat_map(|(name, own)| {
            let (memory, database) = (own.memory, own.database);
            [
                (format!("{MEMORY_PREFIX}{name}"), memory),
                (format!("{DATABASE_PREFIX}{name}"), database),
            ]
        });
        for (name, values) in history.series.into_iter().chain(collections) {
            let kept = self.series.entry(name).or_default();
            let skipped = values.len().saturating_sub(CURVE_SECONDS);
            kept.extend(values.into_iter().skip(skipped));
            let excess = kept.len().saturating_sub(CURVE_SECONDS);
            kept.drain(..excess);
        }
    }

    fn get(&self, name: &str) -> Result<Vec<u8>, NoReport> {
        let base = self.url.path.trim_end_matches('/');
        let path = format!("{base}/{name}");
        let request = fetch::get(&path, &self.url.host_header(), &self.headers)?;
        let request = Request { bytes: &request, answer_has_body: true };
        let address = self.url.resolve(self.timeout)?;
        let response =
            fetch::fetch(&address, self.tls.as_ref(), request, self.timeout, BODY_BYTES_MAX)?;
        match response.status {
            200 => Ok(response.body),
            401 => Err(NoReport::TokenNeeded),
            404 => Err(NoReport::NotHotrow),
            status => {
                let text = response.text();
                let line = text.chars().map(|c| if c.is_control() { ' ' } else { c });
                Err(NoReport::Status { status, body: line.take(SHOWN_CHARS_MAX).collect() })
            }
        }
    }
}

fn numbers(
    series: &BTreeMap<String, VecDeque<Option<f64>>>,
    status: StatusAnswer,
) -> Result<Numbers, NoReport> {
    let last = |name: &str| series.get(name).and_then(|values| *values.back()?);
    let seconds = series.get(REQUESTS[0]).map_or(0, VecDeque::len);
    if seconds == 0 {
        return Err(NoReport::NoSample);
    }
    let requests_at = |second: usize| {
        let at = |name: &&str| *series.get(*name)?.get(second)?;
        REQUESTS.iter().map(at).sum::<Option<f64>>()
    };
    let curve: Vec<Option<f64>> = (0..seconds).map(requests_at).collect();
    let reasons = series.keys().filter_map(|name| name.strip_prefix(REFUSED_PREFIX));
    let reasons = reasons.map(|reason| (reason, last(&format!("{REFUSED_PREFIX}{reason}"))));
    let refused = reasons.clone().map(|(_, rate)| rate).sum::<Option<f64>>();
    let shown = reasons.filter_map(|(reason, rate)| Some((reason.replace('_', " "), rate?)));
    let refusals = shown.filter(|(_, rate)| *rate > 0.0).collect();
    let mut unmet = status.readiness.unmet;
    if !status.readiness.ready && unmet.is_empty() {
        unmet.push("unknown".to_owned());
    }
    Ok(Numbers {
        version: status.version,
        uptime_s: status.uptime_s,
        unmet,
        requests: curve.last().copied().flatten(),
        lookups_memory: last("lookups.memory"),
        lookups_database: last("lookups.database"),
        p99_us: last("latency.all_p99_us"),
        staleness_ms: last("feed.staleness_ms"),
        queries: last("database.queries"),
        refused,
        errors: last("status.5xx"),
        connections: last("connections.open"),
        cpu_cores: last("process.cpu_cores"),
        memory_bytes: last("process.memory_bytes"),
        cache_bytes: status.cache.bytes,
        capacity_bytes: status.cache.capacity_bytes,
        curve,
        collections: collections(series),
        refusals,
    })
}

fn collections(series: &BTreeMap<String, VecDeque<Option<f64>>>) -> Vec<Collection> {
    let values = |name: String| series.get(&name).into_iter().flatten().copied().collect();
    let named = series.keys().filter_map(|name| name.strip_prefix(MEMORY_PREFIX));
    named
        .map(|name| Collection {
            name: name.to_owned(),
            memory: values(format!("{MEMORY_PREFIX}{name}")),
            database: values(format!("{DATABASE_PREFIX}{name}")),
            keys: Vec::new(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance() -> Instance {
        let url = Url::parse("http://127.0.0.1:1/").expect("a URL");
        Instance::new(url, Vec::new(), None, Duration::from_secs(1))
    }

    fn answer(started: u64, next: u64, hits: &[Option<f64>]) -> HistoryAnswer {
        let zeros = vec![Some(0.0); hits.len()];
        let series = REQUESTS.iter().map(|name| ((*name).to_owned(), zeros.clone()));
        let mut series: BTreeMap<_, _> = series.collect();
        series.insert("requests.hit".to_owned(), hits.to_vec());
        series.insert("refused.shed".to_owned(), vec![Some(2.0); hits.len()]);
        series.insert("refused.access".to_owned(), vec![Some(1.5); hits.len()]);
        series.insert("lookups.memory".to_owned(), vec![Some(3.0); hits.len()]);
        series.insert("lookups.database".to_owned(), vec![Some(1.0); hits.len()]);
        let own = CollectionAnswer { memory: hits.to_vec(), database: vec![None; hits.len()] };
        let collections = [("products".to_owned(), own)].into();
        HistoryAnswer { started_unix_ms: started, next, series, collections }
    }

    fn status() -> StatusAnswer {
        let text = r#"{"version":"1","uptime_s":5,"readiness":{"ready":false,"unmet":["feed"]},
            "cache":{"bytes":10,"capacity_bytes":100},"more":1}"#;
        serde_json::from_str(text).expect("a status")
    }

    #[test]
    fn numbers_are_those_of_the_last_second() {
        let mut instance = instance();
        assert!(matches!(numbers(&instance.series, status()), Err(NoReport::NoSample)));
        instance.add(answer(7, 2, &[Some(10.0), Some(20.0)]));
        instance.add(answer(7, 3, &[Some(30.0)]));
        let found = numbers(&instance.series, status()).expect("numbers");
        assert_eq!(found.curve, [Some(10.0), Some(20.0), Some(30.0)]);
        assert_eq!((found.requests, found.refused), (Some(30.0), Some(3.5)));
        assert_eq!((found.hit_ratio(), found.unmet.as_slice()), (Some(0.75), &["feed".into()][..]));
        assert_eq!((found.p99_us, instance.next), (None, 3));
        let [products] = found.collections.as_slice() else { panic!("{:?}", found.collections) };
        assert_eq!((products.name.as_str(), &products.memory), ("products", &found.curve));
        assert_eq!(products.database, [None; 3]);
        assert_eq!(found.refusals, [("access".to_owned(), 1.5), ("shed".to_owned(), 2.0)]);
    }

    #[test]
    fn a_restart_and_a_long_history_leave_the_last_minute() {
        let mut instance = instance();
        instance.add(answer(7, 600, &vec![Some(1.0); 600]));
        let curve = |instance: &Instance| numbers(&instance.series, status()).map(|n| n.curve);
        assert_eq!(curve(&instance).expect("numbers"), vec![Some(1.0); CURVE_SECONDS]);
        instance.add(answer(7, 601, &[Some(2.0)]));
        let kept = curve(&instance).expect("numbers");
        assert_eq!((kept.len(), kept.last()), (CURVE_SECONDS, Some(&Some(2.0))));
        instance.add(answer(8, 1, &[Some(5.0)]));
        assert_eq!(curve(&instance).expect("numbers"), [Some(5.0)]);
    }

    #[test]
    fn a_missing_value_is_unknown_and_not_zero() {
        assert_eq!(ratio(Some(0.0), Some(0.0)), None);
        assert_eq!(ratio(Some(1.0), None), None);
        let mut instance = instance();
        instance.add(answer(7, 1, &[None]));
        assert_eq!(numbers(&instance.series, status()).expect("numbers").requests, None);
    }
}
