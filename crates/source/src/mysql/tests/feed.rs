//! The feed against a real server.

use hotrow_cache::key::KeyPart;
use hotrow_cache::version::Mark;

use super::recorder::{Event, Feed, config};
use super::server::{Server, Stop};
use crate::{FlushCause, LossCause};

mod delivers;
mod losses;
mod race;
mod schema;
mod start;
mod statements;
mod xa;
