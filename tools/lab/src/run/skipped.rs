//! Deployments and loads that cannot be measured here, because a variable or a program is missing.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::experiment::{Experiment, Planned};

/// Time limit of a command that tests for a program.
const COMMAND_WAIT: Duration = Duration::from_secs(60);
/// Polling interval for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Skipped deployments and loads, by index, each with the reason.
pub(super) struct Skipped {
    deployments: BTreeMap<usize, String>,
    loads: BTreeMap<usize, String>,
}

impl Skipped {
    /// Determines them. `is_set` tests a variable, `succeeds` a command.
    pub(super) fn of(
        experiment: &Experiment,
        is_set: &dyn Fn(&str) -> bool,
        succeeds: &dyn Fn(&[String]) -> bool,
    ) -> Self {
        let unset = |variable: &str| format!("the environment variable {variable} is not set");
        // Each service once, and only those that would be measured.
        let mut failing: BTreeMap<&String, Option<String>> = BTreeMap::new();
        let mut deployments = BTreeMap::new();
        for planned in &experiment.rows {
            let i = planned.deployment;
            let spec = &experiment.deployments[i];
            let mut why = spec.needs_env.iter().find(|name| !is_set(name)).map(|name| unset(name));
            for name in [Some(&spec.service), spec.database.as_ref()].into_iter().flatten() {
                let Some(service) = experiment.services.get(name).filter(|_| why.is_none()) else {
                    continue;
                };
                let found = failing.entry(name).or_insert_with(|| {
                    let command = service.needs_commands.iter().find(|argv| !succeeds(argv))?;
                    Some(format!("the command `{}` does not succeed", command.join(" ")))
                });
                why = found.clone();
            }
            if let Some(why) = why {
                deployments.insert(i, why);
            }
        }
        let loads = experiment.loads.iter().enumerate();
        let loads = loads.filter_map(|(i, load)| Some((i, unset(load.missing_env.as_ref()?))));
        Self { deployments, loads: loads.collect() }
    }

    pub(super) fn contains(&self, planned: &Planned) -> bool {
        self.deployments.contains_key(&planned.deployment) || self.loads.contains_key(&planned.load)
    }

    /// Describes them, one sentence per reason.
    pub(super) fn words(&self, experiment: &Experiment) -> Vec<String> {
        let deployments =
            self.deployments.iter().map(|(i, why)| (why, &experiment.deployments[*i].name));
        let loads = self.loads.iter().map(|(i, why)| (why, &experiment.loads[*i].name));
        let mut names: BTreeMap<&String, Vec<&str>> = BTreeMap::new();
        for (why, name) in deployments.chain(loads) {
            names.entry(why).or_default().push(name);
        }
        let sentence = |(why, names): (&String, Vec<&str>)| {
            format!("Skipped because {why}: {}.", names.join(", "))
        };
        names.into_iter().map(sentence).collect()
    }
}

/// Runs a command to its end, without input and output; returns whether it succeeded in time.
pub(super) fn succeeds(argv: &[String]) -> bool {
    let Some((program, arguments)) = argv.split_first() else { return false };
    let mut command = Command::new(program);
    // Files of the current folder must not shadow modules of an interpreter.
    command.args(arguments).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    let until = Instant::now() + COMMAND_WAIT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < until => std::thread::sleep(POLL_INTERVAL),
            Ok(None) | Err(_) => {
                // It may have ended in between; it is reaped either way.
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::experiment::Overrides;

    const FILE: &str = r#"
title = "a"
question = "b"
[services.python]
command = ["x"]
needs_commands = [["true"], ["python3", "-c", "import flask"]]
[services.other]
command = ["x"]
[[deployments]]
name = "one"
service = "python"
[[deployments]]
name = "two"
service = "python"
[[deployments]]
name = "three"
service = "other"
[[deployments]]
name = "four"
service = "other"
needs_env = ["URL"]
[[loads]]
name = "hello"
path = "/"
connections = [1]
"#;

    #[test]
    fn what_a_missing_program_or_variable_prevents_is_skipped_with_the_reason() {
        let experiment = Experiment::parse(
            "x",
            "x.toml",
            FILE,
            std::path::Path::new("/"),
            &Overrides::default(),
        )
        .unwrap();
        let runs = Cell::new(0);
        let succeeds = |argv: &[String]| {
            runs.set(runs.get() + 1);
            argv[0] == "true"
        };
        let skipped = Skipped::of(&experiment, &|_| false, &succeeds);
        assert_eq!(runs.get(), 2, "each command once");
        assert_eq!(
            skipped.words(&experiment),
            [
                "Skipped because the command `python3 -c import flask` does not succeed: one, two.",
                "Skipped because the environment variable URL is not set: four.",
            ]
        );
        let left: Vec<&str> = experiment
            .rows
            .iter()
            .filter(|planned| !skipped.contains(planned))
            .map(|planned| planned.row.id.as_str())
            .collect();
        assert_eq!(left, ["three/hello/1"]);
        let none = Skipped::of(&experiment, &|_| true, &|_| true);
        assert!(none.words(&experiment).is_empty());
    }

    #[test]
    fn a_command_succeeds_with_status_0_only() {
        let argv = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        assert!(succeeds(&argv(&["true"])));
        for failing in [&["false"][..], &["hotrow-no-such-program"], &[]] {
            assert!(!succeeds(&argv(failing)), "{failing:?}");
        }
    }
}
