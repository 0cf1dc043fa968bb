//! Connection strings: parsing, and errors that do not show passwords.

use super::*;

fn parsed(text: &str) -> Target {
    Target::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn all_components_are_parsed() {
    let t = parsed(
        "mysql://us%40er:p%2Fw%3A@db1,[::1]:3307/shop?ssl-mode=VERIFY_IDENTITY&ssl-ca=/ca.pem\
         &connect-timeout=7",
    );
    assert_eq!(
        t.hosts,
        [
            Host::Tcp { name: "db1".into(), port: 3306 },
            Host::Tcp { name: "::1".into(), port: 3307 }
        ]
    );
    assert_eq!((t.user.as_str(), t.database.as_str()), ("us@er", "shop"));
    assert_eq!(t.password, Some(Password("p/w:".into())));
    assert_eq!(
        (t.encryption.mode, t.encryption.ca),
        (SslMode::VerifyIdentity, Some("/ca.pem".into()))
    );
    assert_eq!(t.connect_timeout, Some(Duration::from_secs(7)));
    let t = parsed("mariadb://reader@/shop?socket=/run/mysqld/mysqld.sock");
    assert_eq!(t.hosts, [Host::Unix { path: "/run/mysqld/mysqld.sock".into() }]);
    assert_eq!((t.password, t.encryption.mode), (None, SslMode::Preferred));
    assert_eq!(t.hosts[0].to_string(), "/run/mysqld/mysqld.sock");
    assert_eq!(parsed("mysql://u@[fe80::1]/d").hosts[0].to_string(), "[fe80::1]:3306");
}

#[test]
fn errors_name_the_problem_and_show_no_password() {
    for (text, expected) in [
        ("postgres://u:hunter2@h/d", "neither"),
        ("mysql://:hunter2@h/d", "no user"),
        ("mysql://u:hunter2@h", "one database"),
        ("mysql://u:hunter2/@h/d", "%2F"),
        ("mysql://u:hunter2@/d", "no host"),
        ("mysql://u:hunter2@h,/d", "empty host"),
        ("mysql://u:hunter2@h:0/d", "port"),
        ("mysql://u:hun/ter2@h:1/d", "%2F"),
        ("mysql://u:hunter2%zz@h/d", "percent-encoding in the password"),
        ("mysql://u:hunter2@h/d?sslmode=require", "`sslmode`"),
        ("mysql://u:hunter2@h/d?ssl-mode=verify-ca", "verify-identity"),
        ("mysql://u:hunter2@h/d?ssl-mode=on", "supported: disabled"),
        ("mysql://u:hunter2@h/d?ssl-ca=/x", "nothing would be checked"),
        ("mysql://u:hunter2@h/d?ssl-cert=/x", "only one"),
        ("mysql://u:hunter2@h/d?socket=/x", "both a host and"),
        ("mysql://u:hunter2@h/d?connect-timeout=0", "from 1 to 3600"),
        ("mysql://u:hunter2@h/d?charset", "without `=`"),
    ] {
        let error = Target::parse(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains("hun"), "{text}: {error}");
    }
    let many = vec!["h"; HOSTS_MAX + 1].join(",");
    assert!(
        Target::parse(&format!("mysql://u@{many}/d"))
            .expect_err("too many")
            .to_string()
            .contains("more than 32")
    );
    assert!(!format!("{:?}", parsed("mysql://u:hunter2@h/d")).contains("hunter2"));
}
