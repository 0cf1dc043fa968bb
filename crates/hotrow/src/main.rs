//! `hotrow`: records by id at memory speed, never staler than promised.

use hotrow::cli::{Cli, Failure, program};
use hotrow::tool;
use hotrow_cli::help;

fn main() -> std::process::ExitCode {
    let arguments = help::arguments();
    let exit = match tool::start(&arguments) {
        Some(refusal) => Failure::from(refusal).report(),
        // Help and wrong usage end here.
        None => match program().parse::<Cli>(&arguments) {
            Ok(parsed) => parsed.command.run().unwrap_or_else(Failure::report),
            Err(exit) => exit,
        },
    };
    exit.into()
}
