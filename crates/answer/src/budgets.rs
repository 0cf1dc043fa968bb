//! Byte budgets of the process: the memory of answers, request bodies and rows in transit.
//!
//! Their sizes are configured, or derived from the memory that the process may use.
//! [`hotrow_admission::byte_budget`] decides; each holder of bytes has a reservation, which is
//! returned when dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_admission::byte_budget::{
    AnswerRefused, AnswerReservation, ByteBudget, MeanBytes, MemoryLimits, Totals,
};
use hotrow_config::{ByteLimits, Config};
use hotrow_source::RowBudget;
use hotrow_types::key::CollectionId;

use crate::body::Body;
use crate::context::ConnectionContext;
use crate::http_error::HttpError;
use crate::memory;

/// Answers below this size need no reservation: they are part of a connection's cost, which
/// `limits.connections` bounds. So an ordinary hit writes nothing shared with other workers.
pub const COUNTED_BYTES_MIN: u64 = 16 << 10;
/// Most bytes of rows of one query, however much room there is: the next query reads more.
const QUERY_BYTES_MAX: u64 = 8 << 20;
/// Least bytes of rows of one query, however little room there is.
const QUERY_BYTES_MIN: u64 = 256 << 10;

/// All budgets, with the mean sizes of rows.
#[derive(Debug)]
pub struct Budgets {
    /// Answers under construction or waiting to be sent.
    pub answers: Arc<ByteBudget>,
    /// Bodies of requests.
    pub bodies: Arc<ByteBudget>,
    /// Rows read by queries and not yet taken by a request.
    pub rows: Arc<ByteBudget>,
    /// Most bytes of one answer.
    pub answer_bytes_max: u64,
    /// Most bytes of rows that one query may hold.
    pub query_bytes_max: u64,
    /// By collection.
    row_bytes: Box<[MeanBytes]>,
    too_large: AtomicU64,
}

/// Returns the address space that this process may still map, in bytes (`ulimit -v`); `None`
/// without a limit.
pub fn address_space_left() -> Option<u64> {
    memory::address_space_left()
}

/// Returns the bound on the memory of this process.
pub fn memory_limits(config: &Config, cache_bytes: u64) -> MemoryLimits {
    let configured = config.shed.as_ref().and_then(|shed| shed.memory_limit_bytes);
    MemoryLimits {
        resident_bytes: configured.into_iter().chain(memory::limit_bytes()).min(),
        address_space_bytes: memory::address_space_left(),
        cache_bytes,
    }
}

impl Budgets {
    /// Returns the configured limits; missing ones are derived from the memory.
    #[must_use]
    pub fn new(
        limits: &ByteLimits,
        memory: &MemoryLimits,
        reads_in_flight: usize,
        row_bytes: u64,
        collections: usize,
    ) -> Self {
        let defaults = Totals::within(memory);
        let rows = limits.rows_total.unwrap_or(defaults.rows_bytes);
        let share = rows / u64::try_from(reads_in_flight.max(1)).unwrap_or(u64::MAX);
        Self {
            answers: ByteBudget::new(limits.answers_total.unwrap_or(defaults.answers_bytes)),
            bodies: ByteBudget::new(limits.bodies_total.unwrap_or(defaults.bodies_bytes)),
            rows: ByteBudget::new(rows),
            answer_bytes_max: limits.answer.unwrap_or(defaults.answer_bytes),
            query_bytes_max: share.clamp(QUERY_BYTES_MIN, QUERY_BYTES_MAX),
            row_bytes: (0..collections).map(|_| MeanBytes::new(row_bytes)).collect(),
            too_large: AtomicU64::new(0),
        }
    }

    /// Returns a reservation for an answer of unknown size.
    pub fn answer(&self) -> AnswerReservation {
        AnswerReservation::new(&self.answers, self.answer_bytes_max)
    }

    /// Returns a reservation for an answer of `rows` rows that are to be read.
    ///
    /// # Errors
    /// [`HttpError::Overloaded`]
    pub fn answer_of_rows(
        &self,
        id: CollectionId,
        rows: usize,
    ) -> Result<AnswerReservation, HttpError> {
        let mut answer = self.answer();
        let row_bytes = self.row_bytes(id);
        // Small answers need no reservation, and neither do rows expected to form one.
        if (rows as u64).saturating_mul(row_bytes) >= COUNTED_BYTES_MIN {
            answer
                .expect_rows(rows as u64, row_bytes)
                .map_err(|refused| self.refused(&refused, rows))?;
        }
        Ok(answer)
    }

    /// Returns the mean size of the collection's rows.
    pub fn row_bytes(&self, CollectionId(id): CollectionId) -> u64 {
        self.row_bytes.get(usize::from(id)).map_or(0, MeanBytes::get)
    }

    /// Records rows of the collection that were read.
    pub fn learn(&self, CollectionId(id): CollectionId, rows: u64, bytes: u64) {
        if let Some(mean) = self.row_bytes.get(usize::from(id)) {
            mean.learn(rows, bytes);
        }
    }

