//! How many files and sockets this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits::DESCRIPTORS_RESERVED;

/// Raises this process's limit as far as it may, and returns what it is then; `None`: none.
///
/// The soft limit is low for programs that use `select`, which this one does not.
pub(crate) fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = attainable(current, maximum);
    if current == wanted {
        return current;
    }
    let raised = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: wanted,
            maximum,
        },
    );
    match raised {
        Ok(()) => wanted,
        Err(error) => {
            tracing::warn!(%error, ?current, ?maximum, "the limit of open files cannot be raised");
            current
        }
    }
}

#[cfg(not(target_vendor = "apple"))]
fn attainable(_current: Option<u64>, maximum: Option<u64>) -> Option<u64> {
    maximum
}

/// Apple's systems show no hard limit and refuse a soft one above `OPEN_MAX`, unless an
/// administrator has raised what the kernel allows.
#[cfg(target_vendor = "apple")]
fn attainable(current: Option<u64>, maximum: Option<u64>) -> Option<u64> {
    const OPEN_MAX: u64 = 10_240;
    let maximum = maximum.unwrap_or(OPEN_MAX).min(OPEN_MAX);
    current.map(|current| current.max(maximum))
}

/// How many connections of clients there is room for with so many descriptors, and at most
/// `wanted`: the node's own files, other nodes and probes come first.
pub(crate) fn room_for_clients(wanted: u64, descriptors: Option<u64>) -> u64 {
    let Some(descriptors) = descriptors else {
        return wanted;
    };
    let room = descriptors
        .saturating_sub(DESCRIPTORS_RESERVED)
        .max(descriptors / 4)
        .max(1);
    wanted.min(room)
}

/// The descriptors from which on every port but that of clients has as many as it ever takes.
const PLENTY: u64 = 1_024;

/// How many connections of probes there is room for with so many descriptors, and at most `wanted`.
pub(crate) fn room_for_probes(wanted: usize, descriptors: Option<u64>) -> usize {
    match descriptors {
        Some(few) if few < PLENTY => {
            let room = usize::try_from(few / 8).unwrap_or(usize::MAX);
            wanted.min(room.max(1))
        }
        Some(_) | None => wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_the_node_itself_does_not_need() {
        assert_eq!(room_for_clients(10_000, None), 10_000);
        assert_eq!(room_for_clients(10_000, Some(1 << 20)), 10_000);
        assert_eq!(room_for_clients(10_000, Some(1_024)), 384);
        assert_eq!(room_for_clients(100, Some(1_024)), 100);
        assert_eq!(room_for_clients(10_000, Some(256)), 64);
    }

    #[test]
    fn probes_leave_room_where_there_is_little() {
        assert_eq!(room_for_probes(128, None), 128);
        assert_eq!(room_for_probes(128, Some(1_024)), 128);
        assert_eq!(room_for_probes(128, Some(256)), 32);
        assert_eq!(room_for_probes(128, Some(4)), 1);
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let raised = raise();
        let now = getrlimit(Resource::Nofile);
        assert_eq!(now.current, now.maximum);
        assert_eq!(raised, now.current);
    }
}
