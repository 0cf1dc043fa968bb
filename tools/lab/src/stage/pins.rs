//! CPU pinning, where the kernel offers no other limit.

/// CPUs and the cores allocated on each.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pins {
    /// Number of the CPU, and allocated cores.
    cpus: Vec<(usize, f64)>,
}

/// Rounding tolerance for sums of shares.
const ROUNDING: f64 = 1e-9;

impl Pins {
    /// Creates it; `None` with a single CPU, where pinning separates nothing.
    pub(super) fn new(cpus: &[usize]) -> Option<Self> {
        (cpus.len() > 1).then(|| Self { cpus: cpus.iter().map(|cpu| (*cpu, 0.0)).collect() })
    }

    /// Allocates CPUs for `cores`. Shares of one core are packed on one CPU while they fit, so that
    /// three processes of 0.3 leave the other CPUs free; whole cores go to the CPUs with the least
    /// allocation.
    pub(super) fn take(&mut self, cores: f64) -> Result<Vec<usize>, String> {
        let count = cores.ceil() as usize;
        if count > self.cpus.len() {
            return Err(format!(
                "{cores} cores were requested, and there are {}; pinning cannot provide that",
                self.cpus.len()
            ));
        }
        let mut order: Vec<usize> = (0..self.cpus.len()).collect();
        order.sort_by(|a, b| self.cpus[*a].1.total_cmp(&self.cpus[*b].1));
        // The fullest CPU with room; otherwise the emptiest.
        let with_room =
            order.iter().rev().find(|at| self.cpus[**at].1 + cores <= 1.0 + ROUNDING).copied();
        let taken = match with_room {
            Some(at) => vec![at],
            None => order[..count].to_vec(),
        };
        for at in &taken {
            self.cpus[*at].1 += cores / count as f64;
        }
        Ok(taken.iter().map(|at| self.cpus[*at].0).collect())
    }

    /// Releases an allocation.
    pub(super) fn release(&mut self, cpus: &[usize], cores: f64) {
        for (_, promised) in self.cpus.iter_mut().filter(|(cpu, _)| cpus.contains(cpu)) {
            *promised = (*promised - cores / cpus.len() as f64).max(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_packed_and_whole_cores_are_spread() {
        let mut pins = Pins::new(&[4, 5, 6]).unwrap();
        let shares: Vec<_> = (0..3).map(|_| pins.take(0.3).unwrap()).collect();
        assert!(shares.iter().all(|cpus| *cpus == shares[0]), "{shares:?}");
        let whole = pins.take(1.0).unwrap();
        assert_ne!(whole, shares[0]);
        let another = pins.take(0.3).unwrap();
        assert!(another != shares[0] && another != whole, "{another:?}");
        pins.release(&shares[0], 0.3);
        assert_eq!(pins.take(0.4).unwrap(), shares[0], "fullest with room: 0.6");
        assert_eq!(pins.take(2.5).unwrap().len(), 3);
    }

    #[test]
    fn an_impossible_allocation_is_refused() {
        assert_eq!(Pins::new(&[0]), None);
        assert_eq!(Pins::new(&[]), None);
        let error = Pins::new(&[0, 1]).unwrap().take(2.5).unwrap_err();
        assert!(error.starts_with("2.5 cores were requested, and there are 2"), "{error}");
    }

    #[test]
    fn released_cores_can_be_allocated_again() {
        let mut pins = Pins::new(&[0, 1]).unwrap();
        for cores in [0.2, 1.0, 1.5, 2.0] {
            let before = pins.clone();
            let cpus = pins.take(cores).unwrap();
            pins.release(&cpus, cores);
            assert_eq!(pins, before, "{cores}");
        }
    }
}
