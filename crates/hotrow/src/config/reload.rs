//! `[reload]`: when the file is read again.
//!
//! Reference `configuration`: `[reload]`
//!
//! - `watch_file`: [Reload](rollout.md#reload) also when this file changes. It is read when it has
//!   been still for a second.

use super::reader::Section;

/// Settings of the reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reload {
    /// `true`: also when the file changes. Off by default: an editor that saves a file half done
    /// would put it in force, and a tool that replaces the file can send the signal, too.
    pub watch_file: bool,
}

pub(super) fn reload(mut section: Section<'_>) -> Reload {
    let reload = Reload { watch_file: section.flag("watch_file", false) };
    section.finish();
    reload
}
