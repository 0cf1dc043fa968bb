//! Server of HOTROW_TEST_MYSQL_URL, `mysql://user:password@host:port/`: TCP, and an account with
//! all privileges.

/// Login data of a server.
#[derive(Clone, Debug)]
pub struct Account {
    pub user: String,
    pub password: String,
    pub host: String,
    pub port: u16,
}

impl Account {
    /// Returns the connection string.
    pub fn url(&self, database: &str) -> String {
        let Self { user, password, host, port } = self;
        let colon = if password.is_empty() { "" } else { ":" };
        format!("mysql://{}{colon}{}@{host}:{port}/{database}", encode(user), encode(password))
    }
}

/// Returns the account of the environment variable.
///
/// # Panics
/// Panics if the variable cannot be parsed.
pub fn account() -> Option<Account> {
    let url = std::env::var("HOTROW_TEST_MYSQL_URL").ok().filter(|url| !url.is_empty())?;
    Some(parse(&url).expect("HOTROW_TEST_MYSQL_URL must be mysql://user:password@host:port/"))
}

fn parse(url: &str) -> Option<Account> {
    let rest = url.strip_prefix("mysql://").or_else(|| url.strip_prefix("mariadb://"))?;
    let (login, address) = rest.split('/').next()?.rsplit_once('@')?;
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "3306"));
    Some(Account {
        user: decode(user)?,
        password: decode(password)?,
        host: host.to_owned(),
        port: port.parse().ok()?,
    })
}

fn encode(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes()
        .map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((plain, encoded)) = rest.split_once('%') {
        bytes.extend_from_slice(plain.as_bytes());
        bytes.push(u8::from_str_radix(encoded.get(..2)?, 16).ok()?);
        rest = &encoded[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).ok()
}
