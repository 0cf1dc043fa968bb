//! Reception of a request's body, within its own limit and the budget of all bodies.

use std::sync::Arc;

use hotrow_admission::byte_budget::{ByteBudget, Reservation};
use hotrow_http1::error::ParseError;
use http_body::Body;

use crate::http_error::HttpError;
use crate::request::{BodyError, RequestBody};

/// Least allocation for a body: most are no larger.
const FIRST_BYTES: usize = 4 << 10;

/// A body with its reservation.
#[derive(Debug)]
pub struct Received {
    bytes: Vec<u8>,
    reservation: Reservation,
}

impl Received {
    fn new(budget: &Arc<ByteBudget>) -> Self {
        Self { bytes: Vec::new(), reservation: budget.empty() }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends received data. Room is reserved on arrival, not on announcement: a client that
    /// announces much and sends little must not exclude others.
    fn push(&mut self, data: &[u8], bytes_max: usize) -> Result<(), HttpError> {
        let needed = self.bytes.len() + data.len();
        if needed > bytes_max {
            return Err(HttpError::BodyTooLarge(bytes_max));
        }
        if needed > self.bytes.capacity() {
            // A power of two, however the body is cut into pieces.
            let room = needed.next_power_of_two().max(FIRST_BYTES).min(bytes_max);
            self.reservation.grow_to(room as u64).map_err(|_| HttpError::NoBodyRoom)?;
            self.bytes
                .try_reserve_exact(room - self.bytes.len())
                .map_err(|_| HttpError::NoBodyRoom)?;
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }
}

/// Collects the body.
///
/// # Errors
/// 413 beyond `bytes_max`, 503 when `budget` has no room, 400 when it ends early or is malformed.
pub async fn body(
    mut body: RequestBody,
    bytes_max: usize,
    budget: &Arc<ByteBudget>,
) -> Result<Received, HttpError> {
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(HttpError::BodyTooLarge(bytes_max));
    }
    let mut received = Received::new(budget);
    loop {
        let frame = std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await;
        let Some(frame) = frame else { return Ok(received) };
        let frame = frame.map_err(|error| broken(error, bytes_max))?;
        if let Ok(data) = frame.into_data() {
            received.push(&data, bytes_max)?;
        }
    }
}

/// Returns the error for an incomplete body.
fn broken(error: BodyError, bytes_max: usize) -> HttpError {
    match error {
        BodyError::Refused(ParseError::BodyBytes) => HttpError::BodyTooLarge(bytes_max),
        BodyError::Refused(_) | BodyError::Ended => {
            HttpError::BadBody("the body did not arrive in full, or its chunks are malformed")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_a_budget_and_return_it() {
        let budget = ByteBudget::new(25_000);
        let mut first = Received::new(&budget);
        first.push(&[1; 10], 12_000).unwrap();
        assert_eq!(budget.used_bytes(), FIRST_BYTES as u64);
        first.push(&[2; 5_000], 12_000).unwrap();
        assert_eq!((first.bytes().len(), budget.used_bytes()), (5_010, 8_192));
        let mut second = Received::new(&budget);
        second.push(&[3; 11_000], 20_000).unwrap();
        assert_eq!(budget.used_bytes(), 8_192 + 16_384);
        assert_eq!(second.push(&[3; 6_000], 20_000), Err(HttpError::NoBodyRoom));
        assert_eq!(second.push(&[3; 9_001], 20_000), Err(HttpError::BodyTooLarge(20_000)));
        drop(first);
        second.push(&[3; 6_000], 20_000).unwrap();
        drop(second);
        assert_eq!(budget.used_bytes(), 0);
    }
}
