//! `hotrow serve --demo`: 100,000 generated products in a temporary SQLite database, served like
//! any other collection.
//!
//! Reading order: here, `database` (the file), `products` (one record), `folder` (its place and its
//! removal), [`writer`] (`--demo-writes`).

mod database;
mod error;
mod folder;
mod products;
mod progress;
pub mod writer;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::Path;

use crate::config::{self, Overrides};
use crate::serve::{self, Addresses, Host};
pub use error::DemoError;
use folder::DemoFolder;
use hotrow_cli::signals::{OnAbort, Phase};

/// Number of products in the demonstration; their ids are 1 to this.
pub const PRODUCTS: u32 = 100_000;

/// Generates the products, serves them until a stop signal, and removes them.
///
/// # Errors
/// Returns the cause if serving could not start or could not continue.
pub fn run(
    overrides: &Overrides,
    writes_per_second: Option<NonZeroU32>,
    host: Host,
    on_abort: &OnAbort,
) -> Result<(), DemoError> {
    let folder = DemoFolder::create(&std::env::temp_dir(), on_abort)?;
    let file = folder.path().join("products.db");
    let stop = || *host.phase.borrow() == Phase::Draining;
    let mut bar = progress::Bar::new("Generating 100,000 products");
    database::create(&file, PRODUCTS, &mut |done| {
        bar.show(done, PRODUCTS);
        !stop()
    })?;
    bar.clear();

    let text = configuration(&file);
    let resolved = config::parse(&text, "(demo)", &|name| std::env::var(name), overrides)?;
    let mut running = None;
    let writer_phase = host.phase.clone();
    let supervisor = host.supervisor.clone();
    serve::run(resolved, None, host, |addresses| {
        // A closed standard output must not stop the service.
        let _ = std::io::stdout().write_all(invitation(addresses).as_bytes());
        running = writes_per_second
            .map(|rate| writer::start(file.clone(), rate, writer_phase, &supervisor));
    })?;
    // The writer first: it has a connection to a file in the folder.
    drop(running);
    drop(folder);
    Ok(())
}

/// Returns the configuration of the demonstration, as a user would write it for such a database.
fn configuration(file: &Path) -> String {
    // In a configuration `$` begins a variable.
    let url = toml::Value::from(format!("sqlite:{}", file.display()).replace('$', "$$"));
    format!(
        "[listen]\nredis = \"127.0.0.1:0\"\n[limits]\ndrain_delay = \"0s\"\n\
         [source]\nurl = {url}\nwatch = \"triggers\"\n[collections.products]\n\
         allow_no_cache = true\nallow_min_position = true\nallow_fields = true\nchanges = true\n"
    )
}

/// Returns commands to try.
fn invitation(addresses: Addresses) -> String {
    let data = reachable(addresses.data);
    let admin = reachable(addresses.admin);
    let redis = addresses.redis.map_or(0, |address| address.port());
    format!(
        "Serving {PRODUCTS} products. Try:\n  curl -i http://{data}/products/4711\n  \
         curl 'http://{data}/products?ids=1,2,3'\n  \
         curl -N http://{data}/_changes/products\n  \
         redis-cli -p {redis} GET products:4711\n  hotrow top http://{admin}\n  \
         hotrow load --ids 1..{PRODUCTS} 'http://{data}/products/{{id}}'\n\
         Live page: http://{admin}/\nDescription for clients: http://{admin}/openapi.html\n\
         Ctrl-C ends it and removes the database.\n"
    )
}

/// Returns the address that a client on this machine can use: 0.0.0.0 and :: become loopback.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SourceConfig;

    #[test]
    fn its_configuration_is_valid_for_any_folder_name() {
        for name in ["/tmp/x/products.db", "/tmp/it's \"here\"\\${HOME}/ü.db"] {
            let text = configuration(Path::new(name));
            let env = |_: &str| Err(std::env::VarError::NotPresent);
            let resolved = config::parse(&text, "(demo)", &env, &Overrides::default()).expect(name);
            let [SourceConfig::Sqlite(source)] = &resolved.sources[..] else {
                panic!("{:?}", resolved.sources)
            };
            assert_eq!(source.path, Path::new(name));
            assert!(
                resolved.server.collections[0].allow_no_cache
                    && resolved.server.collections[0].allow_min_position
                    && resolved.server.collections[0].allow_fields
            );
        }
    }

    #[test]
    fn it_invites_with_addresses_that_work() {
        let text = invitation(Addresses {
            data: SocketAddr::from(([0, 0, 0, 0], 4080)),
            admin: SocketAddr::from((Ipv6Addr::UNSPECIFIED, 4081)),
            redis: Some(SocketAddr::from(([127, 0, 0, 1], 4082))),
        });
        assert!(text.contains("http://127.0.0.1:4080/products/4711\n"), "{text}");
        assert!(text.contains("'http://127.0.0.1:4080/products?ids=1,2,3'"), "{text}");
        assert!(text.contains("redis-cli -p 4082 GET"), "{text}");
        assert!(text.contains("http://[::1]:4081/openapi.html\n"), "{text}");
    }
}
