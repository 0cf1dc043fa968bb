//! The feed against a real server: what it delivers.

use hotrow_cache::key::KeyPart;
use hotrow_cache::version::Mark;

use super::recorder::config;
use super::recorder::{Event, Feed};
use super::server::Server;
use crate::{FlushCause, LossCause};

mod delivers;
mod idle;
mod losses;
mod poll;
mod publication;
mod schema;
mod start;
