//! Note of a run whose ids an earlier run requested: equal seeds draw equal ids in the same order,
//! so a cache that was filled by the first run makes the second one faster.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use super::args::LoadArgs;

/// Time after which a cache is no longer expected to be warm, and a run is forgotten.
const WARM_S: u64 = 24 * 3600;
/// Most runs that are kept; beyond them any is forgotten.
const RUNS_MAX: usize = 1_000;
/// File beside the calibrations, with a hash of each run: URLs may have secrets.
const FILE: &str = "runs.json";

/// Returns the note, and saves this run. Without `calibration`, a file of the cache folder, and
/// where that cannot be written, no later run is noted.
pub(super) fn note(
    args: &LoadArgs,
    url: &str,
    calibration: Option<&Path>,
    now_unix_s: u64,
) -> Option<String> {
    let target = &args.target;
    if target.ids.is_none() && target.ids_file.is_none() {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    let ids = format!("{:?} {:?} {:?}", target.ids, target.ids_file, target.distribution);
    (url, ids, target.seed).hash(&mut hasher);
    let file = calibration?.with_file_name(FILE);
    let read = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let mut runs: BTreeMap<String, u64> = read.unwrap_or_default();
    let before = runs.insert(format!("{:016x}", hasher.finish()), now_unix_s);
    runs.retain(|_, at| now_unix_s.saturating_sub(*at) < WARM_S);
    if runs.len() > RUNS_MAX {
        runs.pop_first();
    }
    // Plain data serializes. Without a cache folder the next run has no note.
    let text = serde_json::to_string(&runs).ok()?;
    let _ = file.parent().map(std::fs::create_dir);
    let _ = hotrow_report::file::replace(&file, &text);
    let ago_s = now_unix_s.saturating_sub(before?);
    let ago = match ago_s {
        0..120 => format!("{ago_s} s"),
        120..7_200 => format!("{} min", ago_s / 60),
        _ => format!("{} h", ago_s / 3_600),
    };
    (ago_s < WARM_S).then(|| {
        format!(
            "a run with seed {} requested the same ids {ago} ago, so a cache may be warm: its \
             first requests measure hits. Another --seed draws other ids.",
            target.seed
        )
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::MeasureCommand;
    use crate::cli::tests::Cli;

    #[test]
    fn the_same_ids_within_a_day_are_noted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hotrow/calibration.json");
        let noted = |words: &[&str], at: u64| {
            let words = ["hotrow", "load", "http://a/{id}"].iter().chain(words);
            let MeasureCommand::Load(args) = Cli::try_parse_from(words).unwrap().command else {
                unreachable!("it is load")
            };
            note(&args, "http://a/{id}", Some(&file), at)
        };
        assert_eq!(noted(&["--ids", "1..9"], 1_000), None);
        let again = noted(&["--ids", "1..9"], 1_300).unwrap();
        assert!(again.starts_with("a run with seed 1 requested the same ids 5 min ago"), "{again}");
        assert_eq!(noted(&["--ids", "1..9", "--seed", "2"], 1_301), None);
        assert_eq!(noted(&["--ids", "1..8"], 1_302), None);
        assert_eq!(noted(&["--ids", "1..9"], 1_300 + WARM_S), None, "it is too long ago");
        assert_eq!((noted(&[], 1), noted(&[], 2)), (None, None), "one URL is always warm");
    }
}
