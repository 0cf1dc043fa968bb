use std::ffi::OsString;
use std::time::Duration;

use super::*;

fn entry(kernel: &str) -> Entry {
    let machine =
        Machine { cpu_model: "x".to_owned(), kernel: kernel.to_owned(), program: "1".to_owned() };
    let speed = LoopSpeed { answers_per_s: 90_000.0, cpu_us_per_request: 8.0 };
    let found = Calibration { threads: 1, connections: 50, closed: speed, open: speed };
    Entry::new(&found, machine, SystemTime::UNIX_EPOCH)
}

#[test]
fn dates_are_those_of_the_calendar() {
    for (days, expected) in [
        (0, "1970-01-01"),
        (58, "1970-02-28"),
        (59, "1970-03-01"),
        (789, "1972-02-29"),
        (11_016, "2000-02-29"),
        (11_017, "2000-03-01"),
        (20_453, "2025-12-31"),
        (20_778, "2026-11-21"),
        (47_540, "2100-02-28"),
        (47_541, "2100-03-01"),
    ] {
        assert_eq!(
            date(SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400 + 86_399)),
            expected,
            "{days}"
        );
    }
}

#[test]
fn calibrations_are_saved_per_machine_and_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("not/yet/calibration.json");
    assert_eq!(find(&file, &entry("0").machine), None);
    for n in 0..ENTRIES_MAX + 4 {
        save(&file, &entry(&n.to_string())).unwrap();
    }
    let mut again = entry("7");
    again.threads = 9;
    save(&file, &again).unwrap();
    assert_eq!(read(&file).len(), ENTRIES_MAX);
    assert_eq!(
        (find(&file, &entry("3").machine), find(&file, &again.machine)),
        (None, Some(again))
    );
    assert!(fs::metadata(&file).unwrap().len() <= FILE_BYTES_MAX / 4);
    assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "no draft is left");
}

#[test]
fn a_foreign_file_has_no_calibration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("calibration.json");
    for text in [
        "",
        "[]",
        "{\"schema\":\"hotrow.calibrations/0\",\"entries\":[]}",
        "\u{0}",
        &" ".repeat(70_000),
    ] {
        fs::write(&file, text).unwrap();
        assert_eq!(find(&file, &entry("0").machine), None);
    }
    save(&file, &entry("0")).unwrap();
    assert_eq!(find(&file, &entry("0").machine), Some(entry("0")));
    assert!(save(Path::new("/proc/nowhere/calibration.json"), &entry("0")).is_err());
}

#[test]
fn the_file_is_where_the_specification_says() {
    let with = |pairs: &'static [(&str, &str)]| {
        file(move |name| {
            pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
        })
    };
    assert_eq!(
        with(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]),
        Some("/c/hotrow/calibration.json".into())
    );
    assert_eq!(
        with(&[("XDG_CACHE_HOME", ""), ("HOME", "/h")]),
        Some("/h/.cache/hotrow/calibration.json".into())
    );
    assert_eq!(with(&[("XDG_CACHE_HOME", "relative"), ("HOME", "")]), None);
    assert_eq!(with(&[]), None);
}

#[test]
fn it_is_printed_as_text_and_json() {
    let entry = entry("k");
    assert!(
        entry.text().contains("125,000 requests/s")
            && entry.text().contains("shared the machine's cores")
    );
    let json: serde_json::Value = serde_json::from_str(&entry.json()).unwrap();
    assert_eq!(json["schema"], SCHEMA);
    assert_eq!(json["closed"]["ceiling_rps_per_thread"], 125_000.0);
    assert_eq!(json["kernel"], "k");
}
