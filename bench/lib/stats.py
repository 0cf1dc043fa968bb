"""Medians and bootstrap intervals."""

import random
import statistics

RESAMPLES = 5_000
CONFIDENCE = 0.95


def median(values):
    return statistics.median(values)


def percentile(values, percent):
    """Returns the nearest rank, which is a measured value."""
    ordered = sorted(values)
    rank = max(0, -(-len(ordered) * percent // 100) - 1)
    return ordered[int(min(rank, len(ordered) - 1))]


def bootstrap_median(values, seed=1):
    """Returns (low, high) of the median at CONFIDENCE by percentile bootstrap.

    The seed is fixed, so that a report is reproducible.
    """
    generator = random.Random(seed)
    medians = sorted(
        statistics.median(generator.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    cut = (1 - CONFIDENCE) / 2
    return medians[int(cut * RESAMPLES)], medians[int((1 - cut) * RESAMPLES) - 1]


def ratio(numerators, denominators):
    """Returns the ratio by pairs of one round, whose shared noise cancels out."""
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    low, high = bootstrap_median(ratios)
    return {"median": median(ratios), "low": low, "high": high, "pairs": ratios}
