//! `hotrow`: records by id at memory speed, never staler than promised.

use clap::Parser;
use hotrow::cli::{Cli, Command, Failure};
use hotrow::tool;
use hotrow::uninstall_triggers::uninstall_triggers;
use hotrow_cli::Exit;

fn main() -> std::process::ExitCode {
    // clap reports wrong usage itself and exits with status 2.
    let done = match Cli::parse().command {
        Command::Serve(args) => hotrow::cli::serve(&args).map(|()| Exit::Fine),
        #[cfg(feature = "hub")]
        Command::Relay(args) => {
            hotrow::relay::relay(&args).map(|()| Exit::Fine).map_err(Failure::from)
        }
        Command::Check(args) => hotrow::check::check(&args).map_err(Failure::from),
        Command::Init(args) => hotrow::init::init(&args).map_err(Failure::from),
        Command::Health(args) => {
            hotrow::health::health(&args).map(|()| Exit::Fine).map_err(Failure::from)
        }
        Command::Advise(args) => {
            hotrow::advise::advise(&args).map(|()| Exit::Fine).map_err(Failure::from)
        }
        Command::Pages(args) => hotrow::cli::write_pages(&args).map(|()| Exit::Fine),
        Command::Key(args) => hotrow::key::key(&args).map(|()| Exit::Fine).map_err(Failure::from),
        Command::UninstallTriggers(args) => {
            uninstall_triggers(&args).map(|()| Exit::Fine).map_err(Failure::from)
        }
        Command::Describe(args) => {
            hotrow::describe::describe(&args).map(|()| Exit::Fine).map_err(Failure::from)
        }
        Command::Lab(args) => Err(Failure::from(tool::start(None, &args))),
        Command::Load(args) => Err(Failure::from(tool::start(Some("load"), &args))),
        Command::Capacity(args) => Err(Failure::from(tool::start(Some("capacity"), &args))),
        Command::Verify(args) => Err(Failure::from(tool::start(Some("verify"), &args))),
        Command::Top(args) => Err(Failure::from(tool::start(Some("top"), &args))),
        Command::Doctor(args) => Err(Failure::from(tool::start(Some("doctor"), &args))),
    };
    match done {
        Ok(exit) => exit,
        Err(failure) => failure.report(),
    }
    .into()
}
