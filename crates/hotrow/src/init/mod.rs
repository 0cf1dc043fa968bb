//! `hotrow init`: writes a configuration file from a database's catalogue.
//!
//! Reading order: here; `origin` (the connection string), `choice` (settings of each collection),
//! `setup` (SQL for an administrator), `document` (the file, with `toml_text`), `file` (writing
//! it), `json`; `auto` (the same at the start of `hotrow serve`).

pub mod auto;
mod choice;
mod document;
mod error;
mod file;
mod json;
pub(crate) mod origin;
mod setup;
mod toml_text;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hotrow_cli::Exit;
use hotrow_cli::output::{self, print_line};
use hotrow_source::discovery::{Configure, Discovered, Engine, Request};
use hotrow_source::preflight::Finding;

use crate::config::{self, ConfigError, Overrides, SourceConfig};

use self::document::Document;
pub use self::error::InitError;
use self::error::opened;
use self::file::Target;
use self::origin::{ConnectionString, DEFAULT_VARIABLE, Origin};
use self::setup::Setup;

/// Most tables that are listed: the most collections of a configuration.
const TABLES_MAX: usize = config::COLLECTIONS_MAX;

/// Arguments of `init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Database: sqlite:FILE, a connection string as in source.url, or env:NAME for one in an
    /// environment variable, which keeps its password off the command line
    #[arg(long, value_name = "URL")]
    from: ConnectionString,
    /// File to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the output file if it exists
    #[arg(long, requires = "output")]
    force: bool,
    /// Environment variable that the file refers to instead of the connection string [default:
    /// that of --from, or DATABASE_URL if the connection string may contain a password]
    #[arg(long, value_name = "NAME")]
    url_env: Option<String>,
    /// Only tables of these schemas; in MySQL and MariaDB of these databases
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    schema: Vec<String>,
    /// Only these tables: their names, or SCHEMA.NAME
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    tables: Vec<String>,
    /// Time to list the tables, and again to check them
    #[arg(long, value_name = "TIME", default_value = "60s")]
    #[arg(value_parser = hotrow_cli::positive_duration)]
    timeout: Duration,
    /// PostgreSQL, MySQL, MariaDB: account that will serve, if --from is an administrator's; the
    /// SQL creates it where it is missing, without a password
    #[arg(long, value_name = "NAME")]
    role: Option<String>,
    /// Show the SQL that is missing and run it, after a question, as an administrator: a connection
    /// string, or env:NAME [default: as --from]
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "")]
    apply: Option<ConnectionString>,
    /// With --apply: do not ask
    #[arg(long, requires = "apply")]
    yes: bool,
    /// Print what was found as one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs `hotrow init`. The exit status is 1 if the file is written, but no table can be served.
///
/// # Errors
/// Returns the reason why no file was written.
pub fn init(args: &InitArgs) -> Result<Exit, InitError> {
    let environment = |name: &str| std::env::var(name);
    // With a role the file is for another account than that of --from.
    let of_role = args.role.as_ref().map(|_| DEFAULT_VARIABLE);
    let origin = Origin::read(&args.from, args.url_env.as_deref().or(of_role), &environment)?;
    origin.warn_of_exposure("init", "--from ");
    let source = origin.source()?;
    let target = args.output.as_deref().map(|path| Target::open(path, args.force)).transpose()?;
    let request = Request {
        schemas: args.schema.clone(),
        tables: args.tables.clone(),
        tables_max: TABLES_MAX,
        timeout: args.timeout,
        is_for_setup: true,
        role: args.role.clone(),
    };
    let mut found = discover(source.clone(), &request)?;
    if args.role.is_some() && !matches!(found.engine, Engine::Postgres | Engine::Mysql) {
        return Err(InitError::Role);
    }
    let mut setup = Setup::of(&found);
    if let Some(administrator) = args.apply.as_ref().filter(|_| setup.has_statements()) {
        let config = match administrator.is_empty() {
            true => source.clone(),
            false => {
                let origin = Origin::read(administrator, None, &environment)?;
                origin.warn_of_exposure("init", "--apply ");
                origin.source()?
            }
        };
        setup.apply(config, args.yes)?;
        found = discover(source, &request)?;
        setup = Setup::of(&found);
    }
    if !found.unknown.is_empty() {
        return Err(InitError::UnknownTables(found.unknown));
    }
    if found.tables.is_empty() {
        print_setup(args, &setup)?;
        return Err(InitError::NoTables);
    }
    let text = valid_text(&mut found, &origin, &setup)?;
    if let Some(target) = &target {
        target.write(&text)?;
    }
    match (args.json, &target) {
        (true, _) => {
            let object = json::object(&found, &origin, args.output.as_deref(), &text, &setup);
            output::print(std::io::stdout(), &object.to_string())?;
        }
        (false, None) => output::print(std::io::stdout(), text.trim_end())?,
        (false, Some(_)) => print_setup(args, &setup)?,
    }
    report(args, &found, &origin);
    let is_any_served = found.tables.iter().any(|table| table.findings.is_empty());
    Ok(if is_any_served { Exit::Fine } else { Exit::Failed })
}

