//! Open streams of a connection, in slots that are used again. A request that is answered as soon
//! as it has arrived never has one.

use crate::flow::{ReceiveWindow, SendWindow, WindowOverflow};
use crate::{STREAMS_MAX, WINDOW_BYTES};

/// Place of an open stream.
pub type Slot = usize;

/// Slots that a connection without open streams keeps.
const SLOTS_KEPT: usize = 4;

/// An open stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) send_window: SendWindow,
    pub(crate) receive_window: ReceiveWindow,
    /// Bytes of content that the head announced and that have not arrived; `None`: unknown.
    pub(crate) content_left: Option<u64>,
    /// Whether the client may send more.
    pub(crate) is_receiving: bool,
}

/// The streams. Without any they have little memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams {
    slots: Vec<Option<Stream>>,
    open: usize,
}

impl Streams {
    /// Returns the number of open streams.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    pub(crate) fn is_full(&self) -> bool {
        self.open >= STREAMS_MAX
    }

    /// Opens a stream.
    pub(crate) fn insert(
        &mut self,
        id: u32,
        initial_window: u32,
        content_left: Option<u64>,
        is_receiving: bool,
    ) -> Slot {
        let stream = Stream {
            id,
            send_window: SendWindow::new(initial_window),
            receive_window: ReceiveWindow::new(WINDOW_BYTES),
            content_left,
            is_receiving,
        };
        self.open += 1;
        match self.slots.iter().position(Option::is_none) {
            Some(slot) => {
                self.slots[slot] = Some(stream);
                slot
            }
            None => {
                self.slots.push(Some(stream));
                self.slots.len() - 1
            }
        }
    }

    /// Returns the slot of a stream.
    pub(crate) fn find(&self, id: u32) -> Option<Slot> {
        if self.open == 0 {
            return None;
        }
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(|stream| stream.id == id))
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&Stream> {
        self.slots.get(slot)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut Stream> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Closes a stream. Returns its number.
    pub(crate) fn remove(&mut self, slot: Slot) -> Option<u32> {
        let stream = self.slots.get_mut(slot)?.take()?;
        self.open -= 1;
        if self.open == 0 {
            self.slots.clear();
            self.slots.shrink_to(SLOTS_KEPT);
        }
        Some(stream.id)
    }

    /// Changes the send windows of all.
    pub(crate) fn change_windows(&mut self, bytes: i64) -> Result<(), WindowOverflow> {
        self.slots.iter_mut().flatten().try_for_each(|stream| stream.send_window.change(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_and_freed() {
        let mut streams = Streams::default();
        let slots: Vec<Slot> = (0..4).map(|i| streams.insert(2 * i + 1, 100, None, true)).collect();
        assert_eq!(slots, [0, 1, 2, 3]);
        assert_eq!(streams.remove(1), Some(3));
        assert_eq!((streams.remove(1), streams.find(3), streams.open()), (None, None, 3));
        assert_eq!(streams.insert(9, 100, None, false), 1);
        assert_eq!(streams.find(9), Some(1));
        streams.change_windows(-150).unwrap();
        assert_eq!(streams.get(1).unwrap().send_window.available(), 0);
        assert!(streams.change_windows(i64::from(u32::MAX)).is_err());
        (0..4).for_each(|slot| assert!(streams.remove(slot).is_some()));
        assert_eq!(streams.open(), 0);
        assert!(streams.slots.capacity() <= SLOTS_KEPT);
    }
}
