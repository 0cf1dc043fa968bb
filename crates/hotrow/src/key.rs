//! `hotrow key`: API keys.

use clap::{Args, Subcommand};
use hotrow_access::key::{ID_BYTES, NewKey, SECRET_BYTES};
use hotrow_cli::output::print_line;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;

/// Arguments of `key`.
#[derive(Debug, Args)]
pub struct KeyArgs {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    /// Make an API key: print it once, and what the configuration file stores of it
    #[command(after_help = "Examples:\n  hotrow key new --name billing --role reader\n  \
        hotrow key new --name billing --json")]
    New(NewArgs),
}

#[derive(Debug, Args)]
struct NewArgs {
    /// Name of the key in the configuration file
    #[arg(long, value_name = "NAME", default_value = "client", value_parser = name)]
    name: String,
    /// Role of its holder; may be repeated
    #[arg(long = "role", value_name = "ROLE", value_parser = name)]
    roles: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The system has no random numbers.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gives no random numbers, so no key was made")]
pub struct NoRandomness;

/// Runs `hotrow key`.
///
/// # Errors
/// [`NoRandomness`]
pub fn key(args: &KeyArgs) -> Result<(), NoRandomness> {
    let KeyCommand::New(args) = &args.command;
    let (mut id, mut secret) = ([0; ID_BYTES], [0; SECRET_BYTES]);
    let random = SystemRandom::new();
    random.fill(&mut id).and_then(|()| random.fill(&mut secret)).map_err(|_| NoRandomness)?;
    let new = NewKey::new(id, &secret);
    print_line(std::io::stdout(), &if args.json { as_json(&new, args) } else { text(&new, args) });
    Ok(())
}

fn as_json(new: &NewKey, args: &NewArgs) -> String {
    json!({
        "schema": "hotrow.key/1",
        "key": new.reveal(),
        "name": args.name,
        "id": new.id.to_string(),
        "sha256": new.hash.to_string(),
        "roles": args.roles,
    })
    .to_string()
}

fn text(new: &NewKey, args: &NewArgs) -> String {
    let NewArgs { name, roles, .. } = args;
    let roles = if roles.is_empty() { vec!["ROLE".to_owned()] } else { roles.clone() };
    format!(
        "{}\n\n# Give the line above to the client; it is not shown again. For the configuration \
         file:\n[access.keys.{name}]\nid = \"{}\"\nsha256 = \"{}\"\nroles = {roles:?}",
        new.reveal(),
        new.id,
        new.hash,
    )
}

/// Names of keys and roles follow the same rule as in the configuration file.
fn name(text: &str) -> Result<String, String> {
    let rest = text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'));
    let first = text.starts_with(|c: char| c.is_ascii_lowercase());
    if rest && first && text.len() <= 64 {
        Ok(text.to_owned())
    } else {
        Err("must begin with a letter a to z and have at most 64 of a to z, 0 to 9, _ and -".into())
    }
}
