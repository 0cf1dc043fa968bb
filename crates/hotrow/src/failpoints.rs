//! Failpoints: faults that a test requests in the variable `HOTROW_FAILPOINTS`, separated by
//! commas.
//! They exist only in builds with the feature `failpoints`. Libraries get plain values, never the
//! variable.
//!
//! | failpoint | effect |
//! |---|---|
//! | `lease`, `fence`, `join`, `epoch`, `probe` | disables the safeguard of that name |
//! | `copy-RULE`, `follow-RULE` | disables a rule of client-side caching, or of followers |
//! | `hub:RULE` | disables a rule of the change hub (`hotrow_hub::rules`), in this process |
//! | `resume:RULE` | disables a rule of a relay's place (`hotrow_source_mysql::resume_rules`) |
//! | `embed:RULE` | disables a rule of embedded rows (`hotrow_source_mysql::embedded_rules`) |
//! | `panic:THREAD` | the next iteration of that thread's loop panics, once |
//! | `panic-always:THREAD` | every iteration of that thread's loop panics |
//! | `…:THREAD@FILE` | the same, once that file exists |
//! | `read-gate:COLLECTION/ID=FILE` | a query for this record waits for a shared lock on the file |
//! | `read-delay:COLLECTION=DURATION` | a query takes that much longer for each of its keys |

pub mod reads;

use hotrow_cache::Safeguard;
use hotrow_supervisor::{PanicMode, PanicPoint};

use self::reads::ReadFailpoint;

/// Environment variable that names the failpoints.
pub const VARIABLE: &str = "HOTROW_FAILPOINTS";

const SAFEGUARDS: [(&str, Safeguard); 15] = [
    ("lease", Safeguard::Lease),
    ("fence", Safeguard::Fence),
    ("join", Safeguard::Join),
    ("epoch", Safeguard::Epoch),
    ("probe", Safeguard::Probe),
    ("copy-interest", Safeguard::CopyInterest),
    ("copy-order", Safeguard::CopyOrder),
    ("copy-fence", Safeguard::CopyFence),
    ("copy-spelling", Safeguard::CopySpelling),
    ("copy-beginning", Safeguard::CopyBeginning),
    ("follow-proof", Safeguard::FollowProof),
    ("follow-last-id", Safeguard::FollowLastId),
    ("follow-rest", Safeguard::FollowRest),
    ("follow-beginning", Safeguard::FollowBeginning),
    ("follow-replay", Safeguard::FollowReplay),
];

/// Requested faults.
#[derive(Debug, Default)]
pub struct Failpoints {
    /// Safeguards to disable.
    pub safeguards: Vec<Safeguard>,
    /// Rules of the hub to disable.
    #[cfg(feature = "hub")]
    pub rules: Vec<hotrow_hub_nats::config::Rule>,
    /// Rules of a resumed feed to disable.
    #[cfg(feature = "mysql")]
    pub resume_rules: Vec<hotrow_source_mysql::resume_rules::ResumeRule>,
    /// Rules of embedded rows to disable.
    #[cfg(feature = "mysql")]
    pub embedded_rules: Vec<hotrow_source_mysql::embedded_rules::EmbeddedRule>,
    /// Threads to panic.
    pub panic_points: Vec<PanicPoint>,
    /// Queries to hold or delay.
    pub reads: Vec<ReadFailpoint>,
}

/// Name that matches no failpoint.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{VARIABLE}: there is no failpoint `{0}`; see crates/hotrow/src/failpoints.rs")]
pub struct UnknownFailpoint(String);

impl Failpoints {
    /// Reads the failpoints of the environment.
    ///
    /// # Errors
    /// Fails if the environment names a failpoint that does not exist.
    pub fn from_environment() -> Result<Self, UnknownFailpoint> {
        Self::parse(&std::env::var(VARIABLE).unwrap_or_default())
    }

