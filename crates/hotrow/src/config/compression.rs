//! Compression of the answers of a collection.

use hotrow_config::{Compression, ContentCoding};

use super::collection_context::AccessTraits;
use super::problem::shown;
use super::reader::Section;
use super::units::{KIB, MIB};

/// Least size of a compressed record by default: below it the header fields outweigh the gain.
const BYTES_MIN: u64 = KIB;

/// Reads the settings. With `[access]` nothing is compressed unless it is configured, because the
/// length of a compressed answer can reveal secrets in it (BREACH). Without a cache there is no
/// place for variants.
pub(super) fn compression(section: &mut Section<'_>, access: &AccessTraits) -> Option<Compression> {
    const DEFAULT: &str = "zstd and gzip; with [access] none";
    const RANGE: &str = "a list of \"zstd\" and \"gzip\", the preferred one first";
    let words = section.texts("compression", DEFAULT, RANGE);
    let bytes_min = section.size("compression_min", BYTES_MIN, 0..=16 * MIB);
    let codings = match words {
        None if access.is_configured => Vec::new(),
        None => vec![ContentCoding::Zstd, ContentCoding::Gzip],
        Some(words) => codings(section, &words),
    };
    (access.is_cached && !codings.is_empty()).then_some(Compression { codings, bytes_min })
}

fn codings(section: &Section<'_>, words: &[String]) -> Vec<ContentCoding> {
    let mut codings = Vec::new();
    for word in words {
        match ContentCoding::ALL.into_iter().find(|coding| coding.label() == word) {
            Some(coding) if !codings.contains(&coding) => codings.push(coding),
            Some(_) => {
                section.refuse("compression", format!("must not name {} twice", shown(word)));
            }
            None => section.refuse(
                "compression",
                format!("must be a list of \"zstd\" and \"gzip\", or empty, not {}", shown(word)),
            ),
        }
    }
    codings
}

#[cfg(test)]
mod tests {
    use ContentCoding::{Gzip, Zstd};

    use super::super::{Overrides, parse};
    use super::*;

    fn resolved(collection: &str, more: &str) -> Result<Option<Compression>, String> {
        let text = format!("[source]\nurl = \"sqlite:x\"\n[collections.a]\n{collection}\n{more}\n");
        let unset = |_: &str| Err(std::env::VarError::NotPresent);
        let resolved = parse(&text, "f.toml", &unset, &Overrides::default());
        let collection =
            |mut resolved: super::super::Resolved| resolved.server.collections.remove(0);
        resolved.map(|all| collection(all).compression).map_err(|error| error.to_string())
    }

    #[test]
    fn records_are_compressed_unless_they_are_private_or_not_cached() {
        let some = |codings: &[ContentCoding], bytes_min| {
            Ok(Some(Compression { codings: codings.to_vec(), bytes_min }))
        };
        let access = "[access.roles.r]\ncollections = \"*\"\n[access]\nanonymous_role = \"r\"";
        assert_eq!(resolved("", ""), some(&[Zstd, Gzip], 1024));
        assert_eq!(resolved("compression = []", ""), Ok(None));
        assert_eq!(resolved("compression = \"gzip\"", ""), some(&[Gzip], 1024));
        let order = "compression = [\"gzip\", \"zstd\"]\ncompression_min = \"4KiB\"";
        assert_eq!(resolved(order, ""), some(&[Gzip, Zstd], 4096));
        assert_eq!(resolved("", access), Ok(None));
        assert_eq!(resolved("compression = \"zstd\"", access), some(&[Zstd], 1024));
        assert_eq!(resolved("", "[cache]\nenabled = false"), Ok(None));
    }

    #[test]
    fn unknown_codings_are_refused() {
        for (bad, rule) in [
            ("compression = \"br\"", "collections.a.compression: must be a list of"),
            ("compression = [\"gzip\", \"gzip\"]", "must not name \"gzip\" twice"),
            ("compression = true", "must be a text"),
            ("compression_min = \"17MiB\"", "collections.a.compression_min"),
        ] {
            let error = resolved(bad, "").unwrap_err();
            assert!(error.contains(rule), "{bad}: {error}");
        }
    }
}
