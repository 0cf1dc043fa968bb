//! `hotrow lab nginx`: prints the configuration of a set-up for the user's own nginx.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hotrow_lab::nginx::{Backend, Cache, Form, Front, NginxError, Tls, configuration};

use self::setups::{SETUPS, Setup};
use super::{LabError, tell};
use crate::cli::Exit;

mod setups;

/// Port of the first backend when none is named; the others follow.
const BACKEND_PORT: u16 = 9001;

/// Arguments of `lab nginx`.
#[derive(Debug, Args)]
pub(super) struct NginxArgs {
    /// Which set-up; --list says what there is
    #[arg(long = "for", value_name = "SETUP", required_unless_present = "list", value_parser = setup)]
    setup: Option<&'static Setup>,
    /// List the set-ups
    #[arg(long, conflicts_with = "setup")]
    list: bool,
    /// The original experiments' settings, or what should be set today
    #[arg(long, value_name = "FORM", default_value = "tuned")]
    form: FormArg,
    /// Port to listen on, on 127.0.0.1
    #[arg(long, value_name = "PORT", default_value = "8000", value_parser = clap::value_parser!(u16).range(1..))]
    listen: u16,
    /// A backend, as in 127.0.0.1:9001, or with its weight in front, as in '4*127.0.0.1:9001'; may be repeated
    /// [default: as many as the set-up has, from 127.0.0.1:9001 on]
    #[arg(long, value_name = "ADDR", value_parser = backend)]
    backend: Vec<(Option<u32>, SocketAddr)>,
    /// Folder for all that nginx writes
    #[arg(long, value_name = "FOLDER", default_value = "nginx")]
    folder: PathBuf,
    /// Keep answers this long, in s [default: the set-up's]
    #[arg(long, value_name = "S")]
    cache_s: Option<u32>,
    /// Idle connections to the backends that each worker keeps [default: none in the original form, 64 in the tuned one]
    #[arg(long, value_name = "N")]
    upstream_keepalive: Option<u32>,
    /// Worker processes [default: one per CPU]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroU32>,
    /// Log every request
    #[arg(long)]
    access_log: bool,
    /// HTTPS with this certificate (PEM) [default for the set-up tls: certificate.pem in the folder]
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Its private key (PEM) [default for the set-up tls: certificate.key in the folder]
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormArg {
    Original,
    Tuned,
}

pub(super) fn run(args: &NginxArgs) -> Result<Exit, LabError> {
    let Some(setup) = args.setup else {
        tell(setups::list().trim_end())?;
        return Ok(Exit::Fine);
    };
    let front = front(args, setup)?;
    tell(format!("{}{}", head(setup, &front), configuration(&front)).trim_end())?;
    Ok(Exit::Fine)
}

fn front(args: &NginxArgs, setup: &Setup) -> Result<Front, LabError> {
    let absolute =
        |path: &PathBuf| std::path::absolute(path).map_err(|why| NginxError::Unwritable { path: path.clone(), why });
    let form = match args.form {
        FormArg::Original => Form::Original,
        FormArg::Tuned => Form::Tuned,
    };
    let mut front = Front::new(form, args.listen, backends(args, setup), absolute(&args.folder)?);
    front.balance = setup.balance;
    front.cache = match (setup.cache, args.cache_s) {
        (Some(cache), Some(ttl_s)) => Some(Cache { ttl_s, ..cache }),
        (None, Some(_)) => return Err(LabError::Uncached(setup.names[0])),
        (cache, None) => cache,
    };
    front.upstream_keepalive = args.upstream_keepalive.or(front.upstream_keepalive);
    front.workers = args.workers.map(NonZeroU32::get);
    front.access_log = args.access_log;
    front.comments = true;
    front.tls = match (&args.certificate, &args.key) {
        (Some(certificate), Some(key)) => Some(Tls { certificate: absolute(certificate)?, key: absolute(key)? }),
        _ if setup.tls => Some(Tls::within(&front.folder)),
        _ => None,
    };
    front.validate()?;
    Ok(front)
}

/// Those that were named, else the set-up's; a weight that was not named is the set-up's.
fn backends(args: &NginxArgs, setup: &Setup) -> Vec<Backend> {
    let ports = (0..).zip(setup.weights).map(|(i, _)| (None, SocketAddr::from(([127, 0, 0, 1], BACKEND_PORT + i))));
    let named = if args.backend.is_empty() { ports.collect() } else { args.backend.clone() };
    let weight = |i: usize| setup.weights.get(i).copied().unwrap_or(1);
    (0..).zip(named).map(|(i, (own, address))| Backend { address, weight: own.unwrap_or(weight(i)) }).collect()
}

/// What to know before the first line.
fn head(setup: &Setup, front: &Front) -> String {
    let (folder, file) = (front.folder.display(), front.file());
    let mut head = format!(
        "# {}\n# {}; cache: {}; balancing: {}.\n#\n# mkdir -p '{folder}', put this into '{file}', then:\n\
         #   nginx -p '{folder}' -c '{file}' -e stderr -g 'daemon off;'\n",
        setup.what,
        front.proxy_words(),
        front.caching_words(),
        front.balancing_words(),
        file = file.display(),
    );
    if let Some(tls) = front.tls.as_ref().filter(|tls| !tls.certificate.exists()) {
        head.push_str(&format!(
            "# A certificate to try it with:\n#   openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
             -subj /CN=localhost \\\n#     -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout '{}' -out '{}'\n",
            tls.key.display(),
            tls.certificate.display()
        ));
    }
    head.push('\n');
    head
}

fn setup(name: &str) -> Result<&'static Setup, String> {
    let found = SETUPS.iter().find(|setup| setup.names.contains(&name));
    found.ok_or_else(|| {
        let names: Vec<&str> = SETUPS.iter().flat_map(|setup| setup.names).copied().collect();
        format!("no such set-up; there are {}", names.join(", "))
    })
}

fn backend(text: &str) -> Result<(Option<u32>, SocketAddr), String> {
    let (weight, address) = match text.split_once('*') {
        Some((weight, address)) => {
            let weight = weight.parse().map_err(|_| format!("the weight {weight:?} must be a whole number"))?;
            (Some(weight), address)
        }
        None => (None, text),
    };
    let address = address.parse().map_err(|_| format!("{address:?} must be IP:PORT, as in 127.0.0.1:9001"))?;
    Ok((weight, address))
}
