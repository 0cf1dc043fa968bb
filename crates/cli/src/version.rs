//! The version of the programs, with the commit that they were built from.
//!
//! `scripts/dist` sets `HOTROW_COMMIT` for the compiler, and `git archive` fills `commit.txt`. A
//! build of a work tree has neither: asking git would compile the programs again at every commit.

/// The commit in an archive; in a work tree the placeholder of `git archive`.
const ARCHIVED: &str = include_str!("commit.txt");

/// Returns the commit that this program was built from, if the build had it.
pub fn commit() -> Option<&'static str> {
    known(option_env!("HOTROW_COMMIT"), ARCHIVED)
}

/// Variable by which `hotrow` names itself to the `hotrow-lab` that it starts.
pub const STARTED_BY: &str = "HOTROW_STARTED_BY";

/// Returns version and commit: programs with equal ones belong together.
pub fn identity() -> String {
    format!("{} {}", env!("CARGO_PKG_VERSION"), commit().unwrap_or("unknown"))
}

/// Checks that the program which has started this one belongs to it.
///
/// # Errors
/// Returns the refusal.
pub fn check_started_by() -> Result<(), String> {
    let Ok(starter) = std::env::var(STARTED_BY) else { return Ok(()) };
    let own = identity();
    if starter == own {
        return Ok(());
    }
    Err(format!(
        "this is hotrow-lab {own}, and hotrow {starter} has started it; install both of one version"
    ))
}

/// Returns the version for `--version`: the number, the commit and the features.
pub fn long(number: &str, features: &[&str]) -> String {
    let commit = commit().unwrap_or("unknown (not built by scripts/dist)");
    let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
    format!("{number}\ncommit: {commit}\nfeatures: {features}")
}

fn known(built: Option<&'static str>, archived: &'static str) -> Option<&'static str> {
    let archived = archived.trim();
    let archived = Some(archived).filter(|text| !text.starts_with('$'));
    built.filter(|text| !text.is_empty()).or(archived)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_outranks_the_archive_and_a_placeholder_is_no_commit() {
        assert_eq!(known(None, "$Format:%H$\n"), None);
        assert_eq!(known(Some(""), "$Format:%H$\n"), None);
        assert_eq!(known(None, "0123abc\n"), Some("0123abc"));
        assert_eq!(known(Some("4567def"), "0123abc\n"), Some("4567def"));
    }

    #[test]
    fn the_version_names_number_commit_and_features() {
        let text = long("1.2.3", &["mysql", "postgres"]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], lines[2]), ("1.2.3", "features: mysql, postgres"));
        assert!(lines[1].starts_with("commit: ") && lines.len() == 3, "{text}");
        assert!(long("1", &[]).ends_with("features: none"));
    }
}
