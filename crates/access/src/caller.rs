//! Who sends a request, as limits and answers know it.

use core::net::IpAddr;

use hotrow_types::tenant::Tenants;

use crate::grant::{RateClasses, Roles};
use crate::identity::Identity;
use crate::verify::UnixSeconds;

/// Other end of a connection, by which limits per client count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// Address of the client, or of a proxy in front of it.
    Address(IpAddr),
    /// User id of the process that opened the connection to the Unix socket.
    User(u32),
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self::Address(address)
    }
}

/// Sender of a request.
#[derive(Clone, Debug, Default)]
pub struct Sender {
    /// What limits know of it.
    pub caller: Caller,
    /// Its tenants.
    pub tenants: Tenants,
    /// Expiry of its token.
    pub expires: Option<UnixSeconds>,
}

impl From<Caller> for Sender {
    fn from(caller: Caller) -> Self {
        Self { caller, tenants: Tenants::NONE, expires: None }
    }
}

/// Grants of a request's sender on the requested collection, beyond reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// `Cache-Control: no-cache` counts.
    pub may_bypass_cache: bool,
    /// `Hotrow-Min-Position` counts.
    pub may_require_position: bool,
    /// `Hotrow-Min-Position: now` counts.
    pub may_require_strict: bool,
}

impl Rights {
    /// Rights where access is not configured.
    pub const ALL: Self =
        Self { may_bypass_cache: true, may_require_position: true, may_require_strict: true };
}

/// Sender of a request, as its credential shows. Without `[access]`, and without a credential, it
/// has no identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Its roles.
    pub roles: Roles,
    /// The holder of its credential; `None`: it has none.
    pub identity: Option<Identity>,
    /// Its classes of rate limits.
    pub rate_classes: RateClasses,
}
