use super::*;

fn tcp(name: &str, port: u16) -> Host {
    Host::Tcp { name: name.into(), address: None, port }
}

#[test]
fn a_url_is_read_as_libpq_reads_it() {
    let t = Target::parse(
        "postgres://al%40ice:se%3Acr%2Fet@db-1:6000,db-2,[::1]:7/sh%20op\
         ?sslmode=verify-full&connect_timeout=3",
    )
    .unwrap();
    assert_eq!(t.hosts, [tcp("db-1", 6000), tcp("db-2", 5432), tcp("::1", 7)]);
    assert_eq!((t.user.as_str(), t.dbname.as_str()), ("al@ice", "sh op"));
    assert_eq!(t.password, Some(Password("se:cr/et".into())));
    assert_eq!(t.encryption.mode, SslMode::VerifyFull);
    assert_eq!(t.connect_timeout, Some(Duration::from_secs(3)));
    assert_eq!(t.hosts[2].to_string(), "[::1]:7");

    let t = Target::parse("postgresql://%2Fvar%2Frun/shop?user=u&port=5433").unwrap();
    assert_eq!(t.hosts, [Host::Unix { folder: "/var/run".into(), port: 5433 }]);
    assert_eq!(t.hosts[0].to_string(), "/var/run/.s.PGSQL.5433");
    assert_eq!(t.attempts(&t.hosts[0]), [Encryption::Plain]);
}

#[test]
fn keywords_are_read_as_libpq_reads_them() {
    let t = Target::parse(
        r"host=a,b port = 1 user='o\'neil' password=p\ w\\x dbname='' hostaddr=10.0.0.1,::2",
    )
    .unwrap();
    assert_eq!(
        t.hosts[0],
        Host::Tcp { name: "a".into(), address: "10.0.0.1".parse().ok(), port: 1 }
    );
    assert_eq!(t.hosts[1], Host::Tcp { name: "b".into(), address: "::2".parse().ok(), port: 1 });
    assert_eq!((t.user.as_str(), t.dbname.as_str()), ("o'neil", "o'neil"));
    assert_eq!(t.password, Some(Password(r"p w\x".into())));
    assert_eq!(t.encryption.mode, SslMode::Prefer);
    assert_eq!(t.attempts(&t.hosts[0]), [Encryption::IfOffered, Encryption::Plain]);
}

#[test]
fn messages_name_the_fault() {
    for (text, fragment) in [
        ("nonsense", "no `=` follows a keyword"),
        (
            "postgres://u@h/db?sslmod=require",
            "`sslmod`, which is not supported here; remove it or correct",
        ),
        ("postgres://u@h/db?passfile=/x", "${VARIABLE}"),
        (
            "postgres://u@h/db?sslmode=on",
            "possible here: disable, allow, prefer, require, verify-ca, verify-full",
        ),
        (
            "postgres://u@h/db?target_session_attrs=standby",
            "possible here: read-write, primary, any",
        ),
        ("postgres://u@h:0/db", "1 to 65535"),
        ("postgres://u@h:x/db", "1 to 65535"),
        ("postgres://u@h%2/db", "percent-encoding in `host`"),
        ("postgres://u@h/d%00b", "NUL"),
        ("postgres://u@[::1/db", "without its `]`"),
        ("host=a,b,c port=1,2 user=u", "2 ports for 3 hosts"),
        ("host=a hostaddr=1.1.1.1,2.2.2.2 user=u", "1 values in `host` for 2"),
        ("host=a hostaddr=x user=u", "IPv4 or IPv6"),
        ("host='a", "not closed"),
        ("host=a user=u sslcert=/c", "needs both"),
        ("host=a user=u sslrootcert=system sslmode=require", "verify-full"),
        ("host=a user=u sslnegotiation=direct", "needs `sslmode=require`"),
        ("host=a user=u keepalives_idle=-1", "0 or more"),
    ] {
        let message = Target::parse(text).unwrap_err().to_string();
        assert!(message.contains(fragment), "{text}: {message}");
    }
    assert!(
        TargetBuilder::default().finish(None).unwrap_err().to_string().contains("names no user")
    );
}

#[test]
fn no_message_shows_a_password() {
    for text in [
        "postgres://u:hush%2@h/db",
        "postgres://u:hush@h:x/db",
        "postgres://u:hush/x@h/db",
        "host=h password='hush",
        "hush",
    ] {
        let message = Target::parse(text).unwrap_err().to_string();
        assert!(!message.contains("hush"), "{message}");
    }
    let target = Target::parse("postgres://u:hush@h/db").unwrap();
    assert!(!format!("{target:?}").contains("hush"));
}

#[test]
fn the_systems_certificates_mean_the_strictest_mode() {
    let target = Target::parse("host=a user=u sslrootcert=system").unwrap();
    assert_eq!(
        (target.encryption.mode, target.encryption.root),
        (SslMode::VerifyFull, Root::System)
    );
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(postgres://)?[a-z@:/?&=%,\\[\\]' \\\\0-9é]{0,60}") {
        let _ = Target::parse(&text);
    }

    #[test]
    fn percent_encoded_text_is_decoded(user in "[^\\x00]{1,20}", password in "[^\\x00]{1,20}") {
        let encode = |text: &str| text.bytes().map(|b| format!("%{b:02X}")).collect::<String>();
        let url = format!("postgres://{}:{}@h/db", encode(&user), encode(&password));
        let target = Target::parse(&url).unwrap();
        assert_eq!((target.user, target.password), (user, Some(Password(password))));
    }
}
