//! `hotrow`: records by id at memory speed, never staler than promised.

use clap::Parser;
use hotrow::cli::{Cli, Command, Exit, Failure};

fn main() -> std::process::ExitCode {
    // Wrong usage ends here with a message and status 2.
    let done = match Cli::parse().command {
        Command::Serve(args) => hotrow::cli::serve(&args).map(|()| Exit::Fine),
        Command::Check(args) => hotrow::cli::check(&args).map(|()| Exit::Fine),
        Command::Unwatch(args) => hotrow::cli::unwatch(&args).map(|()| Exit::Fine),
        Command::Load(args) => hotrow::load::load(&args).map_err(Failure::from),
        Command::Capacity(args) => hotrow::capacity::capacity(&args).map_err(Failure::from),
        Command::Lab(args) => hotrow::lab::lab(&args).map_err(Failure::from),
        Command::Verify(args) => hotrow::verify::verify(&args).map_err(Failure::from),
        Command::Doctor(args) => hotrow::doctor::doctor(&args).map_err(Failure::from),
    };
    match done {
        Ok(exit) => exit,
        Err(failure) => failure.report(),
    }
    .into()
}
