//! How long answers live: the part of the cache in which midnight can go wrong.

use super::writer::Writer;

/// A variable that is 1 for answers that the backend wants kept for less than `ttl_s`, or not at all.
///
/// nginx cannot take the smaller of two times, so such an answer is not kept: never too old, at the price of some requests.
pub(super) fn too_brief(w: &mut Writer, ttl_s: u32) {
    w.open(
        "map \"$upstream_http_cache_control|$upstream_http_expires\" $too_brief",
        "1 for what the backend wants kept for less time than the cache keeps (the date, just before midnight), or not at all.",
    );
    w.line(r#""~*(?:^|[\s,])(?:no-store|no-cache|private)" 1;"#, "");
    w.line(
        &format!(r#""~*(?:^|[\s,])(?:s-maxage|max-age)=\"?0*(?:{})(?!\d)" 1;"#, below(ttl_s)),
        &format!("Less than {ttl_s} s."),
    );
    w.line(r#""~^\|." 1;"#, "Expires alone is a time of day, with which nothing can be compared here.");
    w.line("default 0;", "");
    w.close();
}

/// Every answer for the same time, but those that are too brief.
pub(super) fn at_most(w: &mut Writer) {
    w.line(
        "proxy_ignore_headers Cache-Control Expires;",
        "Else they would win over the line above: an answer with max-age until midnight would be kept until midnight.",
    );
    w.line("proxy_no_cache $too_brief;", "What the backend wants kept for less is not kept.");
}

/// As the backend says.
pub(super) fn as_told(w: &mut Writer) {
    w.line(
        "proxy_cache_background_update on;",
        "Where the backend allows stale-while-revalidate, an expired answer is served while a new one is fetched. There is no \
         proxy_cache_use_stale here: it would do so for all, and serve yesterday's date after midnight.",
    );
    w.line(
        "proxy_cache_revalidate on;",
        "Asks with If-None-Match or If-Modified-Since whether an expired answer has changed.",
    );
}

/// A regular expression for the decimal numbers below `n`, leading zeros aside.
fn below(n: u32) -> String {
    let digits: Vec<u32> = n.to_string().chars().filter_map(|c| c.to_digit(10)).collect();
    let mut ways = Vec::new();
    if digits.len() > 1 {
        ways.push(format!(r"\d{{1,{}}}", digits.len() - 1));
    }
    for (i, digit) in digits.iter().enumerate().filter(|(_, digit)| **digit > 0) {
        let same: String = digits[..i].iter().map(u32::to_string).collect();
        let rest = match digits.len() - i - 1 {
            0 => String::new(),
            n => format!(r"\d{{{n}}}"),
        };
        ways.push(format!("{same}[0-{}]{rest}", digit - 1));
    }
    ways.join("|")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the whole of `text` matches what [`below`] writes: digits, classes, and counts, in alternatives.
    fn matches(ways: &str, text: &str) -> bool {
        ways.split('|').any(|way| way_matches(way, text))
    }

    fn way_matches(way: &str, text: &str) -> bool {
        if let Some(counts) = way.strip_prefix(r"\d{") {
            let (counts, rest) = counts.split_once('}').unwrap();
            let (least, most) = counts.split_once(',').unwrap_or((counts, counts));
            let (least, most): (usize, usize) = (least.parse().unwrap(), most.parse().unwrap());
            return (least..=most.min(text.len())).any(|n| way_matches(rest, &text[n..]));
        }
        if let Some(class) = way.strip_prefix('[') {
            let (class, rest) = class.split_once(']').unwrap();
            let (low, high) = class.split_once('-').unwrap();
            return text.chars().next().is_some_and(|c| (low..=high).contains(&&*c.to_string()))
                && way_matches(rest, &text[1..]);
        }
        match (way.chars().next(), text.chars().next()) {
            (None, None) => true,
            (Some(w), Some(t)) => w == t && way_matches(&way[1..], &text[1..]),
            _ => false,
        }
    }

    #[test]
    fn numbers_below_are_all_smaller_ones_and_no_others() {
        for n in (1..130).chain([500, 999, 1000, 1001, 3600, 9999, 10_000, 86_400, 90_210]) {
            let ways = below(n);
            for number in (0..1_500).chain(n.saturating_sub(300)..n + 300).chain([10 * n, 10 * n + 1]) {
                assert_eq!(matches(&ways, &number.to_string()), number < n, "{number}, {n}: {ways}");
            }
        }
    }
}
