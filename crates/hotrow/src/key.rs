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

#[cfg(test)]
mod tests {
    use hotrow_access::key::{KEY_CHARS, KeyHash, KeyTable};

    use super::*;
    use crate::config::{Overrides, parse};

    fn args(json: bool) -> NewArgs {
        NewArgs { name: "billing".to_owned(), roles: vec!["reader".to_owned()], json }
    }

    #[test]
    fn the_printed_lines_are_a_valid_configuration_without_the_key() {
        let new = NewKey::new([3; ID_BYTES], &[4; SECRET_BYTES]);
        let printed = text(&new, &args(false));
        let (key, lines) = printed.split_once('\n').expect("two parts");
        assert_eq!((key, key.len()), (new.reveal(), KEY_CHARS));
        assert!(!lines.contains(&key[21..]), "{lines}");
        let file = format!(
            "[source]\nurl = 'sqlite:x'\n[collections.a]\n[access.roles.reader]\n\
             collections = '*'\n{lines}"
        );
        let none = |_: &str| Err(std::env::VarError::NotPresent);
        let resolved = parse(&file, "f", &none, &Overrides::default()).expect("valid");
        let access = resolved.server.access.expect("access");
        let table = KeyTable::new(access.granted.keys).expect("one key");
        assert_eq!(table.find(key.as_bytes()).map(|found| found.id), Some(new.id));
    }

    #[test]
    fn the_json_form_has_the_same_parts() {
        let new = NewKey::new([3; ID_BYTES], &[4; SECRET_BYTES]);
        let printed = as_json(&new, &args(true));
        let json: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
        assert_eq!(json["key"], new.reveal());
        assert_eq!(json["sha256"], KeyHash::of(new.reveal().as_bytes()).to_string());
        assert_eq!((&json["name"], &json["roles"][0]), (&json!("billing"), &json!("reader")));
    }
}
