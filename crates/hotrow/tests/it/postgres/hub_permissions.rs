//! NATS with exactly the permissions that examples/hub/nats.conf has, and with one less.

use crate::postgres::hub::Hub;
use crate::postgres::shop::Shop;
use crate::shop::hub::{await_leader, stop_relay};
use crate::shop::{await_body, cached, path, price_sql, row};
use hotrow_testkit::harness::{Config, SOON, Server, await_until};
use hotrow_testkit::nats::Nats;

const DOCUMENT: &str = include_str!("../../../../../examples/hub/nats.conf");
/// What a relay needs only once the stream has a message.
const LAST_MESSAGE: &str = "STREAM.MSG.GET";

/// Returns the users in the document.
fn documented() -> String {
    let (_, users) = DOCUMENT.split_once("authorization").expect("the configuration of NATS");
    format!("authorization{users}")
}

/// Returns the lines with a subject of a role.
fn subjects<'a>(text: &'a str, role: &str) -> Vec<&'a str> {
    let (_, of_role) = text.split_once(&format!("user: {role},")).expect("the role");
    let (of_role, _) = of_role.split_once("user:").unwrap_or((of_role, ""));
    of_role.lines().filter(|line| line.trim().starts_with('"')).collect()
}

fn as_role(config: &Config, role: &str) -> Config {
    let config = config.clone().set("hub.user", &format!("\"{role}\""));
    config.set("hub.password", &format!("\"{}\"", role.to_uppercase()))
}

/// Starts a relay and waits until it publishes.
fn leader(config: &Config) -> Server {
    let relay = Server::start_relay(config);
    await_leader(&relay);
    relay
}

#[test]
fn each_role_works_with_its_permissions() {
    let hub = Hub::over(Shop::with_products(), Nats::start(&documented()));
    // The second finds the stream and its last message.
    stop_relay(leader(&as_role(&hub.config, "relay")));
    let relay = leader(&as_role(&hub.config, "relay"));
    let server = Server::start(&as_role(&hub.config, "instance"));
    let mut client = server.client();
    cached(&mut client, &path(1));
    hub.shop.server.batch(&price_sql(1, 1));
    await_body(&mut client, &path(1), &row(1, 1));
    stop_relay(relay);
    assert!(!server.log().contains("NATS refuses"), "{}", server.log());
}

#[test]
fn a_missing_permission_is_named_in_the_log() {
    let full = "users: [\n  { user: full, password: FULL }\n";
    let text = documented().replacen("users: [\n", full, 1);
    let mut hub = Hub::over(Shop::with_products(), Nats::start(&text));
    for role in ["relay", "instance"] {
        let subjects = subjects(&text, role);
        assert!(subjects.len() >= 4, "{subjects:?}");
        for line in subjects {
            // Of this role only: the other one may have the same line.
            let at = text.find(&format!("user: {role},")).expect("the role");
            let (before, of_role) = text.split_at(at);
            hub.nats =
                Nats::start(&format!("{before}{}", of_role.replacen(line, "\"nothing\",", 1)));
            let feed = format!("{:?}", hub.nats.url());
            hub.config = hub.config.set("source.feed", &feed);
            let config = as_role(&hub.config, role);
            let is_relay = role == "relay";
            let other = (!is_relay || line.contains(LAST_MESSAGE))
                .then(|| leader(&as_role(&hub.config, "full")));
            let limited = if is_relay {
                other.into_iter().for_each(stop_relay);
                Server::start_relay(&config)
            } else {
                Server::start_unready(&config)
            };
            let subject = line.trim().trim_matches(['"', ',']).trim_end_matches(['>', '*']);
            await_until(&format!("{subject} in the log of the {role}"), SOON, || {
                let log = limited.log();
                log.lines().any(|line| line.contains("NATS refuses") && line.contains(subject))
            });
        }
    }
}
