//! A request's body, up to a bound.

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use hyper::body::Incoming;

use crate::problem::Problem;

/// Collects the body.
///
/// # Errors
/// 413 beyond `bytes_max`, 400 when it ends early or is malformed.
pub(crate) async fn body(mut body: Incoming, bytes_max: usize) -> Result<Bytes, Problem> {
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(Problem::BodyTooLarge(bytes_max));
    }
    let mut collected = BytesMut::new();
    loop {
        let frame = std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await;
        let Some(frame) = frame else { return Ok(collected.freeze()) };
        let frame =
            frame.map_err(|_| Problem::BadBody("the body did not arrive in full, or its chunks are malformed"))?;
        if let Ok(data) = frame.into_data() {
            if collected.len() + data.len() > bytes_max {
                return Err(Problem::BodyTooLarge(bytes_max));
            }
            collected.extend_from_slice(&data);
        }
    }
}
