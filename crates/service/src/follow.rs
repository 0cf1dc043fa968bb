//! From a request to a follower of changes (`asked`, `request`), what it is sent (`stream`), and
//! its credential, which is judged again (`judge`). The log of changes is
//! [`hotrow_changes::follow`].

mod events;
mod follow_request;
mod judge;
mod request;
mod stream;

pub(crate) use self::request::Following;
