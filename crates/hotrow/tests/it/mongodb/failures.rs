//! Failures of MongoDB beside those of [`crate::shop::failures`], on the stand-in: interrupted
//! streams. The engine's own tests have a lost history, elections, and a set replaced by another.

use std::time::{Duration, Instant};

use crate::backend::mongo::shutdown;
use crate::mongodb::shop::{Shop, body};
use crate::mongodb::standin::{Failure, Fault};
use crate::shop::failures::config;
use crate::shop::{await_body, await_readyz, cached, losses};
use hotrow_testkit::harness::{SOON, Server, await_until};

#[test]
fn a_resumable_interruption_is_no_loss() {
    let shop = Shop::on_standin();
    let server = Server::start(&config(&shop, "bypass"));
    let mut client = server.client();
    let standin = shop.mongo.standin();
    let resumable = Failure::new(189, "PrimarySteppedDown", "stepped down")
        .labelled("ResumableChangeStreamError");
    for (price, fault) in [
        (1, Fault::Cut),
        (2, Fault::Fail(resumable)),
        (3, Fault::Fail(Failure::new(43, "CursorNotFound", "gone"))),
    ] {
        cached(&mut client, "/products/1");
        standin.inject_times("getMore", fault, Some(1));
        shop.set_price(1, price);
        await_body(&mut client, "/products/1", &body(1, price));
        standin.clear_faults("getMore");
    }
    // All connections at once, and changes while there is none.
    standin.refuse_connections(true);
    cached(&mut client, "/products/1");
    let watched = standin.commands("watch");
    standin.cut(None);
    standin.refuse_connections(false);
    shop.set_price(1, 4);
    await_body(&mut client, "/products/1", &body(1, 4));
    await_until("the stream to be opened again", SOON, || standin.commands("watch") > watched);
    await_readyz(&server, 200);
    assert_eq!(
        losses(&server, None),
        0.0,
        "every one of them was resumed by its token: {}",
        server.log()
    );
    await_until("earlier cursors to be closed", SOON, || standin.streams() <= 3);
}

#[test]
fn reconnecting_backs_off() {
    let shop = Shop::on_standin();
    let server = Server::start(&config(&shop, "bypass"));
    let standin = shop.mongo.standin();
    standin.inject("watch", Fault::Fail(shutdown()));
    standin.inject("getMore", Fault::Cut);
    await_readyz(&server, 503);
    let began_at = Instant::now();
    let log = server.log().len();
    let watched = standin.commands("watch");
    await_until("some seconds to pass", SOON, || began_at.elapsed() > Duration::from_secs(4));
    // Without a back-off, thousands of attempts would fit.
    let log_lines = server.log()[log..].lines().count();
    assert!(log_lines < 200, "{log_lines} lines in 4 s");
    assert!(
        standin.commands("watch") - watched < 200,
        "{} attempts in 4 s",
        standin.commands("watch") - watched
    );
    standin.clear_faults("watch");
    standin.clear_faults("getMore");
    await_readyz(&server, 200);
}
