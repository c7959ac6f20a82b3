//! The gauges of a campaign, for a program's own metrics page.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, Weak};

use super::shared::Shared;
use crate::sync::lock;

/// The gauges `ringfence_lease_is_held{key}`, `ringfence_lease_failing_open{key}` and
/// `ringfence_lease_unsealed_guards{key}` of a program's campaigns: one set per program, each campaign
/// registered with [`Campaign::gauges`](super::Campaign::gauges). All are 0 at first, and asked for
/// again whenever they are read, so none can lag behind the clock. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Gauges {
    keys: Arc<Mutex<BTreeMap<String, Weak<Shared>>>>,
}

/// What the gauges of one campaign say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The name of the lease: the label `key` of the gauges.
    pub key: String,
    /// Whether it is held.
    pub is_held: bool,
    /// Whether it is lost and [assumed](super::Campaign::fail_open) to be held all the same.
    pub failing_open: bool,
    /// How many guards it is held without a [seal](super::Campaign::seal) at.
    pub unsealed_guards: usize,
}

/// A campaign for this name is registered already.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("gauges with key {key:?} are registered already; register one campaign per lease")]
pub struct AlreadyRegistered {
    /// The name of the lease that is registered twice.
    pub key: String,
}

/// Takes a campaign off the gauges when it is dropped.
#[derive(Debug)]
pub(super) struct Registration {
    gauges: Gauges,
    key: String,
}

impl Gauges {
    /// Gauges without a campaign; [`Campaign::gauges`](super::Campaign::gauges) adds one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn register(
        &self,
        key: &str,
        campaign: &Arc<Shared>,
    ) -> Result<Registration, AlreadyRegistered> {
        let mut keys = lock(&self.keys);
        if keys.contains_key(key) {
            return Err(AlreadyRegistered { key: key.into() });
        }
        keys.insert(key.into(), Arc::downgrade(campaign));
        Ok(Registration {
            gauges: self.clone(),
            key: key.into(),
        })
    }

    /// What they say now, by key.
    #[must_use]
    pub fn read(&self) -> Vec<Reading> {
        let keys = lock(&self.keys);
        let read = |(key, campaign): (&String, &Weak<Shared>)| {
            let campaign = campaign.upgrade();
            let range = campaign.as_ref().and_then(|campaign| campaign.range());
            Reading {
                key: key.clone(),
                is_held: campaign.as_ref().is_some_and(|campaign| campaign.is_held()),
                unsealed_guards: campaign.map_or(0, |campaign| campaign.unsealed()),
                failing_open: range.is_some_and(|range| range.failing_open),
            }
        };
        keys.iter().map(read).collect()
    }

    /// The same as Prometheus and OpenMetrics read it.
    #[must_use]
    pub fn text(&self) -> String {
        let readings = self.read();
        let mut text = String::new();
        let mut gauge = |name: &str, help: &str, value: fn(&Reading) -> usize| {
            // Writing to a string cannot fail.
            let _written = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge").is_ok();
            for reading in &readings {
                let (key, value) = (&reading.key, value(reading));
                // A lease name needs no escapes.
                let _written = writeln!(text, "{name}{{key=\"{key}\"}} {value}").is_ok();
            }
        };
        gauge(
            "ringfence_lease_is_held",
            "Whether this process holds the lease.",
            |reading| usize::from(reading.is_held),
        );
        gauge(
            "ringfence_lease_failing_open",
            "Whether the lease is lost and assumed to be held.",
            |reading| usize::from(reading.failing_open),
        );
        gauge(
            "ringfence_lease_unsealed_guards",
            "How many guards this process holds the lease at without having sealed them.",
            |reading| reading.unsealed_guards,
        );
        text
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.gauges.keys).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;

    #[test]
    fn s2_6_all_gauges_are_zero_at_the_start_and_a_second_registration_is_an_error() {
        let gauges = Gauges::new();
        let campaign = Arc::new(Shared::new(Duration::from_secs(15)));
        let registration = gauges.register("db/a", &campaign).unwrap();

        let again = gauges.register("db/a", &campaign).unwrap_err();
        assert!(again.to_string().contains("db/a"), "{again}");
        let text = gauges.text();
        assert!(text.contains("ringfence_lease_is_held{key=\"db/a\"} 0\n"));
        assert!(text.contains("ringfence_lease_failing_open{key=\"db/a\"} 0\n"));
        assert!(text.contains("ringfence_lease_unsealed_guards{key=\"db/a\"} 0\n"));

        drop(registration);
        assert_eq!(gauges.read(), []);
        drop(gauges.register("db/a", &campaign).unwrap());
    }
}
