//! Feed tests against a real server.

use hotrow_types::key::KeyPart;
use hotrow_types::version::ChangeId;

use super::recorder::{Event, Feed, config};
use super::server::{Server, Stop};
use hotrow_source::{FlushCause, LossCause};

mod delivers;
mod foreign_keys;
mod keys;
mod locks;
mod losses;
mod privileges;
mod race;
mod restore;
mod schema;
mod start;
mod statements;
mod xa;
