//! What the curve says, in one sentence.

use hotrow_cache::miniature::{Advice, Curve, Point};
use hotrow_measure::figures::grouped;

/// Returns what the curve says about the capacity in force.
pub fn sentence(curve: &Curve) -> String {
    let current = curve.current();
    match curve.advice {
        Advice::Grow(_) => {
            let reads = reads_less(current, curve.double());
            format!(
                "{}, about {reads} database reads a second less",
                instead(curve.double(), curve)
            )
        }
        Advice::Shrink(_) => {
            let reads = reads_less(curve.half(), current);
            let change = instead(curve.half(), curve);
            format!("{change}, about {reads} database reads a second more: less memory would do")
        }
        Advice::Keep { gain, loss } => format!(
            "{} fits: twice as much would gain {:.1} points, half as much would lose {:.1}",
            size(current.capacity_bytes),
            100.0 * gain,
            100.0 * loss
        ),
    }
}

fn instead(other: &Point, curve: &Curve) -> String {
    let current = curve.current();
    format!(
        "{} instead of {}: {:.1} % instead of {:.1} %",
        size(other.capacity_bytes),
        size(current.capacity_bytes),
        100.0 * other.hit_ratio.value,
        100.0 * current.hit_ratio.value
    )
}

/// Returns the difference in reads, with two significant digits.
fn reads_less(more: &Point, fewer: &Point) -> String {
    let reads = (more.database_reads_per_s - fewer.database_reads_per_s).max(0.0);
    let step = 10_f64.powf((reads.max(1.0).log10().floor() - 1.0).max(0.0));
    grouped((reads / step).round() * step)
}

/// Returns a size in MiB or GiB, to a tenth.
fn size(bytes: u64) -> String {
    const MIB: f64 = (1_u64 << 20) as f64;
    let mib = bytes as f64 / MIB;
    let (number, unit) = if mib < 1024.0 { (mib, "MiB") } else { (mib / 1024.0, "GiB") };
    let text = format!("{number:.1}");
    format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use hotrow_cache::miniature::{Estimate, FACTORS};

    use super::*;

    fn curve(hit_ratios: [f64; 8], advice: Advice) -> Curve {
        let point = |at: usize| Point {
            factor: FACTORS[at],
            capacity_bytes: (f64::from(256 << 20) * FACTORS[at]) as u64,
            hit_ratio: Estimate { value: hit_ratios[at], low: 0.0, high: 1.0 },
            database_reads_per_s: (1.0 - hit_ratios[at]) * 45_678.0,
        };
        Curve {
            sampling_rate: 0.01,
            sampled_lookups: 10_000,
            dropped: 0,
            window_s: 60.0,
            measured: hit_ratios[3],
            points: std::array::from_fn(point),
            collections: Vec::new(),
            advice,
        }
    }

    #[test]
    fn each_advice_names_both_capacities_and_what_they_cost() {
        let ratios = [0.7, 0.9333, 0.934, 0.934, 0.95, 0.961, 0.97, 0.98];
        assert_eq!(
            sentence(&curve(ratios, Advice::Grow(0.027))),
            "512 MiB instead of 256 MiB: 96.1 % instead of 93.4 %, about 1,200 database reads a \
             second less"
        );
        assert_eq!(
            sentence(&curve(ratios, Advice::Shrink(0.0007))),
            "128 MiB instead of 256 MiB: 93.3 % instead of 93.4 %, about 32 database reads a \
             second more: less memory would do"
        );
        assert_eq!(
            sentence(&curve(ratios, Advice::Keep { gain: 0.0031, loss: 0.0209 })),
            "256 MiB fits: twice as much would gain 0.3 points, half as much would lose 2.1"
        );
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(size(1 << 20), "1 MiB");
        assert_eq!(size((3 << 30) / 2), "1.5 GiB");
        assert_eq!(size((256 << 20) - 64), "256 MiB");
    }
}
