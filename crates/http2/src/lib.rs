//! HTTP/2 of a server, without I/O: bytes in; requests, bodies and refusals out (RFC 9113,
//! RFC 7541).
//!
//! Reading order: [`connection`] follows a client frame by frame and says what has happened;
//! [`head`] makes the head of a request; [`hpack`] decodes its fields and encodes those of answers;
//! [`frame`] reads and writes frames; [`streams`] holds what is open, with its [`flow`] control;
//! [`budget`] bounds what a client may repeat; [`error`] lists what ends a connection.
//!
//! A request becomes the text of a head of HTTP/1.1, so that both versions have one parser, one set
//! of limits and one set of refusals. Time is an argument.
//!
//! Reference `http`: HTTP/2
//!
//! - 100 open streams per connection; more are refused.
//! - `header_bytes` counts the head as it would be over HTTP/1.1.
//! - `header_timeout`: a head whose last frame does not come ends the connection, without an
//!   answer.
//! - A body that is refused or not read ends its stream, not the connection. After an error up to
//!   256 KiB of it are dropped, for at most a second; then the stream is reset (`NO_ERROR`).
//! - `body_timeout` is per stream (408). A stream, and a connection, may send 65,535 bytes of
//!   bodies before its requests read them.
//! - `write_timeout` and `drain_rate_min` count all answers of a connection, and a closed window as
//!   not reading. A [follower](changes.md) whose window stays closed for `write_timeout` is reset
//!   (`CANCEL`), also if other streams are read.
//! - The drain, idle time-outs and a shed connection send GOAWAY. A client has a second to leave.
//! - A head that breaks the rules of HTTP/2 (upper case, fields of the connection, a missing
//!   `:path`) resets its stream. A target that is none of the method, which proxies pass on, is
//!   400.

pub mod budget;
pub mod connection;
pub mod error;
pub mod flow;
pub mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod head;
pub mod hpack;
mod settings;
pub mod streams;

/// First bytes of a client's connection (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Longest payload of a frame that is received or sent: the protocol's initial limit.
pub const PAYLOAD_BYTES_MAX: usize = 16_384;
/// Bytes of bodies that a client may send before they are read, per connection and per stream: the
/// protocol's initial windows.
pub const WINDOW_BYTES: u32 = 65_535;
/// Most open streams of a connection: the least that RFC 9113 section 6.5.2 recommends.
pub const STREAMS_MAX: usize = 100;
/// Most bytes of the decoder's dynamic table: the protocol's initial limit.
pub const TABLE_BYTES_MAX: usize = 4_096;
/// Frames of one head behind the first.
pub const CONTINUATIONS_MAX: usize = 32;
/// Frames that do nothing for a request, at once and per second, beyond those that answers allow.
pub const CONTROL_FRAMES_BURST: u32 = 1_000;
/// See [`CONTROL_FRAMES_BURST`].
pub const CONTROL_FRAMES_PER_S: u32 = 100;
/// Streams that a client resets before they are answered, at once and per second; each answer
/// allows another one. As many are reset because the client broke the protocol.
pub const RESETS_BURST: u32 = 100;
/// See [`RESETS_BURST`].
pub const RESETS_PER_S: u32 = 100;

/// Limits on a request, of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a head as text of HTTP/1.1.
    pub head_bytes: usize,
}
