//! Whether the leader's own disk makes progress.

use std::time::Duration;

/// Notes since when the log has waited for the disk without any progress.
#[derive(Debug, Default)]
pub(super) struct FlushWatch {
    /// Bytes and syncs that were finished at the last look.
    done: (u64, u64),
    /// On the clock of the looks; `None` while nothing waits.
    since: Option<Duration>,
}

impl FlushWatch {
    /// For how long the disk has finished nothing although `unflushed` bytes wait.
    pub(super) fn look(&mut self, unflushed: u64, done: (u64, u64), now: Duration) -> Duration {
        if unflushed == 0 {
            self.since = None;
            return Duration::ZERO;
        }
        if self.done != done || self.since.is_none() {
            self.done = done;
            self.since = Some(now);
        }
        let since = self.since.unwrap_or(now);
        now.saturating_sub(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_is_counted_from_the_last_progress_while_bytes_wait() {
        let second = Duration::from_secs;
        let mut watch = FlushWatch::default();
        assert_eq!(watch.look(0, (10, 1), second(10)), Duration::ZERO);
        assert_eq!(watch.look(7, (10, 1), second(20)), Duration::ZERO);
        assert_eq!(watch.look(9, (10, 1), second(23)), second(3));
        assert_eq!(watch.look(2, (17, 2), second(24)), Duration::ZERO);
        assert_eq!(watch.look(2, (17, 2), second(25)), second(1));
        assert_eq!(watch.look(0, (19, 3), second(26)), Duration::ZERO);
    }
}
