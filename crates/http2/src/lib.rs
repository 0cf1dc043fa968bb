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
