//! Records of tenants, over real connections: who sees what, by every kind of request, and whether
//! the answers for another tenant's record differ from those for a record that does not exist.

use crate::common;
use crate::common::authority::Authority;
use crate::common::http2::Http2Connection;
use crate::common::service::config;
use crate::common::tenants::{FAILS_ALL, Options, Raw, TenantService};
use hotrow_access::certificate::CertificateHolder;
use hotrow_access::grant::Roles;
use hotrow_cache::config::WhenStale;
use hotrow_config::transport::ClientCertificates;
use hotrow_config::{Config, Tenancy};
use hotrow_source::Row;
use hotrow_types::source::SourceId;
use hotrow_types::tenant::{Tenant, Tenants};

/// Record of `acme`.
const OWN: i64 = 1;
/// Record of no tenant: its tenant is NULL.
const UNOWNED: i64 = 3;
/// No record.
const ABSENT: i64 = 4;
const ROWS: [(i64, &str); 5] = [
    (OWN, r#""acme"{"id":1,"tenant":"acme"}"#),
    (2, r#""other"{"id":2}"#),
    (UNOWNED, r#"null{"id":3}"#),
    (5, r#"7{"id":5}"#),
    (6, r#""Acme"{"id":6}"#),
];
/// The feed has passed this point when the answers are compared. No test reads so often.
const PASSED: u64 = 50_000;

/// A kind of request: its name, method, target and header fields.
type Kind = (&'static str, &'static str, &'static str, &'static str);

/// Name of the kind whose position is left out where existence is hidden.
const SNAPSHOT: &str = "batch at one point";

/// Kinds of requests for one record; `ID` is replaced by its id, `TAG` for the entity tag of record
/// [`OWN`].
const KINDS: [Kind; 11] = [
    ("plain", "GET", "/accounts/ID", ""),
    ("head", "HEAD", "/accounts/ID", ""),
    ("its tag", "GET", "/accounts/ID", "If-None-Match: TAG\r\n"),
    ("any tag", "GET", "/accounts/ID", "If-None-Match: *\r\n"),
    ("if its tag", "GET", "/accounts/ID", "If-Match: TAG\r\n"),
    ("if another tag", "GET", "/accounts/ID", "If-Match: \"x\"\r\n"),
    ("batch", "GET", "/accounts?ids=ID", ""),
    ("batch by POST", "POST", "/accounts#ID", ""),
    (SNAPSHOT, "GET", "/accounts?ids=ID&snapshot=true", ""),
    ("no-cache", "GET", "/accounts/ID", "Cache-Control: no-cache\r\n"),
    ("position", "GET", "/accounts/ID", "Hotrow-Min-Position: 0000000000000001-5\r\n"),
];

fn start(options: Options) -> TenantService {
    TenantService::start(&ROWS, options)
}

/// A way to the service.
enum Carrier {
    Http1,
    Http2(Http2Connection),
}

impl Carrier {
    fn both(service: &TenantService) -> [Self; 2] {
        [Self::Http1, Self::Http2(Http2Connection::connect(service.server.address))]
    }

    fn ask(
        &mut self,
        service: &TenantService,
        client: &str,
        kind: &Kind,
        filled: Filled<'_>,
    ) -> Raw {
        let (target, fields) = filled.of(kind);
        match self {
            Self::Http1 => service.ask(client, kind.1, &target, &fields),
            Self::Http2(connection) => {
                service.ask_http2(connection, client, (kind.1, &target, &fields))
            }
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2(_) => "HTTP/2",
        }
    }
}

/// What replaces `ID` and `TAG` in a kind of request.
#[derive(Clone, Copy)]
struct Filled<'a> {
    id: i64,
    tag: &'a str,
}

impl Filled<'_> {
    /// Returns target and header fields.
    fn of(self, (_, _, target, fields): &Kind) -> (String, String) {
        (target.replace("ID", &self.id.to_string()), fields.replace("TAG", self.tag))
    }
}

/// Returns the answer as it would be for the record [`ABSENT`].
fn as_absent(answer: Raw, id: i64) -> Raw {
    let body = answer.body.replace(&format!("[\"{id}\"]"), &format!("[\"{ABSENT}\"]"));
    Raw { body, ..answer }
}

/// Checks every client with every kind of request, for every record.
fn check_all(service: &TenantService, is_stale: bool) {
    let owners = [(OWN, "acme"), (2, "other"), (5, "seven")];
    let tag = service.ask("acme", "GET", "/accounts/1", "");
    let tag = tag.field("etag").unwrap();
    for mut carrier in Carrier::both(service) {
        check_all_over(&mut carrier, service, (tag, is_stale), &owners);
    }
}

fn check_all_over(
    carrier: &mut Carrier,
    service: &TenantService,
    (tag, is_stale): (&str, bool),
    owners: &[(i64, &str)],
) {
    for (client, others) in [
        ("none", None),
        ("wrong", None),
        ("acme", Some("acme")),
        ("other", Some("other")),
        ("seven", Some("seven")),
        ("both", Some("both")),
        ("tenantless", Some("")),
    ] {
        for kind in &KINDS {
            let absent = carrier.ask(service, client, kind, Filled { id: ABSENT, tag });
            for (id, _) in ROWS {
                let version = carrier.name();
                let context =
                    format!("{client}, {}, record {id}, stale {is_stale}, {version}", kind.0);
                let answer = carrier.ask(service, client, kind, Filled { id, tag });
                let Some(name) = others else {
                    assert_eq!(answer.status, 401, "{context}");
                    continue;
                };
                let owner = owners.iter().find(|(of, _)| *of == id).map(|(_, owner)| *owner);
                let is_own = owner == Some(name)
                    || name == "both" && owner != Some("seven") && owner.is_some();
                if is_own {
                    check_own(&answer, kind, id, &context);
                } else {
                    assert_eq!(as_absent(answer.clone(), id), absent, "{context}");
                    check_absent(&answer, kind, &context);
                }
            }
        }
    }
}

fn check_own(answer: &Raw, kind: &Kind, id: i64, context: &str) {
    let status = match kind.0 {
        "its tag" | "any tag" if id == OWN => 304,
        "any tag" => 304,
        "if its tag" if id != OWN => 412,
        "if another tag" => 412,
        _ => 200,
    };
    assert_eq!(answer.status, status, "{context}: {answer:?}");
    assert!(answer.field("hotrow-cache").is_some(), "{context}: {answer:?}");
    let control = if status == 412 { "no-store" } else { "private, no-cache" };
    assert_eq!(answer.field("cache-control"), Some(control), "{context}");
    if status == 200 && kind.0 != "head" {
        assert!(answer.body.contains(&format!("{{\"id\":{id}")), "{context}: {answer:?}");
        assert!(!answer.body.starts_with('"'), "the tenant is no part of the record");
    }
}

fn check_absent(answer: &Raw, kind: &Kind, context: &str) {
    let is_batch = kind.0.starts_with("batch");
    assert_eq!(answer.status, if is_batch { 200 } else { 404 }, "{context}: {answer:?}");
    for field in ["age", "hotrow-cache", "server-timing", "etag"] {
        assert_eq!(answer.field(field), None, "{context}: {answer:?}");
    }
    assert_eq!(answer.field("cache-control"), Some("private, no-cache"), "{context}");
    let position = format!("0000000000000001-{PASSED}");
    if kind.0 != SNAPSHOT || answer.field("hotrow-position").is_some() {
        assert_eq!(answer.field("hotrow-position"), Some(&*position), "{context}");
    }
    if is_batch {
        assert!(answer.body.starts_with(r#"{"items":{},"missing":["#), "{context}: {answer:?}");
    }
}

/// Brings every record into memory, each by a read of its own.
fn warm(service: &TenantService) {
    for (id, _) in ROWS {
        service.ask("tenantless", "GET", &format!("/accounts/{id}"), "");
    }
    service.ask("tenantless", "GET", &format!("/accounts/{ABSENT}"), "");
    service.pass(PASSED);
}

#[test]
fn another_tenants_record_is_answered_like_none() {
    for hides_existence in [false, true] {
        let service = start(Options { tenancy: Tenancy { hides_existence }, ..Options::default() });
        warm(&service);
        check_all(&service, false);
    }
}

#[test]
fn a_certificate_has_its_tenants_over_tls() {
    let authority = Authority::new();
    let holders = [("acme", &["acme"][..]), ("both", &["other", "acme"]), ("tenantless", &[])];
    let holder = |(name, tenants): (&str, &[&str])| {
        authority.sign_client(name);
        let tenants = tenants.iter().map(|tenant| Tenant::new(tenant).unwrap()).collect();
        let subject = format!("CN={name},O=Shop");
        let tenants = Tenants::new(tenants).unwrap();
        CertificateHolder { subject, roles: Roles::single(0), tenants }
    };
    let service = TenantService::start_configured(&ROWS, Options::default(), |config| {
        config.access.as_mut().unwrap().granted.certificates = holders.map(holder).to_vec();
        config.transport.tls =
            Some(authority.tls(ClientCertificates::Required(authority.path("ca.pem"))));
    });
    let ask = |client: &str, version: &str, (_, _, target, fields): &Kind, id: i64| {
        let path = |end: &str| authority.path(&format!("{client}.{end}")).display().to_string();
        let target = target.replace("ID", &id.to_string());
        let url = format!("https://{}{target}", service.server.address);
        let (certificate, key) = (path("pem"), path("key"));
        let mut arguments = vec!["-i", version, "--cert", &certificate, "--key", &key];
        arguments.extend(fields.lines().flat_map(|field| ["-H", field]));
        Raw::parse(&String::from_utf8(authority.curl(&url, &arguments).stdout).unwrap())
    };
    // No feed passes what a snapshot would show.
    let is_asked = |kind: &&Kind| !kind.3.contains("TAG") && kind.0 != SNAPSHOT;
    let kinds = KINDS.iter().filter(|kind| kind.1 == "GET").filter(is_asked);
    for kind in kinds {
        for version in ["--http1.1", "--http2"] {
            for (client, sees) in [("acme", &[OWN][..]), ("both", &[OWN, 2]), ("tenantless", &[])] {
                let absent = ask(client, version, kind, ABSENT);
                for id in [OWN, 2, UNOWNED] {
                    let context = format!("{client}, {version}, {}, record {id}", kind.0);
                    let answer = ask(client, version, kind, id);
                    if sees.contains(&id) {
                        check_own(&answer, kind, id, &context);
                    } else {
                        let alike = [as_absent(answer, id), absent.clone()].map(without_position);
                        assert_eq!(alike[0], alike[1], "{context}");
                        assert!(alike[0].body.contains("missing") || alike[0].status == 404);
                    }
                }
            }
        }
    }
}

/// Until the feed passes a later point, an absent record has the position of its own read.
fn without_position(answer: Raw) -> Raw {
    let head = answer.head.lines().filter(|line| !line.starts_with("hotrow-position: "));
    Raw { head: head.collect::<Vec<_>>().join("\n"), ..answer }
}

#[test]
fn stale_answers_are_for_their_tenant_alone() {
    let service = start(Options { when_stale: WhenStale::Stale, ..Options::default() });
    warm(&service);
    // No feed vouches for the entries.
    service.cache.mark_gap(SourceId::FIRST, None);
    let own = service.ask("acme", "GET", "/accounts/1", "");
    assert_eq!((own.status, own.field("hotrow-cache")), (200, Some("stale")), "{own:?}");
    let fields = ["", "If-None-Match: *\r\n", "If-Match: *\r\n"];
    for (client, fields) in fields.map(|fields| ("other", fields)) {
        let answers =
            [OWN, ABSENT].map(|id| service.ask(client, "GET", &format!("/accounts/{id}"), fields));
        assert_eq!(answers[0].status, 404, "{answers:?}");
        for answer in &answers {
            assert_eq!((answer.field("age"), answer.field("hotrow-cache")), (None, None));
        }
    }
    let batch = service.ask("other", "GET", "/accounts?ids=1,2", "");
    assert_eq!(batch.body, r#"{"items":{"2":{"id":2}},"missing":["1"]}"#);
}

#[test]
fn a_batch_has_the_records_of_the_sender() {
    for hides_existence in [false, true] {
        let service = start(Options { tenancy: Tenancy { hides_existence }, ..Options::default() });
        for is_warm in [false, true] {
            for (client, items) in [
                ("acme", r#""1":{"id":1,"tenant":"acme"}"#),
                ("other", r#""2":{"id":2}"#),
                ("both", r#""1":{"id":1,"tenant":"acme"},"2":{"id":2}"#),
                ("seven", r#""5":{"id":5}"#),
                ("tenantless", ""),
            ] {
                let answer = service.ask(client, "GET", "/accounts?ids=1,2,3,4,5,6", "");
                let items = format!("{{\"items\":{{{items}}},");
                assert!(answer.body.starts_with(&items), "{client}: {answer:?}");
                let is_described = answer.field("hotrow-cache").is_some();
                assert_eq!(is_described, client != "tenantless", "{client}, warm {is_warm}");
            }
        }
    }
}

#[test]
fn two_tenants_wait_for_one_read() {
    let service = start(Options::default());
    service.source.gate.send_replace(false);
    let leader = service.send("other", "GET", "/accounts/1", "If-Match: *\r\n");
    common::wait_until(|| service.queries() == 1);
    let owner = service.send("acme", "GET", "/accounts/1", "");
    service.await_coalesced(1);
    let batch = service.send("other", "GET", "/accounts?ids=1", "");
    service.await_coalesced(2);
    service.source.gate.send_replace(true);
    let (leader, owner, batch) = (leader.received(), owner.received(), batch.received());
    assert_eq!((leader.status, owner.status), (404, 200), "{leader:?} {owner:?}");
    assert_eq!(batch.body, r#"{"items":{},"missing":["1"]}"#);
    assert_eq!(service.queries(), 1);
}

#[test]
fn a_row_that_moves_is_its_new_tenants_at_once() {
    let service = start(Options::default());
    let status = |client: &str| service.ask(client, "GET", "/accounts/1", "").status;
    assert_eq!((status("acme"), status("other")), (200, 404));
    service.change(OWN, r#""other"{"id":1}"#, 50);
    assert_eq!((status("acme"), status("other")), (404, 200));
    // The same while a read of the old row is in flight: the order is forced.
    service.change(OWN, r#""acme"{"id":1}"#, 60);
    service.source.gate.send_replace(false);
    let before = service.queries();
    let old = service.send("other", "GET", "/accounts/1", "");
    common::wait_until(|| service.queries() == before + 1);
    service.change(OWN, r#""other"{"id":1}"#, 70);
    let new = service.send("acme", "GET", "/accounts/1", "");
    common::wait_until(|| service.queries() == before + 2);
    service.source.gate.send_replace(true);
    assert_eq!(new.received().status, 404, "its read began after the move");
    assert_eq!(old.received().status, 404, "its read began before the move");
    assert_eq!((status("acme"), status("other")), (404, 200), "the old row is not kept");
}

#[test]
fn with_hidden_existence_the_database_is_read_for_what_is_not_seen() {
    let service =
        start(Options { tenancy: Tenancy { hides_existence: true }, ..Options::default() });
    warm(&service);
    let reads = |client: &str, target: &str, fields: &str| {
        let before = service.queries();
        service.ask(client, "GET", target, fields);
        service.queries() - before
    };
    for position in ["", "Hotrow-Min-Position: 0000000000000001-5\r\n"] {
        for id in [OWN, UNOWNED, ABSENT] {
            let target = format!("/accounts/{id}");
            assert_eq!(reads("other", &target, position), 1, "{target} {position}");
        }
    }
    assert_eq!(reads("acme", "/accounts/1", ""), 0, "its own record is in memory");
    assert_eq!(reads("other", "/accounts?ids=1,2,4", ""), 1, "both in one query");
    assert_eq!(reads("acme", "/accounts?ids=1", ""), 0);
    // What the new read finds counts.
    service.source.rows.lock().insert(OWN, Row::Found(br#""other"{"id":1}"#.to_vec()));
    assert_eq!(service.ask("other", "GET", "/accounts/1", "").status, 200);
}

#[test]
fn size_and_form_of_another_tenants_row_do_not_show() {
    let service = start(Options { answer_bytes: Some(80_000), ..Options::default() });
    let large = format!("\"acme\"{{\"id\":8,\"text\":\"{}\"}}", "x".repeat(100_000));
    service.source.rows.lock().insert(8, Row::Found(large.into_bytes()));
    service.source.rows.lock().insert(9, Row::Unreadable("as the test says".to_owned()));
    service.source.rows.lock().insert(10, Row::Unreadable(FAILS_ALL.to_owned()));
    for is_warm in [false, true] {
        for (target, status) in [
            ("/accounts/8", 404),
            ("/accounts/9", 404),
            ("/accounts/10", 404),
            ("/accounts?ids=2,10", 200),
            ("/accounts?ids=8,9", 200),
            ("/accounts?ids=2,8", 200),
        ] {
            let answer = service.ask("other", "GET", target, "");
            assert_eq!(answer.status, status, "{target}, warm {is_warm}: {answer:?}");
        }
    }
    assert_eq!(service.ask("acme", "GET", "/accounts/8", "").status, 413);
    assert_eq!(service.ask("acme", "GET", "/accounts/9", "").status, 404);
}

#[test]
fn without_access_a_collection_with_tenants_is_closed() {
    let mut config = config();
    config.collections[0].tenancy = Some(Tenancy { hides_existence: false });
    let config = Config { access: None, ..config };
    let server = common::service::Running::start(&config);
    let request = "GET /products/1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let received = common::Client::connect(server.address).send(request).rest();
    assert_eq!(received.statuses(), [401]);
}
