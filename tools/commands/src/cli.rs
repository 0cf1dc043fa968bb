//! Arguments of the commands, and the match that runs them.

use clap::Subcommand;
use hotrow_cli::Exit;

use crate::capacity::args::CapacityArgs;
use crate::capacity::{self, CapacityError};
use crate::doctor::args::DoctorArgs;
use crate::doctor::{self, DoctorError};
use crate::load::args::LoadArgs;
use crate::load::{self, LoadError};
use crate::top::{self, TopArgs, TopError};
use crate::verify::args::VerifyArgs;
use crate::verify::{self, VerifyError};

/// Commands that measure or check a service, as `hotrow_cli::TOOLS` describes them. Their examples
/// name `hotrow`, which starts them.
#[derive(Debug, Subcommand)]
pub enum MeasureCommand {
    /// `hotrow load`
    #[command(after_help = load::args::HELP)]
    Load(Box<LoadArgs>),
    /// `hotrow capacity`
    #[command(after_help = capacity::args::HELP)]
    Capacity(Box<CapacityArgs>),
    /// `hotrow verify`
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(Box<VerifyArgs>),
    /// `hotrow top`
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// `hotrow doctor`
    #[command(after_help = doctor::args::HELP)]
    Doctor(DoctorArgs),
}

/// Reason for a missing result, by command.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The load run has no result.
    #[error("hotrow load: {0}")]
    Load(#[from] LoadError),
    /// The search for a capacity has no result.
    #[error("hotrow capacity: {0}")]
    Capacity(#[from] CapacityError),
    /// The verification has no result.
    #[error("hotrow verify: {0}")]
    Verify(#[from] VerifyError),
    /// Nothing can be shown of the instances.
    #[error("hotrow top: {0}")]
    Top(#[from] TopError),
    /// The machine could not be examined.
    #[error("hotrow: {0}")]
    Doctor(#[from] DoctorError),
}

impl MeasureError {
    /// Returns the exit status.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Load(error) => error.exit(),
            Self::Capacity(error) => error.exit(),
            Self::Verify(error) => error.exit(),
            Self::Top(error) => error.exit(),
            Self::Doctor(_) => Exit::Failed,
        }
    }
}

impl MeasureCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// Returns the reason for a missing result.
    pub fn run(&self) -> Result<Exit, MeasureError> {
        Ok(match self {
            Self::Load(args) => load::load(args)?,
            Self::Capacity(args) => capacity::capacity(args)?,
            Self::Verify(args) => verify::verify(args)?,
            Self::Top(args) => top::top(args)?,
            Self::Doctor(args) => doctor::doctor(args)?,
        })
    }
}

const VERIFY_EXAMPLES: &str = "Examples:
  hotrow verify --config hotrow.toml --collection verify --create
  hotrow verify --config hotrow.toml --collection verify --url http://127.0.0.1:8080 -d 1m
  hotrow verify --config hotrow.toml --collection verify --url http://10.0.0.1:8080 \\
      --url http://10.0.0.2:8080 --balancer http://10.0.0.9 --admin http://10.0.0.1:8081 \\
      --rate 500 --json";

const TOP_EXAMPLES: &str = "Examples:
  hotrow top
  hotrow top --token-file token http://10.0.0.1:8081 http://10.0.0.2:8081
  hotrow top --json http://10.0.0.1:8081";

#[cfg(test)]
pub(crate) mod tests {
    use clap::error::ErrorKind;
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "hotrow")]
    pub(crate) struct Cli {
        #[command(subcommand)]
        pub(crate) command: MeasureCommand,
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn wrong_usage_is_refused() {
        let kind =
            |args: &str| Cli::try_parse_from(args.split(' ')).map(|_| ()).map_err(|e| e.kind());
        for good in [
            "hotrow verify --config f --url http://a --url http://b --balancer http://c -d 5m \
             --json --keep-going",
            "hotrow load -c 10 -d 5s --rate 100..200 --arrivals poisson http://a/{id} --ids 1..9 \
             --distribution zipf:1",
            "hotrow load --slo p99<5ms,errors<0.1%,rate>=10000 --hdr f --csv g --percentiles \
             http://a",
            "hotrow load --calibrate -c 10 -t 1 --json -q",
            "hotrow load --html f http://a",
            "hotrow load compare a.json b.json --html f",
            "hotrow load compare --a 1.json 2.json --b 3.json",
            "hotrow capacity --slo p99<10ms,errors<0.1% --start-rate 5 --time 1m --at-least 9 \
             --pid 1 --pid 2 http://a",
            "hotrow capacity --closed --connections-max 64 --rounds 5 --port 80 --html f --json -q \
             http://a",
            "hotrow doctor --connections 5 --threads 5 --rate 0.5 --no-keepalive --fail-below \
             --verify-limits threads --json",
        ] {
            assert_eq!(kind(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("hotrow load", ErrorKind::MissingRequiredArgument),
            ("hotrow load --arrivals poisson http://a", ErrorKind::MissingRequiredArgument),
            ("hotrow load --rate 0 http://a", ErrorKind::ValueValidation),
            ("hotrow load --slo p99=5ms http://a", ErrorKind::ValueValidation),
            ("hotrow load compare", ErrorKind::MissingRequiredArgument),
            ("hotrow load compare a.json", ErrorKind::MissingRequiredArgument),
            ("hotrow load compare --a 1.json", ErrorKind::MissingRequiredArgument),
            (
                "hotrow load compare a.json b.json --a 1.json --b 2.json",
                ErrorKind::ArgumentConflict,
            ),
            ("hotrow load --calibrate http://a", ErrorKind::ArgumentConflict),
            ("hotrow load --calibrate --rate 5", ErrorKind::ArgumentConflict),
            ("hotrow load --json --percentiles http://a", ErrorKind::ArgumentConflict),
            ("hotrow load --connections 0 http://a", ErrorKind::ValueValidation),
            ("hotrow load --body x --form a=b http://a", ErrorKind::ArgumentConflict),
            ("hotrow verify --url http://a", ErrorKind::MissingRequiredArgument),
            ("hotrow verify --config f", ErrorKind::MissingRequiredArgument),
            ("hotrow verify --config f --url http://a --keys 0", ErrorKind::ValueValidation),
            ("hotrow verify --config f --url http://a --rate 0", ErrorKind::ValueValidation),
            ("hotrow capacity http://a", ErrorKind::MissingRequiredArgument),
            ("hotrow capacity --slo p99<1ms", ErrorKind::MissingRequiredArgument),
            ("hotrow capacity --slo p99=1ms http://a", ErrorKind::ValueValidation),
            ("hotrow capacity --closed --slo p99<1ms http://a", ErrorKind::ArgumentConflict),
            ("hotrow capacity --closed -c 5 http://a", ErrorKind::ArgumentConflict),
            ("hotrow capacity --slo p99<1ms --step 1ms http://a", ErrorKind::ValueValidation),
            ("hotrow capacity --slo p99<1ms --abort-errors 0 http://a", ErrorKind::ValueValidation),
            (
                "hotrow capacity --slo p99<1ms --pid 1 --port 80 http://a",
                ErrorKind::ArgumentConflict,
            ),
            ("hotrow doctor --connections 0", ErrorKind::ValueValidation),
            ("hotrow doctor --rate 0", ErrorKind::ValueValidation),
            ("hotrow doctor --verify-limits files", ErrorKind::InvalidValue),
            ("hotrow doctor --child x --json", ErrorKind::ArgumentConflict),
        ] {
            assert_eq!(kind(bad), Err(why), "{bad}");
        }
    }
}
