//! `hotrow-lab`: experiments on whole deployments, and models of request processing.

mod commands;

use std::sync::LazyLock;

use clap::{CommandFactory as _, Parser};
use hotrow_cli::help::{self, Group, Program};
use hotrow_cli::output::print_line;
use hotrow_cli::{Exit, version};

use crate::commands::{LabArgs, LabError};

/// Measure and check services, and compare whole deployments.
#[derive(Debug, Parser)]
#[command(name = "hotrow-lab", version, long_version = LONG_VERSION.as_str())]
#[command(arg_required_else_help = true, after_help = HELP)]
struct Cli {
    #[command(flatten)]
    lab: LabArgs,
}

/// Version with the commit of the build.
static LONG_VERSION: LazyLock<String> =
    LazyLock::new(|| version::long(env!("CARGO_PKG_VERSION"), &[]));

const HELP: &str = "Examples:
  hotrow-lab run backends-limited-cpu

Exit status of hotrow-lab:
  0: fine
  1: failed
  2: wrong usage
  130: interrupted";

/// Commands by what they are for.
const GROUPS: [Group; 4] = [
    ("Operate", &["top", "doctor"]),
    ("Tools", &["load", "capacity", "verify"]),
    ("Experiments", &["run", "list", "report", "compare", "reference", "nginx"]),
    ("Models", &["models", "limiter", "policies"]),
];

fn main() -> std::process::ExitCode {
    if let Err(refusal) = version::check_started_by() {
        print_line(std::io::stderr(), &refusal);
        return Exit::Usage.into();
    }
    let program = Program::new(Cli::command(), &GROUPS);
    let parsed = match program.parse::<Cli>(&help::arguments()) {
        Ok(parsed) => parsed,
        Err(exit) => return exit.into(),
    };
    match commands::lab(&parsed.lab, &program) {
        Ok(exit) => exit,
        Err(error) => {
            // Commands that `hotrow` starts name themselves.
            let program = if matches!(error, LabError::Measure(_)) { "" } else { "hotrow-lab: " };
            print_line(std::io::stderr(), &format!("{program}{error}"));
            error.exit()
        }
    }
    .into()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn wrong_usage_is_refused() {
        let kind =
            |args: &str| Cli::try_parse_from(args.split(' ')).map(|_| ()).map_err(|e| e.kind());
        for good in [
            "hotrow-lab report d",
            "hotrow-lab compare a b --html f",
            "hotrow-lab limiter --markdown",
            "hotrow-lab policies a b --percent 1,50",
            "hotrow-lab models thread-per-request --no-safe --max-map-count 100000",
            "hotrow-lab models --list",
            "hotrow-lab models pool async -n 100 --scale 0.001 --no-safe --safe --raise-limits \
             --no-count --json",
        ] {
            assert_eq!(kind(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("hotrow-lab report", ErrorKind::MissingRequiredArgument),
            ("hotrow-lab compare a", ErrorKind::MissingRequiredArgument),
            ("hotrow-lab policies", ErrorKind::MissingRequiredArgument),
            ("hotrow-lab policies a --percent 0", ErrorKind::ValueValidation),
            ("hotrow-lab models --max-map-count 1000", ErrorKind::ValueValidation),
            ("hotrow-lab models --requests 0", ErrorKind::ValueValidation),
            ("hotrow-lab models --requests 10000001", ErrorKind::ValueValidation),
            ("hotrow-lab models --scale 0", ErrorKind::ValueValidation),
            ("hotrow-lab models --scale 2", ErrorKind::ValueValidation),
            ("hotrow-lab", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
        ] {
            assert_eq!(kind(bad), Err(why), "{bad}");
        }
    }
}
