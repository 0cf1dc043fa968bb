//! The Redis protocol for a server, without I/O: bytes in, commands out, and replies in both of its
//! versions (RESP2, RESP3).
//!
//! Reading order: [`parser`] finds the commands of a client in bytes that may arrive in any pieces,
//! [`arguments`] is what it finds, [`error`] lists what ends a connection, [`write`](mod@write)
//! writes replies.
//!
//! The texts of protocol errors are those of Redis, because clients show them and operators search
//! for them. Where Redis is lenient and two readers could understand two things, this parser
//! refuses: numbers have one spelling, and every argument must end where its length says.

pub mod arguments;
pub mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod parser;
pub mod write;

/// Limits on one command. A value at the limit is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most arguments, the command's name included.
    pub arguments: usize,
    /// Most bytes of one argument.
    pub argument_bytes: usize,
    /// Most bytes of the whole command, as it arrives; below 4 GiB.
    pub command_bytes: usize,
}

/// Version of the protocol in which a client reads replies. Commands are the same in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// The version of every new connection.
    #[default]
    Resp2,
    /// With maps, nulls and pushed messages.
    Resp3,
}

impl Version {
    /// Returns its number in `HELLO`.
    #[must_use]
    pub fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }

    /// Returns its name.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Resp2 => "RESP2",
            Self::Resp3 => "RESP3",
        }
    }
}
