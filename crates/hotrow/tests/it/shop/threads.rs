//! Panics of the threads that exist only over a server, or have other tasks there.

use crate::shop::{Shop, await_body, await_started, cached, losses, path, starts};
use hotrow_testkit::harness::panics::Panicking;
use hotrow_testkit::harness::{SOON, await_until};

pub(crate) fn a_feed_that_panics_is_a_loss_and_follows_again<S: Shop>() {
    let shop = S::open();
    let panicking = Panicking::once(&shop.config_of_products(), "feed");
    let mut client = panicking.server.client();
    cached(&mut client, &path(1));
    panicking.panic_once(|_| ());
    assert_eq!(losses(&panicking.server, Some("feed_failed")), 1.0);
    await_until("the feed to start again", SOON, || starts(&panicking.server) == 2.0);
    await_started(&panicking.server, 1.0);
    assert_eq!(client.get(&path(1)).cache(), "miss", "what was cached before is not served");
    shop.set_price(1, 5);
    await_body(&mut client, &path(1), &S::body(1, 5));
    panicking.ends_well();
}

pub(crate) fn the_thread_that_drives_the_connections_comes_back<S: Shop>() {
    let shop = S::open();
    let panicking = Panicking::once(&shop.config_of_products(), S::CONNECTION_THREAD);
    let mut client = panicking.server.client();
    cached(&mut client, &path(1));
    panicking.panic_once(|_| ());
    for id in 2..50 {
        await_body(&mut client, &path(id), &S::body(id, 100 * id));
    }
    if !S::FEED_RESUMES {
        assert_eq!(losses(&panicking.server, None), 0.0, "the feed has connections of its own");
    }
    panicking.ends_well();
}
