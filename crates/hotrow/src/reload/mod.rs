//! Reload of the configuration: by SIGHUP, by `POST /reload`, and when its file changes.
//!
//! The file is checked as a whole, as `hotrow check` does. Then its keys are compared with those in
//! force (`document`). Those that do not change while running (`keys`) keep their values and are
//! named. What results is checked again, for the rules between keys must hold for what is in force,
//! and put in force as a whole.

mod document;
mod keys;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_server::reload::{Left, NO_FILE, ReloadRequest, ReloadResult, Reloads, Report, Trigger};
use hotrow_service::apply::Change;
use hotrow_service::in_force::InForce;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_supervisor::{self as supervisor, Supervisor};
use ring::digest;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use self::document::{Difference, Document};
use crate::config::{self, ConfigError, Overrides, Resolved};
use crate::fit;
use crate::granted_columns;
use crate::init::auto::{self, AutoError, Loaded};
use crate::logging;
use crate::service_manager;

/// Returns whether a key keeps its value until a restart. `path`: as the list of known keys has it.
pub fn needs_restart(path: &str) -> bool {
    keys::why_left(&path.split('.').collect::<Vec<_>>()).is_some()
}

/// Interval of looking at the file.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Most changed keys that one line of the log names.
const PATHS_LOGGED_MAX: usize = 20;

/// The file that a configuration comes from.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    /// Its path.
    pub path: PathBuf,
    /// Settings of the command line, which override it.
    pub overrides: Overrides,
    /// Its text, with all collections.
    pub text: String,
    /// SHA-256 of its text as it is.
    pub hash: String,
    /// Its collections, if they came from the database's catalogue. They stay: a reload adds none.
    pub collections: Option<String>,
}

/// The configuration in force, and what puts another one in force.
pub struct Reloader {
    path: PathBuf,
    overrides: Overrides,
    document: Document,
    /// See [`ConfigFile`].
    collections: Option<String>,
    /// Text of the file of grants.
    grants: Vec<u8>,
    watches_file: bool,
    in_force: Arc<InForce>,
    reloads: Arc<Reloads>,
    shutdown: Shutdown,
}

/// A file that is not put in force, with its problems, one a line.
struct Rejected(Vec<String>);

impl From<ConfigError> for Rejected {
    fn from(error: ConfigError) -> Self {
        Self(error.to_string().lines().map(str::to_owned).collect())
    }
}

impl From<AutoError> for Rejected {
    fn from(error: AutoError) -> Self {
        match error {
            AutoError::Config(error) => error.into(),
            AutoError::Catalogue { .. } => Self(vec![error.to_string()]),
        }
    }
}

impl Rejected {
    fn one(path: &Path, what: impl std::fmt::Display) -> Self {
        Self(vec![format!("{}: {what}", path.display())])
    }
}

