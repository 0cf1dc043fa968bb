//! The warning of `hotrow serve` at its start about the kernel's bound on accept queues, whose
//! effect would show only under load.

use hotrow_net::listen::BACKLOG;

/// Returns a warning if the kernel shortens the accept queue that a listener asks for.
pub(crate) fn warning(somaxconn: u64) -> Option<String> {
    let wanted: u64 = BACKLOG.unsigned_abs().into();
    (somaxconn < wanted).then(|| {
        format!(
            "net.core.somaxconn ({somaxconn}) shortens the accept queue of {wanted} that is asked \
             for: connections that come in a burst are dropped; sysctl -w \
             net.core.somaxconn={wanted}; see hotrow doctor"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortened_queue_is_a_warning() {
        let short = warning(128).unwrap();
        assert!(short.starts_with("net.core.somaxconn (128) shortens"), "{short}");
        assert_eq!(warning(BACKLOG.unsigned_abs().into()), None);
    }
}
