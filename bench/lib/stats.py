"""Medians and bootstrap intervals."""

import random
import statistics

RESAMPLES = 5_000
CONFIDENCE = 0.95


def median(values):
    return statistics.median(values)


def percentile(values, percent):
    """Nearest rank: a value that was really measured."""
    ordered = sorted(values)
    rank = max(0, -(-len(ordered) * percent // 100) - 1)
    return ordered[int(min(rank, len(ordered) - 1))]


def bootstrap_median(values, seed=1):
    """Percentile bootstrap of the median: (low, high) at CONFIDENCE. The seed is fixed so that a report repeats."""
    generator = random.Random(seed)
    medians = sorted(
        statistics.median(generator.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    cut = (1 - CONFIDENCE) / 2
    return medians[int(cut * RESAMPLES)], medians[int((1 - cut) * RESAMPLES) - 1]


def ratio(numerators, denominators):
    """Pair by pair, for pairs of one round: their noise is shared and falls out."""
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    low, high = bootstrap_median(ratios)
    return {"median": median(ratios), "low": low, "high": high, "pairs": ratios}