/// Returns the SHA-256 of a file's text, in hexadecimal digits.
pub fn hash(text: &str) -> String {
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Reloader {
    /// Begins with the configuration of the start, which is in force. `resolved` is that of `file`.
    #[must_use]
    pub fn new(
        file: ConfigFile,
        resolved: &Resolved,
        in_force: Arc<InForce>,
        reloads: Arc<Reloads>,
        shutdown: Shutdown,
    ) -> Self {
        let ConfigFile { path, overrides, text, collections, .. } = file;
        Self {
            path,
            overrides,
            // It has been parsed before.
            document: Document::parse(&text).unwrap_or_default(),
            collections,
            grants: grants_of(resolved),
            watches_file: resolved.reload.watch_file,
            in_force,
            reloads,
            shutdown,
        }
    }

    /// Reloads once, and reports it to operators.
    pub fn reload(&mut self, trigger: Trigger) -> Arc<Report> {
        tracing::info!(trigger = trigger.label(), path = %self.path.display(), "reload requested");
        service_manager::reloading();
        let (report, hash) = match self.put_in_force() {
            Ok((report, hash)) => (report, Some(hash)),
            Err(Rejected(problems)) => {
                (Report { problems, ..Report::new(ReloadResult::Rejected) }, None)
            }
        };
        log(&report);
        let report = Arc::new(report);
        self.reloads.ended(trigger, Arc::clone(&report), hash, Nanos::now());
        service_manager::reloaded();
        report
    }

    fn put_in_force(&mut self) -> Result<(Report, String), Rejected> {
        let known = self.collections.as_deref();
        let Loaded { resolved: of_file, text, file_text, .. } =
            auto::load(&self.path, &self.overrides, known)?;
        config::check_files(&of_file, &self.path)?;
        let file = Document::parse(&text).map_err(|what| Rejected::one(&self.path, what))?;
        let difference = self.document.compare(&file);
        let grants_changed = grants_of(&of_file) != self.grants;
        let hash = hash(&file_text);
        let result = match (difference.applied.is_empty(), difference.left.is_empty()) {
            (true, _) if grants_changed => ReloadResult::Applied,
            (true, true) => ReloadResult::Unchanged,
            (true, false) => ReloadResult::RestartNeeded,
            (false, _) => ReloadResult::Applied,
        };
        let mut report = Report::new(result);
        if result == ReloadResult::Applied {
            self.apply(&difference, grants_changed, &mut report)?;
        }
        let Difference { next, applied, left } = difference;
        if result == ReloadResult::Applied {
            self.document = next;
        }
        report.applied.extend(applied);
        report.left = left;
        Ok((report, hash))
    }

    /// Puts what changes in force. Nothing has changed if this fails.
    fn apply(
        &mut self,
        difference: &Difference,
        grants_changed: bool,
        report: &mut Report,
    ) -> Result<(), Rejected> {
        let mut resolved = self.resolve(difference)?;
        for warning in &resolved.warnings {
            tracing::warn!("{warning}");
        }
        let before = self.in_force.config();
        fit::connections(&mut resolved).map_err(|error| Rejected::one(&self.path, error))?;
        fit::cache(&mut resolved, self.in_force.cached_bytes());
        let mut config = resolved.server.clone();
        // With the port that was taken, and as many workers as there are.
        config.data = before.data;
        config.workers = before.workers;
        for collection in &mut config.collections {
            let of = collection.alias.as_ref().map(|alias| &alias.of_name);
            let name = of.unwrap_or(&collection.name);
            collection.is_removed = difference.next.removed.contains(name);
        }
        granted_columns::check(&config, &self.in_force.sources())
            .map_err(|error| Rejected::one(&self.path, error))?;
        // A rule's number of its rate class is part of a role.
        let access_changed = grants_changed || difference.touches(&["access", "limits.rate"]);
        let change = Change {
            config,
            cache: resolved.cache.settings(),
            policies: resolved.collections.clone(),
            capacity_bytes: resolved.cache.capacity_bytes,
            access_changed,
        };
        let applied = self
            .in_force
            .apply(change, &self.shutdown)
            .map_err(|error| Rejected::one(&self.path, error))?;
        if difference.touches(&["log"]) {
            logging::set_level(resolved.log.level);
        }
        if grants_changed {
            report.applied.push("the file that access.grants_file names".to_owned());
        }
        self.grants = grants_of(&resolved);
        self.watches_file = resolved.reload.watch_file;
        report.rate_rules = applied.rate_rules;
        report.pending = applied.everywhere.err().map(|error| error.to_string());
        Ok(())
    }

    /// Checks what will be in force: the rules between keys hold for that, too.
    fn resolve(&self, difference: &Difference) -> Result<Resolved, Rejected> {
        let file = self.path.display().to_string();
        let text = difference.next.text().map_err(|what| Rejected::one(&self.path, what))?;
        let resolved = config::parse(&text, &file, &|name| std::env::var(name), &self.overrides)
            .and_then(|resolved| config::with_grants(resolved, &self.path));
        resolved.map_err(|error| self.not_in_part(error, &difference.left))
    }

    /// Explains that a sound file does not fit what stays in force.
    fn not_in_part(&self, error: ConfigError, left: &[Left]) -> Rejected {
        let left: BTreeSet<&str> = left.iter().map(|left| left.path.as_str()).collect();
        let left = left.into_iter().collect::<Vec<_>>().join(", ");
        let mut problems = vec![format!(
            "{}: is sound, and cannot be put in force without a restart: it does not fit what \
             does not change while running ({left})",
            self.path.display()
        )];
        // Its lines are not those of the file.
        let without_lines = error
            .problems
            .into_iter()
            .map(|problem| format!("{}: {}: {}", self.path.display(), problem.path, problem.what));
        problems.extend(without_lines);
        Rejected(problems)
    }
}

fn grants_of(resolved: &Resolved) -> Vec<u8> {
    let file = resolved.server.access.as_ref().and_then(|access| access.grants_file.as_ref());
    file.map(|file| file.text.clone()).unwrap_or_default()
}

fn log(report: &Report) {
    for Left { path, reason } in &report.left {
        tracing::warn!(
            path,
            reason,
            "this cannot change while running; restart or hand over to apply it"
        );
    }
    for (rule, is_kept) in &report.rate_rules {
        match is_kept {
            true => tracing::info!(rule, "the rate limit stays as it was changed by request"),
            false => {
                tracing::warn!(rule, "the rate limit is as in the file; a change by request ends")
            }
        }
    }
    for problem in &report.problems {
        tracing::error!("{problem}");
    }
    let applied = first_of(&report.applied);
    match (report.result, &report.pending) {
        (ReloadResult::Rejected, _) => {
            tracing::error!("the configuration is rejected; the one before it stays in force");
        }
        (ReloadResult::Unchanged, _) => {
            tracing::info!("the configuration file says what is in force");
        }
        (ReloadResult::RestartNeeded, _) => {
            tracing::warn!(
                "nothing of the changed configuration can be put in force while running"
            );
        }
        (ReloadResult::Applied, None) => {
            tracing::info!(applied, "the changed configuration is in force");
        }
        (ReloadResult::Applied, Some(pending)) => {
            tracing::warn!(
                applied,
                pending,
                "the changed configuration is not in force everywhere"
            );
        }
    }
}

/// Returns the paths as one text, the first of them if they are many.
fn first_of(paths: &[String]) -> String {
    let shown = paths.iter().take(PATHS_LOGGED_MAX).map(String::as_str).collect::<Vec<_>>();
    let shown = shown.join(", ");
    match paths.len().saturating_sub(PATHS_LOGGED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// What makes the reloader work.
pub struct Triggers {
    /// Number of SIGHUPs so far.
    pub hangups: watch::Receiver<u64>,
    /// Requests of the admin side.
    pub requests: mpsc::Receiver<ReloadRequest>,
}

/// Starts the thread that reloads, one reload at a time, until everything must end.
///
/// # Errors
/// The thread cannot be started.
pub fn start(
    mut reloader: Reloader,
    mut triggers: Triggers,
    supervisor: &Supervisor,
) -> io::Result<()> {
    let shutdown = reloader.shutdown.clone();
    let mut watch = FileWatch::new(&reloader.path);
    let body = move |shutdown: &Shutdown| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        runtime.block_on(async {
            tokio::select! {
                () = shutdown.ending() => {}
                never = serve_triggers(&mut reloader, &mut triggers, &mut watch) => match never {},
            }
        });
        Ok(())
    };
    supervisor.spawn_until_end("reload", &shutdown, body)?;
    Ok(())
}

/// Starts the thread that logs each SIGHUP of a process without a configuration file.
///
/// # Errors
/// The thread cannot be started.
pub fn start_without_file(
    mut hangups: watch::Receiver<u64>,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<()> {
    let body = move |shutdown: &Shutdown| {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        runtime.block_on(async {
            loop {
                supervisor::turn();
                tokio::select! {
                    () = shutdown.ending() => return,
                    changed = hangups.changed() => match changed {
                        Ok(()) => tracing::warn!(trigger = Trigger::Signal.label(), "{NO_FILE}"),
                        // No signal comes any more.
                        Err(_) => return shutdown.ending().await,
                    },
                }
            }
        });
        Ok(())
    };
    supervisor.spawn_until_end("reload", shutdown, body)?;
    Ok(())
}

async fn serve_triggers(
    reloader: &mut Reloader,
    triggers: &mut Triggers,
    watch: &mut FileWatch,
) -> Infallible {
    loop {
        supervisor::turn();
        let trigger = tokio::select! {
            Ok(()) = triggers.hangups.changed() => Some((Trigger::Signal, None)),
            Some(request) = triggers.requests.recv() => {
                Some((request.trigger, Some(request.reply)))
            }
            () = sleep(LOOK_INTERVAL) => {
                let is_due = watch.is_due(&reloader.path) && reloader.watches_file;
                is_due.then_some((Trigger::File, None))
            }
        };
        let Some((trigger, reply)) = trigger else { continue };
        // Before the file is read: a later change is another reason.
        watch.taken(&reloader.path);
        let report = reloader.reload(trigger);
        if let Some(reply) = reply {
            // The client may be gone.
            _ = reply.send(report);
        }
    }
}

/// The file's state, by which a change is noticed.
struct FileWatch {
    taken: FileStamp,
    seen: FileStamp,
}

/// Device, inode, size, and seconds and nanoseconds of the last change; `None` without a file.
type FileStamp = Option<(u64, u64, u64, i64, i64)>;

impl FileWatch {
    fn new(path: &Path) -> Self {
        let now = stamp(path);
        Self { taken: now, seen: now }
    }

    fn taken(&mut self, path: &Path) {
        *self = Self::new(path);
    }

    /// Returns whether the file differs from the one that was read last, and has been still since
    /// the last look: one that is being written is not read.
    fn is_due(&mut self, path: &Path) -> bool {
        let now = stamp(path);
        let is_still = std::mem::replace(&mut self.seen, now) == now;
        is_still && now != self.taken
    }
}

fn stamp(path: &Path) -> FileStamp {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.size(), file.ctime(), file.ctime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_due_when_it_has_been_still_for_one_look() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hotrow.toml");
        std::fs::write(&path, "1").unwrap();
        let mut watch = FileWatch::new(&path);
        assert!(!watch.is_due(&path), "unchanged");
        std::fs::write(&path, "22").unwrap();
        assert!(!watch.is_due(&path), "just changed");
        assert!(watch.is_due(&path));
        watch.taken(&path);
        assert!(!watch.is_due(&path));
        std::fs::remove_file(&path).unwrap();
        assert!(!watch.is_due(&path) && watch.is_due(&path), "a missing file is a change");
    }

    #[test]
    fn the_hash_is_that_of_sha256sum() {
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash("abc"), digest);
    }
}
