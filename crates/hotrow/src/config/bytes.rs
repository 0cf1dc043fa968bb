//! Limits in bytes on answers, request bodies and rows: keys of `[limits]`.

use hotrow_server::config::{ByteLimits, Limits};

use super::reader::Section;
use super::resolve::{KIB, MIB};

/// Default of limits that are derived from the memory unless the file sets them.
const BY_MEMORY: &str = "by the memory";
/// Largest byte limit: beyond any machine.
const BYTES_MAX: u64 = 1 << 50;

pub(super) fn byte_limits(section: &mut Section<'_>) -> ByteLimits {
    let mut size = |name, least| {
        let bytes = section.size_or(name, (0, BY_MEMORY), least..=BYTES_MAX);
        // The default 0 is outside of the range: only the file sets a number.
        (bytes > 0).then_some(bytes)
    };
    ByteLimits {
        answer: size("answer_bytes", 64 * KIB),
        answers_total: size("answers_bytes_total", MIB),
        bodies_total: size("bodies_bytes_total", 64 * KIB),
        rows_total: size("rows_bytes_total", MIB),
    }
}

/// Refuses totals below the largest single answer or body.
pub(super) fn check(section: &Section<'_>, limits: &Limits) {
    let ByteLimits { answer, answers_total, bodies_total, .. } = limits.bytes;
    if let (Some(answer), Some(total)) = (answer, answers_total)
        && total < answer
    {
        let what =
            format!("must be at least limits.answer_bytes: {total} bytes are less than {answer}");
        section.refuse("answers_bytes_total", what);
    }
    let body = limits.body_bytes as u64;
    if let Some(total) = bodies_total.filter(|total| *total < body) {
        let what =
            format!("must be at least limits.body_bytes: {total} bytes are less than {body}");
        section.refuse("bodies_bytes_total", what);
    }
}
