//! `[access_log]`: a line for each request that is failed, slow or sampled.
//!
//! Reference `configuration`: `[access_log]`
//!
//! [A line for each request](logs.md#access-log) that is failed, slow or in the sample. Off without
//! `output`.
//!
//! - `output`: File to append to, or an output of the process.
//! - `sample`: Share of the other requests that have a line.
//! - `slow`: Slower requests always have a line.
//! - `ids`: `false`: without the path, so without ids, which may be personal.

use std::path::PathBuf;
use std::time::Duration;

use hotrow_config::observability::{AccessLog, AccessLogOutput};

use super::problem::shown;
use super::reader::Section;
use super::units::ms;

/// Reads the section; `None` without an output.
pub(super) fn access_log(mut section: Section<'_>) -> Option<AccessLog> {
    const RANGE: &str = "an absolute path, \"stdout\" or \"stderr\"";
    let output = section.text("output", "none", RANGE).map(|text| text.value);
    let sample = section.share("sample", 0.01, 0.0..=1.0);
    let slow = section.duration("slow", ms(100), ms(1)..=Duration::from_hours(1));
    let has_ids = section.flag("ids", true);
    let Some(output) = output else {
        for name in ["sample", "slow", "ids"].into_iter().filter(|name| section.has(name)) {
            let what = "has no meaning without access_log.output; name a file or \"stdout\"";
            section.refuse(name, what);
        }
        section.finish();
        return None;
    };
    let output = match output.as_str() {
        "stdout" => AccessLogOutput::Stdout,
        "stderr" => AccessLogOutput::Stderr,
        path => AccessLogOutput::File(file(&section, path)),
    };
    section.finish();
    Some(AccessLog { output, sample, slow, has_ids })
}

fn file(section: &Section<'_>, path: &str) -> PathBuf {
    let file = PathBuf::from(path);
    if !file.is_absolute() || file.file_name().is_none() {
        let what = "must be \"stdout\", \"stderr\" or an absolute path such as \
                    \"/var/log/hotrow/access.log\", not";
        section.refuse("output", format!("{what} {}", shown(path)));
    }
    file
}

#[cfg(test)]
mod tests {
    use crate::config::{Overrides, parse};

    use super::*;

    fn resolved(section: &str) -> Result<Option<AccessLog>, String> {
        let text = format!(
            "[source]\nurl = \"sqlite:/tmp/shop.db\"\n[collections.products]\n[access_log]\n\
             {section}"
        );
        parse(&text, "hotrow.toml", &|_| Err(std::env::VarError::NotPresent), &Overrides::default())
            .map(|resolved| resolved.server.observability.access_log)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_output_turns_it_on() {
        assert!(resolved("").unwrap().is_none());
        let log = resolved("output = \"stdout\"").unwrap().unwrap();
        assert_eq!(log.output, AccessLogOutput::Stdout);
        assert_eq!((log.sample, log.slow, log.has_ids), (0.01, ms(100), true));
        let log = resolved("output = \"/var/log/a.log\"\nsample = 1\nids = false").unwrap();
        let log = log.unwrap();
        assert_eq!(log.output, AccessLogOutput::File("/var/log/a.log".into()));
        assert_eq!((log.sample, log.has_ids), (1.0, false));
        for (bad, rule) in [
            ("output = \"access.log\"", "must be \"stdout\", \"stderr\" or an absolute path"),
            ("output = \"/\"", "an absolute path"),
            ("sample = 0.5", "has no meaning without access_log.output"),
            ("ids = false", "has no meaning without access_log.output"),
            ("output = \"stdout\"\nsample = 2", "access_log.sample"),
            ("output = \"stdout\"\nslow = \"0s\"", "access_log.slow"),
        ] {
            let error = resolved(bad).unwrap_err();
            assert!(error.contains(rule), "{error}");
        }
    }
}
