//! Objects of leases that are held through sessions: the Lease endpoint shows them as any others.

use alloc::vec::Vec;
use core::ops::Bound;

use ringfence_planted::{Bug, planted};

use super::object::{LeaseObject, OBJECTS_MAX};
use crate::id::SessionId;
use crate::level::{LEVEL_OBJECTS, LEVEL_RESTORE};
use crate::machine::StateMachine;
use crate::name::LeaseName;
use crate::session::Session;
use crate::state::Frozen;
use crate::time::{Millis, WallTime};

/// What the names of leases begin with that have objects.
const PREFIX: &str = "k8s/";
/// The longest namespace in Kubernetes, in bytes.
const NAMESPACE_BYTES_MAX: usize = 63;
/// How many names are looked at for leases that were held before there were objects.
const HELD_LOOKS_MAX: usize = OBJECTS_MAX as usize;

impl StateMachine {
    /// Makes an object for a lease that is granted, if its name is one of Kubernetes. Where there are as
    /// many as may be, the lease is granted all the same, and has none until it is granted again.
    pub(super) fn make_native_object(&mut self, name: &LeaseName) {
        let absent = self.state.objects.get(name).is_none();
        if self.is_at(LEVEL_OBJECTS)
            && absent
            && is_object_name(name)
            && self.state.objects.room_for(name, false).is_ok()
            && !planted(Bug::NativeHolderHidden)
        {
            self.make_object(name, None);
            // Below that level they stay, as in older releases.
            if self.is_at(LEVEL_RESTORE) {
                self.change_object(name, |object| object.native = true);
            }
        }
    }

    /// Makes objects of leases that are held since before there were any, or for which there was no
    /// room. Once in the life of a cluster; of the first names only, since most may be idle.
    pub(crate) fn make_objects_of_held(&mut self) {
        if !self.is_at(LEVEL_RESTORE) {
            return;
        }
        let from = Bound::Included(PREFIX);
        let names = self.leases.iter_from::<str>(from);
        let names = names.take_while(|(name, _)| name.as_str().starts_with(PREFIX));
        let held: Vec<(LeaseName, WallTime)> = names
            .take(HELD_LOOKS_MAX)
            .filter_map(|(name, lease)| Some((name.clone(), lease.grant.as_ref()?.since)))
            .filter(|(name, _)| self.state.objects.get(name).is_none())
            .collect();
        let (now, wall) = (self.time(), self.wall());
        for (name, since) in held {
            self.make_native_object(&name);
            self.change_object(&name, |object| {
                (object.acquired, object.renewed, object.heard) = (since, wall, now);
            });
        }
    }

    /// Deletes the objects of sessions' leases that this entry has freed, and granted to no waiter.
    pub(crate) fn remove_freed_objects(&mut self) {
        for name in core::mem::take(&mut self.freed) {
            let object = self.state.objects.get(&name);
            let native = object.is_some_and(|object| object.native);
            if native && self.grant_of(&name).is_none() && !planted(Bug::FreedObjectStays) {
                self.remove_object(&name);
            }
        }
    }

    /// Shows that these sessions were heard, on the objects of what they hold: at most once in half of
    /// their TTL. Older releases do so, and equal entries make equal states on all of them.
    pub(crate) fn show_renewals(&mut self, sessions: &[SessionId]) {
        let shows = self.is_at(LEVEL_OBJECTS) && !self.is_at(LEVEL_RESTORE);
        if !shows && !planted(Bug::KeepAliveChangesObjects) {
            return;
        }
        let (now, wall) = (self.time(), self.wall());
        for id in sessions {
            // One that was not renewed is left out: it has ended, or may not live.
            let session = self.sessions.get(id);
            let Some(session) = session.filter(|session| session.seen() == now) else {
                continue;
            };
            let pause = session.ttl().0 / 2;
            let is_due = |name: &LeaseName| match self.state.objects.get(name) {
                Some(object) => now.since(object.heard).0 >= pause,
                // It was held before there were objects, or while there was no room for one.
                None => is_object_name(name),
            };
            let due: Vec<LeaseName> = holds_of_kubernetes(session)
                .filter(|name| is_due(name))
                .cloned()
                .collect();
            for name in due {
                self.make_native_object(&name);
                self.change_object(&name, |object| (object.renewed, object.heard) = (wall, now));
            }
        }
    }
}

impl Frozen {
    /// The duration, in seconds, and the time of the last renewal of what a session holds. Between two
    /// keep-alives the time stays as it is: an elector takes a time that moves for a
    /// renewal. It counts in cluster time from the object's own, so it lags by the time for which the
    /// cluster was down since the grant.
    pub(super) fn liveness_of(&self, object: &LeaseObject, holder: SessionId) -> (u32, WallTime) {
        let Some(session) = self.sessions.get(&holder) else {
            return (object.seconds, object.renewed);
        };
        let since = match planted(Bug::NativeRenewalUnseen) {
            true => Millis(0),
            false => session.seen().since(object.heard),
        };
        let renewed = WallTime(object.renewed.0.saturating_add(since.0));
        (seconds_of(session.ttl()), renewed)
    }
}

/// A TTL as the duration of a lease, in whole seconds.
pub(super) fn seconds_of(ttl: Millis) -> u32 {
    u32::try_from(ttl.0.div_ceil(1_000)).unwrap_or(u32::MAX)
}

/// Of what a session holds, the leases that may have objects.
fn holds_of_kubernetes(session: &Session) -> impl Iterator<Item = &LeaseName> {
    let holds = session.holds();
    // They stand in the order of their names.
    let first = holds.partition_point(|(name, _)| name.as_str() < PREFIX);
    let names = holds[first..].iter().map(|(name, _)| name);
    names.take_while(|name| name.as_str().starts_with(PREFIX))
}

/// Whether a lease is `k8s/NAMESPACE/NAME`, with a namespace and a name that Kubernetes allows.
fn is_object_name(name: &LeaseName) -> bool {
    let parts = name.as_str().strip_prefix(PREFIX);
    let Some((namespace, name)) = parts.and_then(|parts| parts.split_once('/')) else {
        return false;
    };
    namespace.len() <= NAMESPACE_BYTES_MAX && is_label(namespace) && name.split('.').all(is_label)
}

/// Letters, digits and hyphens, none of these at an end.
fn is_label(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.iter().all(|end| end.is_some_and(plain))
        && text.bytes().all(|byte| plain(byte) || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_kubernetes_does_not_allow_has_no_object() {
        for (name, is) in [
            ("k8s/shop/web", true),
            ("k8s/shop/web.v1", true),
            ("k8s/shop/web/api", false),
            ("k8s/shop/Web", false),
            ("k8s/shop/-web", false),
            ("k8s/shop/web.", false),
            ("k8s/shop.a/web", false),
            ("k8s/shop", false),
            ("db/shop/web", false),
        ] {
            let name = LeaseName::parse(name).unwrap();
            assert_eq!(is_object_name(&name), is, "{name}");
        }
    }
}
