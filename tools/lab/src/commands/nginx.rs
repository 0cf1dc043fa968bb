//! `hotrow-lab nginx`: prints the configuration of a deployment for your own nginx.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hotrow_proxies::nginx::{
    Backend, Cache, NginxError, NginxProxy, ProxyProfile, Tls, configuration,
};

use self::deployments::{DEPLOYMENTS, NamedDeployment};
use super::{LabError, print};
use hotrow_cli::Exit;

mod deployments;

/// Port of the first backend by default; the others follow.
const BACKEND_PORT: u16 = 9001;

/// Arguments of `lab nginx`.
#[derive(Debug, Args)]
pub(crate) struct NginxArgs {
    /// Deployment; see --list
    #[arg(long = "for", value_name = "NAME", required_unless_present = "list")]
    #[arg(value_parser = deployment)]
    deployment: Option<&'static NamedDeployment>,
    /// List the deployments
    #[arg(long, conflicts_with = "deployment")]
    list: bool,
    /// Settings: of the published experiments, or tuned
    #[arg(long, value_name = "PROFILE", default_value = "tuned")]
    profile: ProfileArg,
    /// Port to listen on, on 127.0.0.1
    #[arg(long, value_name = "PORT", default_value = "8000")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    listen: u16,
    /// Backend address, as in 127.0.0.1:9001, with an optional weight, as in '4*127.0.0.1:9001';
    /// repeatable [default: one per backend of the deployment, from 127.0.0.1:9001 on]
    #[arg(long, value_name = "ADDR", value_parser = backend)]
    backend: Vec<(Option<u32>, SocketAddr)>,
    /// Folder for all files of nginx
    #[arg(long, value_name = "FOLDER", default_value = "nginx")]
    folder: PathBuf,
    /// Time to live of cached responses, in s [default: the deployment's]
    #[arg(long, value_name = "S")]
    cache_s: Option<u32>,
    /// Idle connections to the backends per worker [default: none in the published profile, 64 in
    /// the tuned one]
    #[arg(long, value_name = "N")]
    upstream_keepalive: Option<u32>,
    /// Worker processes [default: one per CPU]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroU32>,
    /// Log every request
    #[arg(long)]
    access_log: bool,
    /// HTTPS with this certificate (PEM) [default for the deployment tls: certificate.pem in the
    /// folder]
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Its private key (PEM) [default for the deployment tls: certificate.key in the folder]
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProfileArg {
    Published,
    Tuned,
}

pub(crate) fn run(args: &NginxArgs) -> Result<Exit, LabError> {
    let Some(deployment) = args.deployment else {
        print(deployments::list().trim_end())?;
        return Ok(Exit::Fine);
    };
    let proxy = proxy(args, deployment)?;
    print(format!("{}{}", header(deployment, &proxy), configuration(&proxy)).trim_end())?;
    Ok(Exit::Fine)
}

fn proxy(args: &NginxArgs, deployment: &NamedDeployment) -> Result<NginxProxy, LabError> {
    let absolute = |path: &PathBuf| {
        std::path::absolute(path).map_err(|why| NginxError::Unwritable { path: path.clone(), why })
    };
    let profile = match args.profile {
        ProfileArg::Published => ProxyProfile::Published,
        ProfileArg::Tuned => ProxyProfile::Tuned,
    };
    let mut proxy =
        NginxProxy::new(profile, args.listen, backends(args, deployment), absolute(&args.folder)?);
    proxy.balance = deployment.balance;
    proxy.cache = match (deployment.cache, args.cache_s) {
        (Some(cache), Some(ttl_s)) => Some(Cache { ttl_s, ..cache }),
        (None, Some(_)) => return Err(LabError::Uncached(deployment.names[0])),
        (cache, None) => cache,
    };
    proxy.upstream_keepalive = args.upstream_keepalive.or(proxy.upstream_keepalive);
    proxy.workers = args.workers.map(NonZeroU32::get);
    proxy.access_log = args.access_log;
    proxy.comments = true;
    proxy.tls = match (&args.certificate, &args.key) {
        (Some(certificate), Some(key)) => {
            Some(Tls { certificate: absolute(certificate)?, key: absolute(key)? })
        }
        _ if deployment.tls => Some(Tls::within(&proxy.folder)),
        _ => None,
    };
    proxy.validate()?;
    Ok(proxy)
}

/// Returns the given backends, else the deployment's; missing weights are the deployment's.
fn backends(args: &NginxArgs, deployment: &NamedDeployment) -> Vec<Backend> {
    let ports = (0..)
        .zip(deployment.weights)
        .map(|(i, _)| (None, SocketAddr::from(([127, 0, 0, 1], BACKEND_PORT + i))));
    let named = if args.backend.is_empty() { ports.collect() } else { args.backend.clone() };
    let weight = |i: usize| deployment.weights.get(i).copied().unwrap_or(1);
    (0..)
        .zip(named)
        .map(|(i, (own, address))| Backend { address, weight: own.unwrap_or(weight(i)) })
        .collect()
}

/// Returns the comment at the beginning of the file.
fn header(deployment: &NamedDeployment, proxy: &NginxProxy) -> String {
    let folder = proxy.folder.display();
    let file = proxy.file();
    let mut header = format!(
        "# {}\n# {}; cache: {}; balancing: {}.\n#\n# mkdir -p '{folder}', put this into '{file}', \
         then:\n\
         #   nginx -p '{folder}' -c '{file}' -e stderr -g 'daemon off;'\n",
        deployment.description,
        proxy.describe_proxy(),
        proxy.describe_caching(),
        proxy.describe_balancing(),
        file = file.display(),
    );
    if let Some(tls) = proxy.tls.as_ref().filter(|tls| !tls.certificate.exists()) {
        header.push_str(&format!(
            "# A certificate to try it with:\n#   openssl req -x509 -newkey ec -pkeyopt \
             ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=localhost \\\n#     -addext \
             subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout '{}' -out '{}'\n",
            tls.key.display(),
            tls.certificate.display()
        ));
    }
    header.push('\n');
    header
}

fn deployment(name: &str) -> Result<&'static NamedDeployment, String> {
    let found = DEPLOYMENTS.iter().find(|deployment| deployment.names.contains(&name));
    found.ok_or_else(|| {
        let names: Vec<&str> =
            DEPLOYMENTS.iter().flat_map(|deployment| deployment.names).copied().collect();
        format!("unknown deployment; known ones are {}", names.join(", "))
    })
}

fn backend(text: &str) -> Result<(Option<u32>, SocketAddr), String> {
    let (weight, address) = match text.split_once('*') {
        Some((weight, address)) => {
            let weight = weight
                .parse()
                .map_err(|_| format!("the weight {weight:?} must be a whole number"))?;
            (Some(weight), address)
        }
        None => (None, text),
    };
    let address = address
        .parse()
        .map_err(|_| format!("{address:?} must be IP:PORT, as in 127.0.0.1:9001"))?;
    Ok((weight, address))
}
