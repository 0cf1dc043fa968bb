//! Lifetime of cached responses, including the change of date at midnight.

use super::writer::Writer;

/// Writes a variable that is 1 for responses whose own lifetime is shorter than `ttl_s`, or that
/// must not be cached.
///
/// nginx cannot take the minimum of two times, so such a response is not stored: never too old, at
/// the cost of some requests.
pub(super) fn short_lived(w: &mut Writer, ttl_s: u32) {
    w.open(
        "map \"$upstream_http_cache_control|$upstream_http_expires\" $short_lived",
        "1 if the response's own lifetime is shorter than the cache's (the date, just before \
         midnight), or zero.",
    );
    w.line(r#""~*(?:^|[\s,])(?:no-store|no-cache|private)" 1;"#, "");
    w.line(
        &format!(r#""~*(?:^|[\s,])(?:s-maxage|max-age)=\"?0*(?:{})(?!\d)" 1;"#, below(ttl_s)),
        &format!("Less than {ttl_s} s."),
    );
    w.line(r#""~^\|." 1;"#, "Expires alone is a date, which cannot be compared here.");
    w.line("default 0;", "");
    w.close();
}

/// Writes a fixed lifetime for all responses except short-lived ones.
pub(super) fn fixed(w: &mut Writer) {
    w.line(
        "proxy_ignore_headers Cache-Control Expires;",
        "They would override the line above: a response with max-age until midnight would be \
         cached until then.",
    );
    w.line("proxy_no_cache $short_lived;", "Responses with a shorter lifetime are not stored.");
}

/// Writes the lifetime from the backend's headers.
pub(super) fn from_backend(w: &mut Writer) {
    w.line(
        "proxy_cache_background_update on;",
        "Where the backend allows stale-while-revalidate, an expired answer is served while a new \
         one is fetched. There is no proxy_cache_use_stale here: it would do so for all, and serve \
         yesterday's date after midnight.",
    );
    w.line(
        "proxy_cache_revalidate on;",
        "Revalidates expired responses with If-None-Match or If-Modified-Since.",
    );
}

/// Returns a regular expression for the decimal numbers below `n`, without leading zeros.
fn below(n: u32) -> String {
    let digits: Vec<u32> = n.to_string().chars().filter_map(|c| c.to_digit(10)).collect();
    let mut alternatives = Vec::new();
    if digits.len() > 1 {
        alternatives.push(format!(r"\d{{1,{}}}", digits.len() - 1));
    }
    for (i, digit) in digits.iter().enumerate().filter(|(_, digit)| **digit > 0) {
        let same: String = digits[..i].iter().map(u32::to_string).collect();
        let rest = match digits.len() - i - 1 {
            0 => String::new(),
            n => format!(r"\d{{{n}}}"),
        };
        alternatives.push(format!("{same}[0-{}]{rest}", digit - 1));
    }
    alternatives.join("|")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether `text` fully matches the output of [`below`]: digits, classes and counts, in
    /// alternatives.
    fn matches(alternatives: &str, text: &str) -> bool {
        alternatives.split('|').any(|alternative| alternative_matches(alternative, text))
    }

    fn alternative_matches(alternative: &str, text: &str) -> bool {
        if let Some(counts) = alternative.strip_prefix(r"\d{") {
            let (counts, rest) = counts.split_once('}').unwrap();
            let (least, most) = counts.split_once(',').unwrap_or((counts, counts));
            let (least, most): (usize, usize) = (least.parse().unwrap(), most.parse().unwrap());
            return (least..=most.min(text.len())).any(|n| alternative_matches(rest, &text[n..]));
        }
        if let Some(class) = alternative.strip_prefix('[') {
            let (class, rest) = class.split_once(']').unwrap();
            let (low, high) = class.split_once('-').unwrap();
            return text.chars().next().is_some_and(|c| (low..=high).contains(&&*c.to_string()))
                && alternative_matches(rest, &text[1..]);
        }
        match (alternative.chars().next(), text.chars().next()) {
            (None, None) => true,
            (Some(w), Some(t)) => w == t && alternative_matches(&alternative[1..], &text[1..]),
            _ => false,
        }
    }

    #[test]
    fn the_expression_matches_exactly_the_smaller_numbers() {
        for n in (1..130).chain([500, 999, 1000, 1001, 3600, 9999, 10_000, 86_400, 90_210]) {
            let alternatives = below(n);
            for number in
                (0..1_500).chain(n.saturating_sub(300)..n + 300).chain([10 * n, 10 * n + 1])
            {
                assert_eq!(
                    matches(&alternatives, &number.to_string()),
                    number < n,
                    "{number}, {n}: {alternatives}"
                );
            }
        }
    }
}
