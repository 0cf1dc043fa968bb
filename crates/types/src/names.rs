//! Names similar to a misspelt one, for "did you mean".

/// Most names of one suggestion.
const NEAREST_SHOWN_MAX: usize = 3;

/// Returns the names most similar to `name`, best first; empty if none is close.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    // A third of the letters may differ: enough for a typo, too little for another word.
    let reach = name.chars().count().clamp(3, 30) / 3;
    let mut near: Vec<(usize, &str)> = known
        .iter()
        .map(|k| (if letters(name) == letters(k) { 1 } else { edit_distance(name, k) }, *k))
        .filter(|(distance, _)| *distance <= reach)
        .collect();
    near.sort_unstable();
    near.into_iter().take(NEAREST_SHOWN_MAX).map(|(_, k)| k).collect()
}

/// Returns the letters in alphabetical order: exchanged ones are one mistake.
fn letters(word: &str) -> Vec<char> {
    let mut letters: Vec<char> = word.chars().collect();
    letters.sort_unstable();
    letters
}

/// Returns the number of insertions, deletions and replacements between two words (Levenshtein, two
/// rows). Only the first 64 characters count.
fn edit_distance(a: &str, b: &str) -> usize {
    const CHARS_MAX: usize = 64;
    let b: Vec<char> = b.chars().take(CHARS_MAX).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().take(CHARS_MAX).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_single_letters() {
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("same", "same"), 0);
        assert_eq!(nearest("capasity", &["capacity", "ttl"]), ["capacity"]);
        assert_eq!(nearest("nwe", &["key", "new"]), ["new"]);
        assert!(nearest("zzz", &["capacity", "ttl"]).is_empty());
    }
}
