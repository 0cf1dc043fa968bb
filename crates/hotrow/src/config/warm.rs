//! `[warm]`: reads of hot records after a start.
//!
//! Reference `configuration`: `[warm]`
//!
//! [Warm start](production.md#warm-start).
//!
//! - `file`: File of hot keys, mode 0600.
//! - `interval`: Time between two files.
//! - `max_age`: Age from which a file is not used.
//! - `file_bytes`: Size of the file: about 10 bytes a key.
//! - `time_limit`: The reads end at the latest.
//! - `before_ready`: Not [ready](rollout.md#when-an-instance-is-ready) before they have ended.

use std::path::PathBuf;
use std::time::Duration;

use hotrow_config::WarmStart;

use super::problem::shown;
use super::reader::Section;
use super::units::{KIB, MIB, YEAR, s};

/// Reads the section; `None` without a file.
pub(super) fn warm(mut section: Section<'_>) -> Option<WarmStart> {
    let file = section.text("file", "none", "an absolute path").map(|text| text.value);
    let interval = section.duration("interval", s(60), s(1)..=Duration::from_hours(24));
    let age_max = section.duration("max_age", Duration::from_hours(7 * 24), s(1)..=YEAR);
    let file_bytes_max = section.size("file_bytes", 16 * MIB, 4 * KIB..=1 << 30);
    let time_limit =
        section.duration("time_limit", Duration::from_mins(10), s(1)..=Duration::from_hours(24));
    let before_ready = section.flag("before_ready", false);
    let others = ["interval", "max_age", "file_bytes", "time_limit", "before_ready"];
    let Some(file) = file.map(PathBuf::from) else {
        for name in others.into_iter().filter(|name| section.has(name)) {
            section.refuse(name, "has no meaning without warm.file; name the file of hot keys");
        }
        section.finish();
        return None;
    };
    if !file.is_absolute() || file.file_name().is_none() {
        let what = "must be an absolute path such as \"/var/lib/hotrow/hot-keys\", not";
        section.refuse("file", format!("{what} {}", shown(&file.to_string_lossy())));
    }
    section.finish();
    Some(WarmStart { file, file_bytes_max, interval, age_max, time_limit, before_ready })
}

#[cfg(test)]
mod tests {
    use crate::config::{Overrides, parse};

    use super::*;

    fn resolved(section: &str) -> Result<Option<WarmStart>, String> {
        let text = format!(
            "[source]\nurl = \"sqlite:/tmp/shop.db\"\n[collections.products]\n[warm]\n{section}"
        );
        parse(&text, "hotrow.toml", &|_| Err(std::env::VarError::NotPresent), &Overrides::default())
            .map(|resolved| resolved.server.warm_start)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_is_needed_and_has_an_absolute_path() {
        assert!(resolved("").unwrap().is_none());
        let warm = resolved("file = \"/var/lib/hotrow/hot-keys\"").unwrap().unwrap();
        assert_eq!(warm.age_max, Duration::from_hours(168));
        assert_eq!(warm.file_bytes_max, 16 << 20);
        for (bad, rule) in [
            ("file = \"hot-keys\"", "must be an absolute path"),
            ("file = \"/\"", "must be an absolute path"),
            ("interval = \"10s\"", "has no meaning without warm.file"),
            ("max_age = \"10d\"", "has no meaning without warm.file"),
            ("file = \"/x\"\nfile_bytes = \"1KiB\"", "warm.file_bytes"),
            ("file = \"/x\"\ninterval = \"1ms\"", "warm.interval"),
        ] {
            let error = resolved(bad).unwrap_err();
            assert!(error.contains(rule), "{error}");
        }
    }
}
