//! What happens to packets on their way from one port to another.

use std::collections::BTreeMap;
use std::time::Duration;

/// A direction between two ports of the switch: from the first to the second.
pub type Link = (usize, usize);

/// What a fault does to the packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rule {
    /// Nothing passes.
    pub cut: bool,
    /// The share of packets that is lost, 0 to 1.
    pub loss: f64,
    /// The share that arrives twice, 0 to 1.
    pub duplicate: f64,
    /// The share that overtakes those before it, 0 to 1.
    pub reorder: f64,
    /// By how much every packet is late.
    pub delay: Duration,
    /// By how much more at most, drawn for each; the order is kept.
    pub jitter: Duration,
    /// How many bytes pass in a second, if that is limited.
    pub bytes_per_second: Option<u64>,
}

impl Rule {
    /// Nothing passes.
    pub const CUT: Self = Self {
        cut: true,
        loss: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        bytes_per_second: None,
    };
}

/// Packets that one fault has seen, and what it did to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that went this way.
    pub seen: u64,
    /// Lost.
    pub dropped: u64,
    /// Late.
    pub delayed: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Delivered before an earlier one.
    pub reordered: u64,
}

impl Counters {
    /// By name, without those that are 0.
    #[must_use]
    pub fn named(self) -> BTreeMap<String, u64> {
        let all = [
            ("seen", self.seen),
            ("dropped", self.dropped),
            ("delayed", self.delayed),
            ("duplicated", self.duplicated),
            ("reordered", self.reordered),
        ];
        let counted = all.into_iter().filter(|(_, count)| *count > 0);
        counted
            .map(|(name, count)| (name.to_owned(), count))
            .collect()
    }

    /// Whether any packet fared otherwise than without the fault.
    #[must_use]
    pub const fn had_effect(self) -> bool {
        self.dropped + self.delayed + self.duplicated + self.reordered > 0
    }
}