    /// Returns how many keys of the collection one query may read, by the mean size of its rows.
    pub fn query_keys_max(&self, id: CollectionId) -> usize {
        let keys = self.query_bytes_max / self.row_bytes(id).max(1);
        usize::try_from(keys).unwrap_or(usize::MAX).max(1)
    }

    /// Returns a query's budget for its rows; `is_wanted`: whether a request still waits for it.
    pub fn query(&self, is_wanted: impl Fn() -> bool + Send + Sync + 'static) -> Arc<RowBudget> {
        RowBudget::new(&self.rows, self.query_bytes_max, is_wanted)
    }

    /// Returns the error for an answer of `ids` records that is refused for its size.
    #[cold]
    pub fn refused(&self, refused: &AnswerRefused, ids: usize) -> HttpError {
        match *refused {
            AnswerRefused::TooLarge { bytes, limit_bytes } => {
                self.too_large.fetch_add(1, Ordering::Relaxed);
                HttpError::AnswerTooLarge { bytes, limit_bytes, ids }
            }
            AnswerRefused::NoRoom(_) => NO_ROOM,
        }
    }

    /// Returns the number of answers refused because they were too large on their own.
    pub fn too_large_total(&self) -> u64 {
        self.too_large.load(Ordering::Relaxed)
    }

    /// Returns the body of an answer with a reservation, which lasts until it is sent over
    /// `connection`; a small one needs none.
    ///
    /// # Errors
    /// The answer is too large, or there is no room.
    pub fn hold(
        &self,
        body: Body,
        reserved: Option<AnswerReservation>,
        connection: &ConnectionContext,
    ) -> Result<Body, HttpError> {
        let bytes = body.len() as u64;
        if bytes < COUNTED_BYTES_MIN {
            return Ok(body);
        }
        match reserved.unwrap_or_else(|| self.answer()).finish(bytes) {
            Ok(reservation) => {
                Ok(Body::held(body.into_segments(), reservation, &connection.activity))
            }
            Err(refused) => Err(self.refused(&refused, 1)),
        }
    }
}

/// Refusal of an answer without room.
pub const NO_ROOM: HttpError = HttpError::Overloaded(
    "answers waiting to be sent hold as many bytes as this server allows \
     (limits.answers_bytes_total); try again later, or ask for fewer ids",
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::tests::connection;

    const MIB: u64 = 1 << 20;

    fn budgets(limits: &ByteLimits) -> Budgets {
        let memory =
            MemoryLimits { resident_bytes: None, address_space_bytes: None, cache_bytes: 0 };
        Budgets::new(limits, &memory, 4, 512, 1)
    }

    #[test]
    fn configured_limits_override_derived_ones() {
        let limits =
            ByteLimits { answer: Some(MIB), rows_total: Some(4 * MIB), ..ByteLimits::default() };
        let budgets = budgets(&limits);
        assert_eq!((budgets.answer_bytes_max, budgets.rows.limit_bytes()), (MIB, 4 * MIB));
        assert_eq!(budgets.answers.limit_bytes(), Totals::LARGEST.answers_bytes);
        assert_eq!(budgets.query_bytes_max, MIB, "each of four queries has its part");
    }

    #[test]
    fn keys_per_query_follow_from_its_byte_limit() {
        let budgets = budgets(&ByteLimits::default());
        let id = CollectionId(0);
        assert_eq!(budgets.query_keys_max(id), 8 * 1024 * 1024 / 512, "by the first guess");
        budgets.learn(id, 100, 100 * 100_000);
        assert_eq!(budgets.query_keys_max(id), 83);
        budgets.learn(id, 1_000_000, 1_000_000 * 16 * MIB);
        assert_eq!(budgets.query_keys_max(id), 1);
    }

    #[test]
    fn small_answers_need_no_reservation_and_large_ones_hold_theirs() {
        let budgets =
            budgets(&ByteLimits { answers_total: Some(100_000), ..ByteLimits::default() });
        let connection = connection();
        let of = |bytes: usize| {
            let body = Body::Bytes(vec![b'x'; bytes].into());
            budgets.hold(body, None, &connection).map_err(|refused| refused.status().as_u16())
        };
        let small = of(COUNTED_BYTES_MIN as usize - 1);
        assert!(small.is_ok() && budgets.answers.used_bytes() == 0);
        let large = of(60_000).unwrap();
        assert_eq!((large.len(), budgets.answers.used_bytes()), (60_000, 60_000));
        assert_eq!(of(60_000).err(), Some(503));
        drop(large);
        assert_eq!(of(60_000).err(), Some(503), "its last bytes are not sent");
        connection.activity.all_sent();
        assert!(of(60_000).is_ok());
        connection.activity.all_sent();
        assert_eq!(budgets.answers.used_bytes(), 0);
    }
}
