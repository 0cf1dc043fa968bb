//! The server that HOTROW_TEST_MYSQL_URL names: `mysql://user:password@host:port/`, by TCP, an account that may do all.

/// How to log in.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) user: String,
    pub(super) password: String,
    pub(super) host: String,
    pub(super) port: u16,
}

impl Account {
    /// Its connection string.
    pub(super) fn url(&self, database: &str) -> String {
        let Self { user, password, host, port } = self;
        let colon = if password.is_empty() { "" } else { ":" };
        format!("mysql://{}{colon}{}@{host}:{port}/{database}", encode(user), encode(password))
    }
}

/// The account that the environment names.
///
/// # Panics
/// When it names none that can be understood.
pub(super) fn account() -> Option<Account> {
    let url = std::env::var("HOTROW_TEST_MYSQL_URL").ok().filter(|url| !url.is_empty())?;
    Some(parse(&url).expect("HOTROW_TEST_MYSQL_URL must be mysql://user:password@host:port/"))
}

fn parse(url: &str) -> Option<Account> {
    let rest = url.strip_prefix("mysql://").or_else(|| url.strip_prefix("mariadb://"))?;
    let (login, place) = rest.split('/').next()?.rsplit_once('@')?;
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let (host, port) = place.rsplit_once(':').unwrap_or((place, "3306"));
    Some(Account { user: decode(user)?, password: decode(password)?, host: host.to_owned(), port: port.parse().ok()? })
}

fn encode(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

fn decode(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some((plain, coded)) = rest.split_once('%') {
        bytes.extend_from_slice(plain.as_bytes());
        bytes.push(u8::from_str_radix(coded.get(..2)?, 16).ok()?);
        rest = &coded[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).ok()
}
