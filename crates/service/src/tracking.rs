//! Clients that keep copies of what they read: those of one worker (`worker`), and their
//! credentials, which are judged again (`access`). What all workers share with the feeds is
//! [`hotrow_changes::tracking`].

mod access;
mod worker;

pub(crate) use self::access::{ClientSender, Judged, Password, TrackingRules, credential_of};
pub(crate) use self::worker::{ClientGuard, Registered, WorkerTracking, spelling};

#[cfg(test)]
mod tests;
