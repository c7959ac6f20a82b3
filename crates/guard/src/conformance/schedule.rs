//! Every order, one after the other.

/// Enumerates all sequences of choices, depth first, by replaying the run from its start: the run
/// asks [`Schedule::choose`] at each fork, and [`Schedule::advance`] moves to the next sequence.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// What was chosen at each fork of this run, and among how many.
    forks: Vec<(usize, usize)>,
    /// The fork the run stands at.
    at: usize,
}

impl Schedule {
    /// Chooses one of `options`, which is not 0. A store with a mind of its own may leave other
    /// options than it did in the run before; the choice is then the nearest that there is.
    pub(super) fn choose(&mut self, options: usize) -> usize {
        if self.at == self.forks.len() {
            self.forks.push((0, options));
        }
        let (chosen, among) = &mut self.forks[self.at];
        *among = options;
        *chosen = (*chosen).min(options - 1);
        let chosen = *chosen;
        self.at += 1;
        chosen
    }

    /// Moves to the next sequence; false after the last one.
    pub(super) fn advance(&mut self) -> bool {
        // Forks that this run did not come to are not there to be taken otherwise.
        self.forks.truncate(self.at);
        self.at = 0;
        while let Some((chosen, options)) = self.forks.pop() {
            if chosen + 1 < options {
                self.forks.push((chosen + 1, options));
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interleaving_of_three_and_five_steps_is_played_once() {
        let mut schedule = Schedule::default();
        let mut seen = std::collections::BTreeSet::new();
        loop {
            let mut left = [3, 5];
            let mut order = Vec::new();
            while left != [0, 0] {
                let able: Vec<usize> = (0..2).filter(|&actor| left[actor] > 0).collect();
                let actor = able[schedule.choose(able.len())];
                left[actor] -= 1;
                order.push(actor);
            }
            assert!(seen.insert(order), "an order came twice");
            if !schedule.advance() {
                break;
            }
        }
        assert_eq!(seen.len(), 56);
    }
}
