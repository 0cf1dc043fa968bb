//! URL-encoded forms, as browsers send them.

/// The media type of the result of [`encode_form`].
pub const MEDIA_TYPE: &str = "application/x-www-form-urlencoded";

/// Encodes form fields (name and value) as `application/x-www-form-urlencoded`: URL standard of the
/// WHATWG, section 5.2.
#[must_use]
pub fn encoded<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let fields: Vec<String> =
        fields.into_iter().map(|(k, v)| format!("{}={}", escaped(k), escaped(v))).collect();
    fields.join("&")
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'*' | b'-' | b'.' | b'_' => {
                out.push(byte as char)
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_urlencoded() {
        assert_eq!(encoded([("a b&c", "ä/*"), ("d", "")]), "a+b%26c=%C3%A4%2F*&d=");
    }
}
