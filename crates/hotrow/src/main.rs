//! `hotrow`: records by id at memory speed, never staler than promised.

use clap::Parser;
use hotrow::cli::{Cli, Command, Exit};

fn main() -> std::process::ExitCode {
    // Wrong usage ends here with a message and status 2.
    let done = match Cli::parse().command {
        Command::Serve(args) => hotrow::cli::serve(&args),
        Command::Check(args) => hotrow::cli::check(&args),
        Command::Unwatch(args) => hotrow::cli::unwatch(&args),
    };
    match done {
        Ok(()) => Exit::Fine,
        Err(failure) => failure.report(),
    }
    .into()
}