    /// Parses a list of failpoints.
    ///
    /// # Errors
    /// Fails if the list names a failpoint that does not exist.
    pub fn parse(list: &str) -> Result<Self, UnknownFailpoint> {
        let mut failpoints = Self::default();
        for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            failpoints.add(name)?;
        }
        Ok(failpoints)
    }

    fn add(&mut self, failpoint: &str) -> Result<(), UnknownFailpoint> {
        if let Some((_, safeguard)) = SAFEGUARDS.iter().find(|(name, _)| *name == failpoint) {
            self.safeguards.push(*safeguard);
            return Ok(());
        }
        #[cfg(feature = "hub")]
        if let Some(name) = failpoint.strip_prefix("hub:")
            && let Some(rule) = hotrow_hub_nats::config::Rule::named(name)
        {
            self.rules.push(rule);
            return Ok(());
        }
        #[cfg(feature = "mysql")]
        if let Some(name) = failpoint.strip_prefix("resume:")
            && let Some(rule) = hotrow_source_mysql::resume_rules::ResumeRule::named(name)
        {
            self.resume_rules.push(rule);
            return Ok(());
        }
        #[cfg(feature = "mysql")]
        if let Some(name) = failpoint.strip_prefix("embed:")
            && let Some(rule) = hotrow_source_mysql::embedded_rules::EmbeddedRule::named(name)
        {
            self.embedded_rules.push(rule);
            return Ok(());
        }
        if let Some(read) = ReadFailpoint::parse(failpoint) {
            self.reads.push(read);
            return Ok(());
        }
        let unknown = || UnknownFailpoint(failpoint.to_owned());
        let (kind, thread) = failpoint.split_once(':').ok_or_else(unknown)?;
        let mode = match kind {
            "panic" => PanicMode::Once,
            "panic-always" => PanicMode::Always,
            _ => return Err(unknown()),
        };
        self.panic_points.push(match thread.split_once('@') {
            None => PanicPoint::new(thread, mode),
            Some((thread, file)) => PanicPoint::new(thread, mode).when_exists(file.into()),
        });
        Ok(())
    }

    /// Returns the rules of the hub that are in force.
    #[cfg(feature = "hub")]
    pub fn rules_in_force(&self) -> hotrow_hub_nats::config::Rules {
        // Once per process.
        hotrow_hub_nats::config::Rules::without(self.rules.clone().leak())
    }

    /// Returns the rules of a resumed feed that are in force.
    #[cfg(feature = "mysql")]
    pub fn resume_rules_in_force(&self) -> hotrow_source_mysql::resume_rules::ResumeRules {
        // Once per process.
        hotrow_source_mysql::resume_rules::ResumeRules::without(self.resume_rules.clone().leak())
    }

    /// Returns the rules of embedded rows that are in force.
    #[cfg(feature = "mysql")]
    pub fn embedded_rules_in_force(&self) -> hotrow_source_mysql::embedded_rules::EmbeddedRules {
        // Once per source.
        let disabled = self.embedded_rules.clone().leak();
        hotrow_source_mysql::embedded_rules::EmbeddedRules::without(disabled)
    }

    /// Returns whether a safeguard is disabled.
    pub fn disables(&self, safeguard: Safeguard) -> bool {
        self.safeguards.contains(&safeguard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_parsed_and_unknown_names_are_refused() {
        let read =
            Failpoints::parse("lease, probe,panic:feed,panic-always:http-0,read-delay:slow=5ms")
                .unwrap();
        assert_eq!(read.safeguards, [Safeguard::Lease, Safeguard::Probe]);
        assert_eq!((read.panic_points.len(), read.reads.len()), (2, 1));
        assert!(read.disables(Safeguard::Probe) && !read.disables(Safeguard::Fence));
        #[cfg(feature = "hub")]
        assert_eq!(Failpoints::parse("hub:Hidden").unwrap().rules.len(), 1);
        #[cfg(feature = "mysql")]
        assert_eq!(Failpoints::parse("resume:SameCommit").unwrap().resume_rules.len(), 1);
        #[cfg(feature = "mysql")]
        assert_eq!(Failpoints::parse("embed:OldParent").unwrap().embedded_rules.len(), 1);
        assert!(Failpoints::parse("").unwrap().safeguards.is_empty());
        for unknown in [
            "leases",
            "panic",
            "panics:feed",
            "hub:hid",
            "resume:",
            "embed:",
            "read-gate",
            "read-delay:slow=5",
        ] {
            let error = Failpoints::parse(&format!("lease,{unknown}")).unwrap_err();
            assert_eq!(error, UnknownFailpoint(unknown.to_owned()));
        }
    }
}
