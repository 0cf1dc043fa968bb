//! Columns of records: the members of a JSON object, and the sets of them that a client may see.
//!
//! A record is compact JSON of this service's own writing. The ends of its members are found once,
//! when it is read; a narrower view is then put together from pieces, without parsing.

use std::borrow::Cow;

use serde_json::Value;

/// Columns by their labels: `"name":`, as records have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns(Box<[Box<[u8]>]>);

impl Columns {
    /// Takes columns by their names, in any order.
    #[must_use]
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::of_labels(names.into_iter().map(label).collect())
    }

    /// Returns whether the column of this name is one of them.
    pub fn has(&self, name: &str) -> bool {
        self.contains(&label(name))
    }

    /// Returns the names, in the order of their labels.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let name = |label: &[u8]| serde_json::from_slice(label.strip_suffix(b":")?).ok();
        self.0.iter().filter_map(move |label| name(label))
    }

    fn of_labels(mut labels: Vec<Box<[u8]>>) -> Self {
        labels.sort_unstable();
        labels.dedup();
        Self(labels.into())
    }

    /// Returns the columns of both sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::of_labels(self.0.iter().chain(&other.0).cloned().collect())
    }

    fn contains(&self, label: &[u8]) -> bool {
        self.0.binary_search_by(|own| (**own).cmp(label)).is_ok()
    }

    /// Returns the members of an object that are of these columns, each with its label, in their
    /// order. `ends`: see [`member_ends`].
    pub fn members<'a>(
        &self,
        object: &'a [u8],
        ends: impl IntoIterator<Item = usize>,
    ) -> impl Iterator<Item = &'a [u8]> {
        let mut start = 1;
        ends.into_iter().filter_map(move |end| {
            let member = object.get(start..end).unwrap_or_default();
            start = end + 1;
            self.contains(label_of(member)).then_some(member)
        })
    }
}

fn label(name: &str) -> Box<[u8]> {
    format!("{}:", Value::from(name)).into_bytes().into_boxed_slice()
}

/// Returns the label at the beginning of a member, with its colon.
pub fn label_of(member: &[u8]) -> &[u8] {
    let mut is_escaped = false;
    for (i, byte) in member.iter().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return member.get(..i + 2).unwrap_or_default(),
            _ => {}
        }
    }
    &[]
}

/// Returns the value of a member as text: that of a JSON string, or the JSON itself. `None`: the
/// bytes are no member, or its value is null.
pub fn text_of(member: &[u8]) -> Option<Cow<'_, str>> {
    let value = member.strip_prefix(label_of(member)).filter(|value| *value != b"null")?;
    match value.first()? {
        b'"' => serde_json::from_slice(value).ok().map(Cow::Owned),
        _ => std::str::from_utf8(value).ok().map(Cow::Borrowed),
    }
}

/// Returns the end of each member of a JSON object without white space around its members. `None`:
/// the bytes are no such object.
pub fn member_ends(object: &[u8]) -> Option<Vec<usize>> {
    let inner = object.strip_prefix(b"{")?.strip_suffix(b"}")?;
    let mut ends = Vec::new();
    let mut depth = 0_usize;
    let (mut is_text, mut is_escaped) = (false, false);
    for (i, byte) in inner.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            // One byte of the object precedes.
            b',' if depth == 0 => ends.push(i + 1),
            _ => {}
        }
    }
    if depth > 0 || is_text {
        return None;
    }
    if !inner.is_empty() {
        ends.push(inner.len() + 1);
    }
    Some(ends)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn cut(object: &str, names: &[&str]) -> Vec<String> {
        let ends = member_ends(object.as_bytes()).expect("an object");
        let columns = Columns::new(names.iter().copied());
        let members = columns.members(object.as_bytes(), ends);
        members.map(|member| String::from_utf8_lossy(member).into_owned()).collect()
    }

    #[test]
    fn members_are_found_by_their_labels() {
        let object = r#"{"id":1,"a\"b":"x,\"}{","list":[1,{"id":2}],"näme":null,"":{"a":[]}}"#;
        assert_eq!(cut(object, &["id"]), [r#""id":1"#]);
        assert_eq!(
            cut(object, &["a\"b", "list"]),
            [r#""a\"b":"x,\"}{""#, r#""list":[1,{"id":2}]"#]
        );
        assert_eq!(cut(object, &["", "näme", "other"]), [r#""näme":null"#, r#""":{"a":[]}"#]);
        for none in [&[][..], &["i", "idd", "ID", "a", "b", "1"]] {
            assert!(cut(object, none).is_empty(), "{none:?}");
        }
        assert!(cut("{}", &["id"]).is_empty());
    }

    #[test]
    fn values_of_members_are_texts() {
        for (member, text) in [
            (r#""id":7"#, Some("7")),
            (r#""id":"a\"b\u00e9""#, Some("a\"bé")),
            (r#""a:\"b":"x""#, Some("x")),
            (r#""a":null"#, None),
            (r#""a":"#, None),
            ("7", Some("7")),
            ("", None),
        ] {
            assert_eq!(text_of(member.as_bytes()).as_deref(), text, "{member}");
        }
    }

    #[test]
    fn what_is_no_object_has_no_members() {
        for text in
            ["", "{", "}", "[]", "1", "{\"a\":1", "{\"a\":[}", "{\"a\":\"}", "{]}", "{\"a\":}}"]
        {
            assert_eq!(member_ends(text.as_bytes()), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_object_is_cut_as_a_parser_would(
            names in proptest::collection::vec(".{0,6}", 0..8),
            values in proptest::collection::vec(".{0,12}", 8),
            granted in proptest::collection::vec(proptest::bool::ANY, 8),
        ) {
            let value = |i: usize| match i % 3 {
                0 => Value::from(values[i].as_str()),
                1 => serde_json::json!([values[i], {values[i].as_str(): i}]),
                _ => Value::from(i),
            };
            let members: serde_json::Map<String, Value> =
                names.iter().enumerate().map(|(i, name)| (name.clone(), value(i))).collect();
            let is_granted = |name: &str| {
                names.iter().position(|known| known == name).is_some_and(|i| granted[i])
            };
            let text = Value::Object(members.clone()).to_string();
            let ends = member_ends(text.as_bytes()).expect("an object");
            proptest::prop_assert_eq!(ends.len(), members.len());
            let own = names.iter().map(String::as_str).filter(|name| is_granted(name));
            let columns = Columns::new(own.clone());
            let own: BTreeSet<String> = own.map(str::to_owned).collect();
            proptest::prop_assert_eq!(columns.names().collect::<BTreeSet<_>>(), own);
            let cut: Vec<&[u8]> = columns.members(text.as_bytes(), ends).collect();
            let view: Value =
                serde_json::from_slice(&[b"{", &cut.join(&b',')[..], b"}"].concat()).expect("JSON");
            let expected: serde_json::Map<String, Value> =
                members.into_iter().filter(|(name, _)| is_granted(name)).collect();
            proptest::prop_assert_eq!(view, Value::Object(expected));
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let object = [b"{", &bytes[..], b"}"].concat();
            let ends = member_ends(&object).unwrap_or_else(|| vec![1, 0, 900]);
            let members = Columns::new(["a"]).members(&object, ends).count();
            proptest::prop_assert!(members <= object.len());
        }
    }
}
