//! Handover: the next process takes the listening sockets of this one, so that no connection is
//! refused or lost while a version or a configuration is replaced.
//!
//! The next process connects to `listen.handover_socket`, receives all listening sockets, starts,
//! and reports when it is ready and accepts. Only then does this process stop accepting; both hold
//! the same sockets and so the same queues until then. A next process that ends earlier changes
//! nothing. Who may connect: this process's user, and root.
//!
//! Reading order: `wire` (messages), [`take`] (the next process), [`give`] (the one before).

pub mod give;
pub mod take;
mod wire;

/// Reason for which a handover ended.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The other side belongs to another user.
    #[error(
        "the process at the handover socket belongs to user {uid}; sockets are passed between \
         processes of one user only, and root"
    )]
    OtherUser {
        /// Its effective user.
        uid: u32,
    },
    /// The process before this one refused.
    #[error("the process at the handover socket refused: {0}")]
    Refused(String),
    /// The other side sent something else.
    #[error("the handover socket: {0}; both processes must speak version 1 of the protocol")]
    Protocol(&'static str),
    /// The other side was silent, or ended.
    #[error("the handover socket: {0}")]
    Io(#[from] std::io::Error),
    /// A socket cannot be served.
    #[error("the handover socket: {0}")]
    Socket(#[from] hotrow_net::listen::inherited::InheritError),
}

/// Checks that a user may hand over to this process, or take from it.
fn check_user(uid: u32) -> Result<(), HandoverError> {
    let own = rustix::process::geteuid().as_raw();
    if uid == own || uid == 0 { Ok(()) } else { Err(HandoverError::OtherUser { uid }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_user_and_root_may_take_part() {
        let own = rustix::process::geteuid().as_raw();
        assert!(check_user(own).is_ok() && check_user(0).is_ok());
        let error = check_user(own + 1).unwrap_err();
        assert!(error.to_string().contains(&(own + 1).to_string()), "{error}");
    }
}
