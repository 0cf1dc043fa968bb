//! Listening sockets passed by the service manager. Their names (`FileDescriptorName=` in systemd)
//! say what they are for: `data`, `admin`, `unix`, `admin-unix` or `redis`.

use std::os::fd::OwnedFd;

use hotrow_net::listen::inherited::{
    Holder, INHERITED_SOCKETS_MAX, InheritError, Inherited, ListenerKind,
};
use listenfd::ListenFd;

/// Number of the first passed descriptor.
const FIRST_DESCRIPTOR: usize = 3;

/// Reason for which a passed socket cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ActivationError {
    /// Its name is none of ours.
    #[error(
        "the service manager passed descriptor {descriptor} with the name {name:?}: it must be \
         \"data\", \"admin\", \"unix\", \"admin-unix\" or \"redis\" (FileDescriptorName= in the \
         socket unit)"
    )]
    Name {
        /// Its number.
        descriptor: usize,
        /// Its name; empty if it has none.
        name: String,
    },
    /// It is unusable.
    #[error("the service manager passed descriptor {descriptor} as {kind:?}: {source}")]
    Socket {
        /// Its number.
        descriptor: usize,
        /// What it should be.
        kind: &'static str,
        /// The reason.
        source: InheritError,
    },
    /// More than can be served.
    #[error(
        "the service manager passed {count} descriptors; at most {INHERITED_SOCKETS_MAX} are \
         taken over"
    )]
    TooMany {
        /// Their number.
        count: usize,
    },
}

/// Takes the sockets that were passed to this process; none without a service manager. Call it
/// once, before threads are started: it removes the variables, so that child processes do not take
/// them for theirs.
///
/// # Errors
/// A socket that cannot be served.
pub fn passed_sockets() -> Result<Inherited, ActivationError> {
    let count = std::env::var("LISTEN_FDS").ok().and_then(|count| count.parse().ok()).unwrap_or(0);
    if count > INHERITED_SOCKETS_MAX {
        return Err(ActivationError::TooMany { count });
    }
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let kinds = kinds(&names, count);
    let mut passed = ListenFd::from_env();
    let mut inherited = Inherited::new(Holder::Manager);
    for (index, kind) in (0..passed.len()).zip(kinds) {
        let kind = kind?;
        let failed = |source| ActivationError::Socket {
            descriptor: FIRST_DESCRIPTOR + index,
            kind: kind.label(),
            source,
        };
        let socket = match kind {
            ListenerKind::Unix | ListenerKind::AdminUnix => {
                passed.take_unix_listener(index).map(|taken| taken.map(OwnedFd::from))
            }
            ListenerKind::Data | ListenerKind::Admin | ListenerKind::Redis => {
                passed.take_tcp_listener(index).map(|taken| taken.map(OwnedFd::from))
            }
        };
        if let Some(socket) = socket.map_err(|error| failed(error.into()))? {
            inherited.add(kind, socket).map_err(failed)?;
        }
    }
    Ok(inherited)
}

/// Returns what each of `count` descriptors is for, by names separated by colons.
fn kinds(
    names: &str,
    count: usize,
) -> impl Iterator<Item = Result<ListenerKind, ActivationError>> + use<'_> {
    let names = names.split(':').chain(std::iter::repeat(""));
    names.take(count).enumerate().map(|(index, name)| {
        ListenerKind::named(name).ok_or_else(|| ActivationError::Name {
            descriptor: FIRST_DESCRIPTOR + index,
            name: name.to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_descriptors_are_for() {
        let all: Vec<_> = kinds("data:admin:unix:redis", 4).map(Result::unwrap).collect();
        let expected =
            [ListenerKind::Data, ListenerKind::Admin, ListenerKind::Unix, ListenerKind::Redis];
        assert_eq!(all, expected);
        assert_eq!(kinds("", 0).count(), 0);
        for (names, count, descriptor, named) in [
            ("hotrow.socket", 1, 3, "hotrow.socket"),
            ("data", 2, 4, ""),
            ("data:Admin", 2, 4, "Admin"),
            ("", 1, 3, ""),
        ] {
            let error = kinds(names, count).find_map(Result::err).unwrap();
            let ActivationError::Name { descriptor: at, name } = &error else { panic!("{error}") };
            assert_eq!((*at, name.as_str()), (descriptor, named));
            assert!(error.to_string().contains("FileDescriptorName="), "{error}");
        }
    }
}
