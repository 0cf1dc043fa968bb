//! The vectors: calls and their results as published, and those that follow from the rules.

use super::{Call, CallAt, Limiter, Vector};

const fn at(at_ms: u64, call: Call, expected: &'static str) -> CallAt {
    CallAt { at_ms, call, expected }
}

const fn bucket(fill_ms: u64, capacity: u64, quantum: u64) -> Limiter {
    Limiter::Bucket { fill_ms, capacity, quantum, warm_up_ms: 0 }
}

/// All vectors. The first two are published with their figures; the others are its rules.
pub const VECTORS: &[Vector] = &[
    Vector {
        limiter: bucket(250, 10, 1),
        calls: &[
            at(0, Call::Take(10), "0 ms"),
            at(0, Call::Take(2), "500 ms"),
            at(0, Call::Take(2), "1000 ms"),
            at(0, Call::Take(1), "1250 ms"),
        ],
    },
    Vector {
        limiter: bucket(10, 10, 1),
        calls: &[
            at(0, Call::Take(10), "0 ms"),
            at(7, Call::Take(1), "3 ms"),
            at(8, Call::Take(1), "12 ms"),
        ],
    },
    // It starts full and admits exactly its capacity at once; empty, it fills at its rate; idle, it
    // overflows.
    Vector {
        limiter: bucket(10, 100, 1),
        calls: &[
            at(0, Call::Burst, "100"),
            at(0, Call::Available, "0"),
            at(9, Call::Burst, "0"),
            at(10, Call::Burst, "1"),
            at(500, Call::Burst, "49"),
            at(100_000, Call::Available, "100"),
        ],
    },
    // A quantum arrives at once, at the end of its interval.
    Vector {
        limiter: bucket(10, 10, 5),
        calls: &[
            at(0, Call::Take(10), "0 ms"),
            at(9, Call::Available, "0"),
            at(10, Call::Available, "5"),
            at(10, Call::Take(6), "10 ms"),
            at(1_000, Call::Available, "10"),
        ],
    },
    Vector {
        limiter: bucket(250, 10, 1),
        calls: &[
            at(0, Call::TakeAvailable(6), "6"),
            at(0, Call::TakeAvailable(6), "4"),
            at(0, Call::TakeAvailable(1), "0"),
            at(750, Call::TakeAvailable(9), "3"),
        ],
    },
    // A refusal takes nothing.
    Vector {
        limiter: bucket(250, 10, 1),
        calls: &[
            at(0, Call::TakeMaxWait(10, 0), "0 ms"),
            at(0, Call::TakeMaxWait(2, 499), "refused"),
            at(0, Call::TakeMaxWait(2, 500), "500 ms"),
            at(0, Call::Available, "-2"),
        ],
    },
    Vector {
        limiter: bucket(250, 10, 1),
        calls: &[
            at(0, Call::Wait(10), "0 ms"),
            at(0, Call::Wait(2), "500 ms"),
            at(0, Call::WaitMax(1, 700), "refused"),
            at(0, Call::WaitMax(1, 750), "750 ms"),
        ],
    },
    // Beyond the original: changes while running.
    Vector {
        limiter: bucket(100, 10, 1),
        calls: &[
            at(0, Call::Take(10), "0 ms"),
            at(50, Call::SetFill(10, 1), "set"),
            // Half of the interval has passed, so half of the new one is left.
            at(54, Call::Available, "0"),
            at(55, Call::Available, "1"),
            at(1_000, Call::SetCapacity(3), "set"),
            at(1_000, Call::Available, "3"),
            at(1_000, Call::SetCapacity(20), "set"),
            at(1_000, Call::Available, "3"),
            at(1_205, Call::Available, "20"),
        ],
    },
    // Beyond the original: a slow start, from a third of burst and rate.
    Vector {
        limiter: Limiter::Bucket { fill_ms: 10, capacity: 90, quantum: 1, warm_up_ms: 1_000 },
        calls: &[
            at(0, Call::Burst, "30"),
            at(500, Call::Available, "25"),
            at(999, Call::Available, "66"),
            at(5_000, Call::Available, "30"),
        ],
    },
    Vector {
        limiter: Limiter::TokensPerKey { per_second: 10, burst: 2 },
        calls: &[
            at(0, Call::Request, "admitted, 1 left"),
            at(0, Call::Request, "admitted, 0 left"),
            at(0, Call::Request, "refused for 100 ms"),
            at(101, Call::Request, "admitted, 0 left"),
        ],
    },
    Vector {
        limiter: Limiter::LeakyPerKey { per_second: 10, burst: 1, max_wait_ms: 300 },
        calls: &[
            at(7, Call::Request, "admitted, 0 left"),
            at(7, Call::Request, "100 ms"),
            at(7, Call::Request, "200 ms"),
            at(7, Call::Request, "300 ms"),
            at(7, Call::Request, "refused for 100 ms"),
        ],
    },
    Vector {
        limiter: Limiter::WindowPerKey { per_second: 2 },
        calls: &[
            at(400, Call::Request, "admitted, 1 left"),
            at(400, Call::Request, "admitted, 0 left"),
            at(400, Call::Request, "refused for 600 ms"),
            at(1_000, Call::Request, "admitted, 1 left"),
        ],
    },
];
