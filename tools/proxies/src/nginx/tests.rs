//! Tests without nginx itself; the tests of the binary run it.

use super::*;

fn backend(weight: u32, port: u16) -> Backend {
    Backend { address: SocketAddr::from(([127, 0, 0, 1], port)), weight }
}

fn proxy(profile: ProxyProfile) -> NginxProxy {
    NginxProxy::new(profile, 8000, vec![backend(4, 1), backend(1, 2)], PathBuf::from("/tmp/a b"))
}

#[test]
fn an_invalid_proxy_is_refused_with_the_rule_and_the_value() {
    type Corruption = fn(&mut NginxProxy);
    let cases: [(Corruption, &str); 15] = [
        (|f| f.backends.clear(), "0 backends: must be 1 to 256"),
        (|f| f.backends = vec![backend(1, 1); 257], "257 backends: must be 1 to 256"),
        (
            |f| f.backends[1].weight = 0,
            "the weight of backend 127.0.0.1:2 is 0: it must be 1 to 1000",
        ),
        (|f| f.backends[0].weight = 1_001, "the weight of backend 127.0.0.1:1 is 1001"),
        (
            |f| f.cache = Some(Cache { ttl_s: 0, lifetime: CacheLifetime::Fixed }),
            "cache time of 0 s",
        ),
        (
            |f| f.cache = Some(Cache { ttl_s: u32::MAX, lifetime: CacheLifetime::FromBackend }),
            "cache time of 4294967295 s",
        ),
        (|f| f.upstream_keepalive = Some(0), "upstream keep-alive of 0 connections"),
        (|f| f.workers = Some(0), "0 worker processes"),
        (|f| f.gzip = Some(10), "gzip level 10"),
        (|f| f.response_rate = Some(0), "response rate of 0"),
        (|f| f.failover.backups = 2, "2 of 2 backends are backups"),
        (
            |f| {
                f.failover.backups = 1;
                f.balance = Balance::IpHash;
            },
            "1 of 2 backends are backups",
        ),
        (|f| f.folder = PathBuf::from("here"), "the path \"here\" is not absolute"),
        (|f| f.folder = PathBuf::from("/$x"), "contains a $"),
        (
            |f| f.tls = Some(Tls { certificate: "/a\nb".into(), key: "/k".into() }),
            "contains a control character",
        ),
    ];
    proxy(ProxyProfile::Tuned).validate().unwrap();
    for (corrupt, why) in cases {
        let mut proxy = proxy(ProxyProfile::Tuned);
        corrupt(&mut proxy);
        let error = proxy.validate().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn the_published_profile_has_the_published_settings() {
    let text = configuration(&proxy(ProxyProfile::Published));
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
fn comments_change_no_directive() {
    for profile in [ProxyProfile::Published, ProxyProfile::Tuned] {
        let mut proxy = proxy(profile);
        proxy.cache = Some(Cache { ttl_s: 60, lifetime: CacheLifetime::Fixed });
        let plain = configuration(&proxy);
        proxy.comments = true;
        let commented = configuration(&proxy);
        let without: Vec<_> =
            commented.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
        assert_eq!(without.join("\n"), plain.trim_end());
        assert!(commented.lines().all(|line| line.len() <= 130), "{commented}");
        assert!(commented.lines().count() > plain.lines().count() + 15);
    }
}

#[test]
fn the_command_line_serves_in_the_foreground() {
    let argv = argv(Path::new("/usr/sbin/nginx"), &proxy(ProxyProfile::Tuned));
    let expected = [
        "/usr/sbin/nginx",
        "-p",
        "/tmp/a b",
        "-c",
        "/tmp/a b/nginx.conf",
        "-e",
        "stderr",
        "-g",
        "daemon off;",
    ];
    assert_eq!(argv, expected);
}

#[test]
fn descriptions_for_reports() {
    let mut proxy = proxy(ProxyProfile::Published);
    let words = |f: &NginxProxy| {
        [f.describe_proxy(), f.describe_caching(), f.describe_balancing()].join("; ")
    };
    assert_eq!(words(&proxy), "nginx, published profile; none; round robin over 2");
    proxy.balance = Balance::Weights;
    proxy.cache = Some(Cache { ttl_s: 1, lifetime: CacheLifetime::Fixed });
    assert_eq!(words(&proxy), "nginx, published profile; 1 s in nginx; weights 4:1");
    proxy.backends.pop();
    proxy.profile = ProxyProfile::Tuned;
    proxy.tls = Some(Tls::within(Path::new("/t")));
    proxy.cache = Some(Cache { ttl_s: 1, lifetime: CacheLifetime::FromBackend });
    assert_eq!(
        words(&proxy),
        "nginx, tuned profile, TLS; in nginx by Cache-Control, else 1 s; none"
    );
}

#[test]
fn a_template_is_filled() {
    let mut proxy = proxy(ProxyProfile::Tuned);
    proxy.balance = Balance::Weights;
    proxy.tls = Some(Tls::within(Path::new("/t")));
    proxy.cache = Some(Cache { ttl_s: 9, lifetime: CacheLifetime::Fixed });
    proxy.as_root = true;
    let text = "{user} a{b {} {A} {2,} \"{folder}/x\" {listen} {port} {cache_s} {keepalive} \
                {certificate} {key} {backends}";
    let filled = from_template(text, &proxy).unwrap();
    let backends = "server 127.0.0.1:1 weight=4;\n        server 127.0.0.1:2;";
    assert_eq!(
        filled,
        format!(
            "user root; a{{b {{}} {{A}} {{2,}} \"/tmp/a b/x\" 127.0.0.1:8000 8000 9 64 \
             \"/t/certificate.pem\" \"/t/certificate.key\" {backends}"
        )
    );
}

#[test]
fn an_invalid_template_is_refused_with_its_line() {
    let proxy = proxy(ProxyProfile::Published);
    for (text, why) in [
        (
            "\n\n{listen} {backend}",
            "line 3 of the template: {backend} is not a placeholder; known ones are {listen}, \
             {port}, {backends}",
        ),
        (
            "{listen}\n{cache_s}",
            "line 2 of the template: {cache_s} has no value, because the deployment has no cache",
        ),
        ("{keepalive}", "has no upstream keep-alive"),
        ("{certificate}", "has no TLS"),
        ("{key}", "has no TLS"),
        ("{backends}", "the template does not use {listen}"),
        ("{port}", "the template does not use {backends}"),
        ("", "the template does not use {listen}"),
        ("{", "the template does not use {listen}"),
        ("{listen", "the template does not use {listen}"),
    ] {
        let error = from_template(text, &proxy).unwrap_err().to_string();
        assert!(error.contains(why), "{text:?}: {error}");
    }
}

#[test]
fn only_the_owner_can_read_the_key() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    // An existing world-readable key is replaced, not overwritten in place.
    let tls = Tls::within(folder.path());
    std::fs::write(&tls.key, "old").unwrap();
    std::fs::set_permissions(&tls.key, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(self_signed(folder.path()).unwrap(), tls);
    assert_eq!(std::fs::metadata(&tls.key).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(std::fs::read_to_string(&tls.key).unwrap().starts_with("-----BEGIN PRIVATE KEY-----"));
    assert!(
        std::fs::read_to_string(&tls.certificate)
            .unwrap()
            .starts_with("-----BEGIN CERTIFICATE-----")
    );
}

#[test]
fn further_settings_are_written_when_chosen() {
    let mut proxy = proxy(ProxyProfile::Tuned);
    assert!(!configuration(&proxy).contains("next_upstream"));
    proxy.failover =
        Failover { max_fails: Some(2), fail_timeout_s: Some(3), backups: 1, retry: false };
    let text = configuration(&proxy);
    for line in [
        "server 127.0.0.1:1 max_fails=2 fail_timeout=3s;",
        "server 127.0.0.1:2 max_fails=2 fail_timeout=3s backup;",
        "proxy_next_upstream off;",
    ] {
        assert!(text.lines().any(|is| is.trim() == line), "{line} is not in\n{text}");
    }
    proxy.failover = Failover::default();
    (proxy.gzip, proxy.response_rate) = (Some(6), Some(1_000));
    let text = configuration(&proxy);
    for line in ["gzip on;", "gzip_comp_level 6;", "limit_rate 1000;"] {
        assert!(text.lines().any(|is| is.trim() == line), "{line} is not in\n{text}");
    }
    proxy.balance = Balance::IpHash;
    assert!(configuration(&proxy).contains("ip_hash;"));
}
