//! Slab: values under small numbers that are reused, with a generation that distinguishes old
//! numbers from new ones.

/// Name of a value in a [`Slab`]. A name whose value is gone stays without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlabId {
    slot: u32,
    generation: u32,
}

impl SlabId {
    /// Returns the name as a number, for the trace.
    pub(crate) fn number(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Adds the value that `make` returns for its future name.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(SlabId) -> T) -> SlabId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            // A run holds a few thousand values at most.
            (self.slots.len() - 1) as u32
        });
        let (generation, value) = &mut self.slots[slot as usize];
        let id = SlabId { slot, generation: *generation };
        *value = Some(make(id));
        id
    }

    pub(crate) fn get(&self, id: SlabId) -> Option<&T> {
        let (generation, value) = &self.slots[id.slot as usize];
        value.as_ref().filter(|_| *generation == id.generation)
    }

    pub(crate) fn get_mut(&mut self, id: SlabId) -> Option<&mut T> {
        let (generation, value) = &mut self.slots[id.slot as usize];
        value.as_mut().filter(|_| *generation == id.generation)
    }

    pub(crate) fn remove(&mut self, id: SlabId) -> Option<T> {
        let (generation, value) = &mut self.slots[id.slot as usize];
        if *generation != id.generation {
            return None;
        }
        let value = value.take()?;
        *generation += 1;
        self.free.push(id.slot);
        Some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the names of all values.
    pub(crate) fn ids(&self) -> Vec<SlabId> {
        (0..self.slots.len()).filter_map(|slot| self.any(slot)).collect()
    }

    /// Returns the name of one of the values, chosen by `random`; `None` when its slot is empty.
    pub(crate) fn any(&self, random: usize) -> Option<SlabId> {
        let slot = random.checked_rem(self.slots.len())?;
        let (generation, value) = &self.slots[slot];
        value.as_ref().map(|_| SlabId { slot: slot as u32, generation: *generation })
    }
}
