//! One module per kernel source: the contents of the file, and its parser. `parse` functions are
//! pure and return `None` for unknown input; [`crate::root::Root`] and [`crate::sampler::Sampler`]
//! read the files.
//!
//! Reading order: [`cpu`], [`task`], [`wait`] and [`status`] (threads and processes), [`pressure`];
//! [`memory`]; [`disk`]; [`interface`], [`tcp`], [`sockets`], [`inet_diag`], [`network`],
//! [`ports`]; [`group`] (cgroups); [`limits`].

pub mod cpu;
pub mod disk;
pub mod group;
pub mod inet_diag;
pub mod interface;
pub mod limits;
pub mod memory;
pub mod network;
pub mod ports;
pub mod pressure;
pub mod sockets;
pub mod status;
pub mod task;
pub mod tcp;
pub mod wait;

/// Parses the next word as a number.
fn number<'a, T: std::str::FromStr>(words: &mut impl Iterator<Item = &'a str>) -> Option<T> {
    words.next()?.parse().ok()
}

/// Returns the first value of `name` in lines of `name value`.
fn named<T: std::str::FromStr>(text: &str, name: &str) -> Option<T> {
    let line =
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix([' ', ':', '\t']))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests;
