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