/// Prints the block alone, so that it can be piped to the client of the database.
fn print_setup(args: &InitArgs, setup: &Setup) -> Result<(), InitError> {
    if !setup.text.is_empty() && !args.json {
        output::print(std::io::stdout(), &setup.text)?;
    }
    Ok(())
}

/// Lists and checks the tables.
fn discover(source: SourceConfig, request: &Request) -> Result<Discovered, InitError> {
    let configure: &Configure<'_> = &choice::configs;
    match source {
        SourceConfig::Sqlite(config) => {
            opened(hotrow_source_sqlite::discover(config, request, configure))
        }
        #[cfg(feature = "postgres")]
        SourceConfig::Postgres(config) => {
            opened(hotrow_source_postgres::discover(config, request, configure))
        }
        #[cfg(feature = "mysql")]
        SourceConfig::Mysql(config) => {
            opened(hotrow_source_mysql::discover(config, request, configure))
        }
        #[cfg(feature = "mongodb")]
        SourceConfig::Mongodb(config) => {
            opened(hotrow_source_mongodb::discover(config, request, configure))
        }
    }
}

/// Returns the file's text, which the configuration accepts: a table with a name that it refuses
/// gets its rule as a finding. Without a table that can be served the text is returned as it is.
fn valid_text(found: &mut Discovered, origin: &Origin, setup: &Setup) -> Result<String, InitError> {
    loop {
        let (url, variable) = (origin.setting(), origin.variable.as_deref());
        let text = Document { found, url, variable, setup: &setup.text }.text();
        if text.len() as u64 > config::FILE_BYTES_MAX {
            return Err(InitError::TooLarge { bytes: text.len(), max: config::FILE_BYTES_MAX });
        }
        if found.tables.iter().all(|table| !table.findings.is_empty()) {
            return Ok(text);
        }
        let parsed =
            config::parse(&text, "hotrow.toml", &origin.environment(), &Overrides::default());
        let Err(error) = parsed else { return Ok(text) };
        // Each round refuses at least one table more, so the loop ends.
        if !refuse(found, &error) {
            return Err(InitError::Invalid(error));
        }
    }
}

/// Notes the problems of a file as findings of its tables. Returns whether a table that was to be
/// served is refused now.
fn refuse(found: &mut Discovered, error: &ConfigError) -> bool {
    let mut is_any_refused = false;
    for problem in &error.problems {
        let mut parts = problem.path.split('.');
        let (Some("collections"), Some(name)) = (parts.next(), parts.next()) else { continue };
        let setting = parts.next().unwrap_or("its name");
        let table = found.tables.iter_mut().find(|table| table.config.name == name);
        if let Some(table) = table {
            is_any_refused |= table.findings.is_empty();
            let what = format!("collection `{name}`: {setting} {}", problem.what);
            table.findings.push(Finding::new(what, ""));
        }
    }
    is_any_refused
}

fn warn(text: &str) {
    say(&format!("warning: {text}"));
}

fn say(text: &str) {
    print_line(std::io::stderr(), &format!("hotrow init: {text}"));
}

/// Reports on standard error what is in the file and what is left to do.
fn report(args: &InitArgs, found: &Discovered, origin: &Origin) {
    let served = found.tables.iter().filter(|table| table.findings.is_empty()).count();
    let of = found.tables.len();
    let file =
        args.output.as_deref().map_or("standard output".into(), |path| path.display().to_string());
    let others = match of - served {
        0 => "",
        _ => "; the others are comments with their reasons",
    };
    say(&format!("{file}: {served} of {of} tables can be served{others}"));
    if let Some(name) = &origin.variable {
        say(&format!(
            "the file has ${{{name}}} instead of the connection string: set that variable for \
             hotrow check and hotrow serve"
        ));
    }
    if found.is_cut {
        warn(&format!(
            "the database has more than {TABLES_MAX} tables, and the others are not in the file; \
             select with --schema or --tables"
        ));
    }
    for finding in &found.findings {
        warn(&format!("before hotrow serve can start: {}", finding.problem));
    }
    if served == 0 {
        warn("no table can be served as it is; the file names what each needs");
    }
}
