//! Names of the database in traces, which differ by engine.

use crate::collector::{Behaviour, CLIENT, Collector, attributes, of, traceparent};
use crate::shop::{Shop, path};
use hotrow_testkit::harness::Server;

pub(crate) fn a_query_names_its_database<S: Shop>() {
    let shop = S::open();
    let collector = Collector::start(Behaviour::ok());
    let config = shop.config_of_products().set("trace.endpoint", &collector.endpoint());
    let server = Server::start(&config);
    let trace = traceparent(1, true);
    let answer = server.client().get_with(&path(7), &[("traceparent", &trace)]);
    assert_eq!(answer.status, 200);
    let span = collector.await_server_span(1);
    let query = collector.await_span("the query", |span| of(span, 1) && span.kind == CLIENT);
    assert_eq!(query.parent_span_id, span.span_id);
    let found = attributes(&query);
    // MySQL only where the test is given one.
    let (systems, operation) = match S::CONNECTION_THREAD {
        "postgres" => (&["postgresql"][..], "SELECT"),
        "mysql" => (&["mariadb", "mysql"][..], "SELECT"),
        "mongodb" => (&["mongodb"][..], "find"),
        other => panic!("{other} has no name in traces"),
    };
    assert!(systems.contains(&&*found["db.system.name"]), "{found:?}");
    assert_eq!((&*found["db.operation.name"], &*found["hotrow.fill.kept"]), (operation, "1"));
    assert_eq!(query.name, format!("{operation} {}", found["db.collection.name"]));
    // The connection string has a password, and the namespace is only a part of it.
    let url = config.text();
    assert!(url.contains(&found["db.namespace"]) && !found["db.namespace"].contains(['@', '/']));
}
