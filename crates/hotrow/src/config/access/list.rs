//! Lists of texts of `[access]`.

use crate::config::reader::Section;

/// Most values of the role claim for one role, audiences, or levels of the claim's path.
pub(super) const LIST_MAX: usize = 64;
/// Most bytes of an issuer, an audience or a value of the role claim.
const TEXT_BYTES_MAX: usize = 512;

/// Reads one text or a list of texts of bounded length, if the key is set.
pub(super) fn list(
    section: &mut Section<'_>,
    name: &'static str,
    default: &str,
) -> Option<Vec<String>> {
    let list = section.texts(name, default, "a text or a list of up to 64, of 1 to 512 bytes")?;
    let fits = |text: &String| (1..=TEXT_BYTES_MAX).contains(&text.len());
    if !(1..=LIST_MAX).contains(&list.len()) || !list.iter().all(fits) {
        section.refuse(
            name,
            format!("must be 1 to {LIST_MAX} texts of 1 to {TEXT_BYTES_MAX} bytes each"),
        );
    }
    Some(list)
}
