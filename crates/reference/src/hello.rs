//! Endpoints without work: the cost of a request alone.

use axum::Json;
use serde::Serialize;

/// `/hello`: 11 bytes.
pub(crate) async fn hello() -> &'static str {
    "hello world"
}

/// `/plaintext`: 12 bytes.
pub(crate) async fn plaintext() -> &'static str {
    "Hello World!"
}

#[derive(Serialize)]
pub(crate) struct Message {
    message: &'static str,
}

/// `/json`: a small object, serialized for each request.
pub(crate) async fn json() -> Json<Message> {
    Json(Message { message: "Hello, World!" })
}
