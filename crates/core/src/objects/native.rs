//! Objects of leases that are held through sessions: the Lease endpoint shows them as any others.

use alloc::vec::Vec;

use ringfence_planted::{Bug, planted};

use crate::id::SessionId;
use crate::level::LEVEL_OBJECTS;
use crate::machine::StateMachine;
use crate::name::LeaseName;
use crate::session::Session;

/// What the names of leases begin with that have objects.
const PREFIX: &str = "k8s/";
/// The longest namespace in Kubernetes, in bytes.
const NAMESPACE_BYTES_MAX: usize = 63;

impl StateMachine {
    /// Makes an object for a lease that is granted, if its name is one of Kubernetes. Where there are as
    /// many as may be, the lease is granted all the same, and has none.
    pub(super) fn make_native_object(&mut self, name: &LeaseName) {
        let absent = self.state.objects.get(name).is_none();
        if self.is_at(LEVEL_OBJECTS)
            && absent
            && is_object_name(name)
            && self.state.objects.room_for(name).is_ok()
            && !planted(Bug::NativeHolderHidden)
        {
            self.make_object(name);
        }
    }

    /// Shows that these sessions were heard, on the objects of what they hold: at most once in half of
    /// their TTL, since each change is a version that watchers are sent.
    pub(crate) fn show_renewals(&mut self, sessions: &[SessionId]) {
        if !self.is_at(LEVEL_OBJECTS) {
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
