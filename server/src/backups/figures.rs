//! Figures about the backups that a node takes on its own.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::config::Backups;

/// Clones share the figures.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackupFigures {
    last_success: Gauge<u64, AtomicU64>,
    interval: Gauge<u64, AtomicU64>,
    failures: Counter,
}

impl BackupFigures {
    /// Of backups that are taken so.
    pub(crate) fn of(config: &Backups) -> Self {
        let figures = Self::default();
        figures.interval.set(config.every.as_secs());
        figures
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "backup_last_success_timestamp",
            "When the last backup was taken, since 1970; 0 if none was",
            Unit::Seconds,
            self.last_success.clone(),
        );
        registry.register_with_unit(
            "backup_interval",
            "How often a backup is taken: --backup-every",
            Unit::Seconds,
            self.interval.clone(),
        );
        registry.register(
            "backup_failures",
            "Backups that could not be taken; each is tried again",
            self.failures.clone(),
        );
    }

    /// The newest backup that was there at the start.
    pub(super) fn begun_with(&self, last: Option<Duration>) {
        self.last_success.set(last.unwrap_or_default().as_secs());
    }

    pub(super) fn succeeded(&self, at: Duration) {
        self.last_success.set(at.as_secs());
    }

    pub(super) fn failed(&self) {
        self.failures.inc();
    }
}
