//! Syntax of the two forms of a connection string.

use hotrow_source::connection_string::{RAW_DELIMITER, has_raw_delimiter};

use super::TargetError;

/// Returns the parameters in the order of the text, percent-decoded or unquoted.
///
/// # Errors
/// [`TargetError::Syntax`], without values.
pub(super) fn parameters(text: &str) -> Result<Vec<(String, String)>, TargetError> {
    let url = ["postgres://", "postgresql://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    let parameters = match url {
        Some(rest) => from_url(rest)?,
        None => from_keywords(text)?,
    };
    match parameters.iter().any(|(_, value)| value.contains('\0')) {
        true => Err(syntax("has a NUL byte in a value")),
        false => Ok(parameters),
    }
}

/// Parses `[user[:password]@][host[:port][,…]][/dbname][?name=value[&…]]`. Source: PostgreSQL
/// documentation, "Connection URIs".
fn from_url(rest: &str) -> Result<Vec<(String, String)>, TargetError> {
    if has_raw_delimiter(rest) {
        return Err(syntax(RAW_DELIMITER));
    }
    let (rest, query) =
        rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let (authority, dbname) =
        rest.split_once('/').map_or((rest, ""), |(authority, name)| (authority, name));
    let (credentials, hosts) = authority
        .rsplit_once('@')
        .map_or((None, authority), |(credentials, hosts)| (Some(credentials), hosts));
    let mut parameters = Vec::new();
    let mut push = |name: &str, value: String| parameters.push((name.to_owned(), value));
    if let Some(credentials) = credentials {
        let (user, password) =
            credentials.split_once(':').map_or((credentials, None), |(u, p)| (u, Some(p)));
        push("user", decode("user", user)?);
        if let Some(password) = password {
            push("password", decode("password", password)?);
        }
    }
    let mut names = Vec::new();
    let mut ports = Vec::new();
    for host in hosts.split(',').filter(|_| !hosts.is_empty()) {
        let (name, port) = host_and_port(host)?;
        names.push(decode("host", name)?);
        ports.push(port);
    }
    if !names.is_empty() {
        push("host", names.join(","));
        push("port", ports.join(","));
    }
    if !dbname.is_empty() {
        push("dbname", decode("dbname", dbname)?);
    }
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| syntax("has a parameter without `=` after the `?`"))?;
        let name = decode("a parameter's name", name)?;
        let value = decode(&name, value)?;
        // Spelling of Java's drivers, which libpq accepts too.
        if name == "ssl" && value == "true" {
            push("sslmode", "require".into())
        } else {
            push(&name, value)
        }
    }
    Ok(parameters)
}

fn host_and_port(host: &str) -> Result<(&str, &str), TargetError> {
    if let Some(rest) = host.strip_prefix('[') {
        let (address, rest) =
            rest.split_once(']').ok_or_else(|| syntax("has a `[` without its `]`"))?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((address, port)),
            None if rest.is_empty() => Ok((address, "")),
            None => Err(syntax("has something after the `]` of an address that is not a port")),
        };
    }
    Ok(host.split_once(':').unwrap_or((host, "")))
}

fn decode(what: &str, text: &str) -> Result<String, TargetError> {
    let bad = || {
        syntax(&format!(
            "has broken percent-encoding in `{what}` (write % followed by two hexadecimal digits)"
        ))
    };
    hotrow_types::key::percent_decode(text).map(std::borrow::Cow::into_owned).map_err(|_| bad())
}

/// Parses `name = value name='a value'`, with `\` before a quote or a backslash. Source: PostgreSQL
/// documentation, "Keyword/Value Connection Strings".
fn from_keywords(text: &str) -> Result<Vec<(String, String)>, TargetError> {
    let mut parameters = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, after) = rest
            .split_once('=')
            .ok_or_else(|| syntax("is not a URL, and no `=` follows a keyword"))?;
        let name = name.trim_end();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(syntax("is not a URL, and no `=` follows a keyword"));
        }
        let (value, after) = keyword_value(after.trim_start())?;
        parameters.push((name.to_owned(), value));
        rest = after.trim_start();
    }
    Ok(parameters)
}

fn keyword_value(text: &str) -> Result<(String, &str), TargetError> {
    let (quoted, text) = text.strip_prefix('\'').map_or((false, text), |text| (true, text));
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            c if !quoted && c.is_whitespace() => return Ok((value, &text[at..])),
            c => value.push(c),
        }
    }
    if quoted { Err(syntax("has a quote that is not closed")) } else { Ok((value, "")) }
}

fn syntax(detail: &str) -> TargetError {
    TargetError::Syntax {
        detail: detail.into(),
        example: "postgres://user:password@host:5432/database",
    }
}
