use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

#[test]
fn reservations_share_the_limit_and_return_what_they_hold() {
    let budget = ByteBudget::new(100);
    let mut first = budget.reserve(60).unwrap();
    assert_eq!(budget.reserve(41).unwrap_err(), NoRoom { wanted_bytes: 41, limit_bytes: 100 });
    let second = budget.reserve(40).unwrap();
    assert_eq!((budget.used_bytes(), budget.refused_total()), (100, 1));
    assert!(first.grow(1).is_err());
    assert_eq!(first.bytes(), 60, "a refusal takes nothing away");
    first.shrink_to(10);
    assert_eq!(first.grow_to(5), Ok(()));
    assert_eq!((first.bytes(), budget.used_bytes()), (10, 50));
    drop(second);
    drop(first);
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn sums_that_overflow_are_refused() {
    let budget = ByteBudget::new(u64::MAX - 1);
    let _held = budget.reserve(u64::MAX - 5).unwrap();
    assert!(budget.reserve(u64::MAX).is_err());
    assert!(budget.reserve(4).is_ok());
}

#[test]
fn threads_never_exceed_the_limit_together() {
    let budget = ByteBudget::new(1000);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..20_000_u64 {
                    let held = budget.reserve(1 + round % 700);
                    assert!(budget.used_bytes() <= 1000);
                    drop(held);
                }
            });
        }
    });
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn an_answer_reserves_the_mean_before_it_reads_and_corrects_it_row_by_row() {
    let budget = ByteBudget::new(1000);
    let mut answer = AnswerReservation::new(&budget, 600);
    answer.add_known(50, 10).unwrap();
    answer.expect_rows(20, 10).unwrap();
    assert_eq!(budget.used_bytes(), 250);
    answer.add_row(100, 10).unwrap();
    assert_eq!(budget.used_bytes(), 340, "150 known, 19 to come");
    // The mean has risen: the remaining rows are expected to be larger, up to the limit on one
    // answer.
    answer.add_row(100, 60).unwrap();
    assert_eq!(budget.used_bytes(), 600);
    let held = answer.finish(420).unwrap();
    assert_eq!((held.bytes(), budget.used_bytes()), (420, 420));
}

#[test]
fn only_read_rows_make_an_answer_too_large() {
    let budget = ByteBudget::new(10_000);
    let mut answer = AnswerReservation::new(&budget, 600);
    answer.expect_rows(100, 100).unwrap();
    assert_eq!(budget.used_bytes(), 600, "expected to be too large, which is no proof");
    for _ in 0..6 {
        answer.add_row(100, 100).unwrap();
    }
    assert_eq!(
        answer.add_row(1, 100),
        Err(AnswerRefused::TooLarge { bytes: 601, limit_bytes: 600 })
    );
    drop(answer);
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn an_answer_without_room_is_refused_before_it_reads() {
    let budget = ByteBudget::new(1000);
    let others = budget.reserve(900).unwrap();
    let mut answer = AnswerReservation::new(&budget, 600);
    let refused = NoRoom { wanted_bytes: 200, limit_bytes: 1000 };
    assert_eq!(answer.expect_rows(20, 10), Err(AnswerRefused::NoRoom(refused)));
    drop(others);
    answer.restart();
    assert_eq!(answer.expect_rows(20, 10), Ok(()));
}

#[test]
fn the_mean_follows_the_reads() {
    let mean = MeanBytes::new(512);
    assert_eq!(mean.get(), 512);
    mean.learn(0, 0);
    assert_eq!(mean.get(), 512, "no row says nothing");
    mean.learn(1, 100_000);
    assert_eq!(mean.get(), 100_000, "the first row replaces the guess");
    mean.learn(1000, 1000 * 10);
    assert!((10..2_000).contains(&mean.get()), "{}", mean.get());
    for _ in 0..200 {
        mean.learn(1, 5_000);
    }
    assert!((4_900..=5_000).contains(&mean.get()), "{}", mean.get());
}

#[test]
fn defaults_follow_the_remaining_memory() {
    let limits = |resident_bytes, address_space_bytes| MemoryLimits {
        resident_bytes,
        address_space_bytes,
        cache_bytes: 256 * MIB,
    };
    assert_eq!(Totals::within(&limits(None, None)), Totals::LARGEST);
    assert_eq!(Totals::within(&limits(Some(64 << 30), None)), Totals::LARGEST);
    let small = Totals::within(&limits(Some(512 * MIB), None));
    // 512 MiB less a full cache and the process itself leave 115 MiB.
    assert_eq!(small.answers_bytes / MIB, 14);
    assert_eq!(
        (small.answer_bytes, small.bodies_bytes / MIB, small.rows_bytes / MIB),
        (small.answers_bytes, 7, 7)
    );
    // `ulimit -v` bounds the totals, not one answer.
    let narrow = Totals::within(&limits(Some(64 << 30), Some(200 * MIB)));
    assert_eq!(
        (narrow.answer_bytes, narrow.answers_bytes / MIB),
        (Totals::LARGEST.answer_bytes, 3)
    );
    assert_eq!(Totals::within(&limits(Some(0), Some(0))).answers_bytes, BYTES_MIN);
}

#[test]
fn the_capacity_shrinks_to_the_address_space() {
    assert_eq!(Totals::cache_within(60 * MIB, 240 * MIB), None);
    assert_eq!(Totals::cache_within(256 * MIB, 240 * MIB), Some(60 * MIB));
    assert_eq!(Totals::cache_within(256 * MIB, 0), Some(BYTES_MIN));
}

proptest! {
    /// The budget always equals the sum of what the answers hold, never exceeds the limit, and is
    /// empty at the end.
    #[test]
    fn reservations_equal_the_held_bytes(
        steps in prop::collection::vec((0_usize..4, 0_u64..400, 0_u64..50), 1..80),
    ) {
        let budget = ByteBudget::new(1000);
        let mut answers: Vec<AnswerReservation> =
            (0..4).map(|_| AnswerReservation::new(&budget, 500)).collect();
        for (which, bytes, mean) in steps {
            let refused = if bytes % 3 == 0 {
                answers[which].expect_rows(bytes / 40, mean).is_err()
            } else {
                answers[which].add_row(bytes, mean).is_err()
            };
            let too_large = answers[which].known_bytes() > 500;
            let answer = &answers[which];
            prop_assert!(refused || answer.reserved_bytes() >= answer.known_bytes());
            prop_assert!(!too_large || refused);
            if refused {
                answers[which] = AnswerReservation::new(&budget, 500);
            }
            let held: u64 = answers.iter().map(AnswerReservation::reserved_bytes).sum();
            prop_assert_eq!(budget.used_bytes(), held);
            prop_assert!(held <= 1000);
        }
        drop(answers);
        prop_assert_eq!(budget.used_bytes(), 0);
    }
}
