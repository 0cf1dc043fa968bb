//! What can be said without nginx; what it makes of it is in the tests of the binary.

use super::*;

fn backend(weight: u32, port: u16) -> Backend {
    Backend { address: SocketAddr::from(([127, 0, 0, 1], port)), weight }
}

fn front(form: Form) -> Front {
    Front::new(form, 8000, vec![backend(4, 1), backend(1, 2)], PathBuf::from("/tmp/a b"))
}

#[test]
fn a_wrong_front_is_refused_with_the_rule_and_the_value() {
    type Spoil = fn(&mut Front);
    let cases: [(Spoil, &str); 11] = [
        (|f| f.backends.clear(), "0 backends: there must be 1 to 256"),
        (|f| f.backends = vec![backend(1, 1); 257], "257 backends: there must be 1 to 256"),
        (|f| f.backends[1].weight = 0, "the weight of backend 127.0.0.1:2 is 0: it must be 1 to 1000"),
        (|f| f.backends[0].weight = 1_001, "the weight of backend 127.0.0.1:1 is 1001"),
        (|f| f.cache = Some(Cache { ttl_s: 0, life: Life::AtMost }), "kept for 0 s"),
        (|f| f.cache = Some(Cache { ttl_s: u32::MAX, life: Life::AsTold }), "kept for 4294967295 s"),
        (|f| f.upstream_keepalive = Some(0), "0 connections are to be kept open"),
        (|f| f.workers = Some(0), "0 worker processes"),
        (|f| f.folder = PathBuf::from("here"), "the path \"here\" is not absolute"),
        (|f| f.folder = PathBuf::from("/$x"), "contains a $"),
        (|f| f.tls = Some(Tls { certificate: "/a\nb".into(), key: "/k".into() }), "contains a control character"),
    ];
    front(Form::Tuned).validate().unwrap();
    for (spoil, why) in cases {
        let mut front = front(Form::Tuned);
        spoil(&mut front);
        let error = front.validate().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn the_original_form_has_the_originals_settings() {
    let text = configuration(&front(Form::Original));
    for line in [
        "worker_processes auto;",
        "worker_connections 8000;",
        "multi_accept on;",
        "access_log off;",
        "proxy_buffers 32 4m;",
        "proxy_http_version 1.0;",
    ] {
        assert!(text.lines().any(|is| is.trim() == line), "{line} is not in\n{text}");
    }
    for not in ["keepalive", "proxy_cache", "weight=", "least_conn", "hash", "ssl", "#"] {
        assert!(!text.contains(not), "{not} is in\n{text}");
    }
}

#[test]
fn comments_change_nothing_but_comments() {
    for form in [Form::Original, Form::Tuned] {
        let mut front = front(form);
        front.cache = Some(Cache { ttl_s: 60, life: Life::AtMost });
        let plain = configuration(&front);
        front.comments = true;
        let commented = configuration(&front);
        let without: Vec<_> = commented.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
        assert_eq!(without.join("\n"), plain.trim_end());
        assert!(commented.lines().all(|line| line.len() <= 130), "{commented}");
        assert!(commented.lines().count() > plain.lines().count() + 15);
    }
}

#[test]
fn its_command_line_serves_in_the_foreground() {
    let argv = argv(Path::new("/usr/sbin/nginx"), &front(Form::Tuned));
    let expected =
        ["/usr/sbin/nginx", "-p", "/tmp/a b", "-c", "/tmp/a b/nginx.conf", "-e", "stderr", "-g", "daemon off;"];
    assert_eq!(argv, expected);
}

#[test]
fn words_for_reports() {
    let mut front = front(Form::Original);
    let words = |f: &Front| [f.proxy_words(), f.caching_words(), f.balancing_words()].join("; ");
    assert_eq!(words(&front), "nginx, original form; none; round robin over 2");
    front.balance = Balance::Weights;
    front.cache = Some(Cache { ttl_s: 1, life: Life::AtMost });
    assert_eq!(words(&front), "nginx, original form; 1 s in nginx; weights 4:1");
    front.backends.pop();
    front.form = Form::Tuned;
    front.tls = Some(Tls::within(Path::new("/t")));
    front.cache = Some(Cache { ttl_s: 1, life: Life::AsTold });
    assert_eq!(words(&front), "nginx, tuned form, TLS; in nginx as the service says, else 1 s; none");
}

#[test]
fn a_template_is_filled() {
    let mut front = front(Form::Tuned);
    front.balance = Balance::Weights;
    front.tls = Some(Tls::within(Path::new("/t")));
    front.cache = Some(Cache { ttl_s: 9, life: Life::AtMost });
    front.as_root = true;
    let text =
        "{user} a{b {} {A} {2,} \"{folder}/x\" {listen} {port} {cache_s} {keepalive} {certificate} {key} {backends}";
    let filled = from_template(text, &front).unwrap();
    let backends = "server 127.0.0.1:1 weight=4;\n        server 127.0.0.1:2;";
    assert_eq!(
        filled,
        format!(
            "user root; a{{b {{}} {{A}} {{2,}} \"/tmp/a b/x\" 127.0.0.1:8000 8000 9 64 \"/t/certificate.pem\" \
             \"/t/certificate.key\" {backends}"
        )
    );
}

#[test]
fn a_wrong_template_is_refused_with_its_line() {
    let front = front(Form::Original);
    for (text, why) in [
        (
            "\n\n{listen} {backend}",
            "line 3 of the template: {backend} is no placeholder; there are {listen}, {port}, {backends}",
        ),
        ("{listen}\n{cache_s}", "line 2 of the template: {cache_s} has no value, for the set-up has no cache"),
        ("{keepalive}", "has no connections that are kept open"),
        ("{certificate}", "has no TLS"),
        ("{key}", "has no TLS"),
        ("{backends}", "the template does not use {listen}"),
        ("{port}", "the template does not use {backends}"),
        ("", "the template does not use {listen}"),
        ("{", "the template does not use {listen}"),
        ("{listen", "the template does not use {listen}"),
    ] {
        let error = from_template(text, &front).unwrap_err().to_string();
        assert!(error.contains(why), "{text:?}: {error}");
    }
}

#[test]
fn the_key_of_a_certificate_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    // One that is there and open to all is replaced, not filled.
    let tls = Tls::within(folder.path());
    std::fs::write(&tls.key, "old").unwrap();
    std::fs::set_permissions(&tls.key, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(self_signed(folder.path()).unwrap(), tls);
    assert_eq!(std::fs::metadata(&tls.key).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(std::fs::read_to_string(&tls.key).unwrap().starts_with("-----BEGIN PRIVATE KEY-----"));
    assert!(std::fs::read_to_string(&tls.certificate).unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
}
