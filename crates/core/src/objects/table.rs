//! All objects, and the order of their last changes.

use alloc::string::String;
use core::ops::Bound;

use ringfence_planted::{Bug, planted};

use super::object::{
    GONE_OBJECTS_MAX, GoneObject, LeaseObject, NAMESPACE_OBJECTS_MAX, OBJECTS_MAX, ObjectView, Term,
};
use super::owing::Notes;
use crate::access::usage::{Counts, less};
use crate::id::{FencingToken, SessionId};
use crate::level::LEVEL_OBJECTS;
use crate::machine::StateMachine;
use crate::name::LeaseName;
use crate::outcome::Limit;
use crate::pod::{Pod, PodUid};
use crate::snapshot::{GoneRecord, ObjectRecord, OwingRecord, Record};
use crate::state::Frozen;
use crate::tree::Tree;

/// Versions stay below 2^53 until the year 2242.
const VERSION_SECONDS_MAX: u64 = 1 << 33;

/// The objects, and those deleted last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    by_name: Tree<LeaseName, LeaseObject>,
    /// Exactly one entry per object, under its version.
    changes: Tree<u64, LeaseName>,
    /// By the version of the deletion.
    gone: Tree<u64, (LeaseName, GoneObject)>,
    /// Who lost a term of a name and has not been granted one since.
    pub(super) owing: Notes,
    /// How many objects have names that begin with the same two segments.
    namespaces: Tree<String, Kinds>,
    /// How many of all go when their leases are free.
    native: u64,
    /// Exactly one entry per term that ends with a Pod.
    pods: Tree<(PodUid, SessionId), Pod>,
}

/// How many objects of a namespace there are.
#[derive(Clone, Copy, Debug, Default)]
struct Kinds {
    all: u64,
    native: u64,
}

impl Objects {
    pub(crate) fn get(&self, name: &LeaseName) -> Option<&LeaseObject> {
        self.by_name.get(name)
    }

    pub(crate) fn len(&self) -> u64 {
        self.by_name.len() as u64
    }

    /// Objects whose names begin with `prefix` and stand behind `after`, by name.
    pub(crate) fn named<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a LeaseName, &'a LeaseObject)> + use<'a> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.by_name
            .iter_from::<str>(from)
            .take_while(move |(name, _)| name.as_str().starts_with(prefix))
    }

    /// Objects that were changed last behind this version, in the order of their versions.
    pub(crate) fn changed_after(
        &self,
        version: u64,
    ) -> impl Iterator<Item = (u64, &LeaseName)> + use<'_> {
        let changes = self.changes.iter_from(Bound::Excluded(&version));
        changes.map(|(version, name)| (*version, name))
    }

    /// Objects deleted behind this version, in the order of their deletions.
    pub(crate) fn gone_after(
        &self,
        version: u64,
    ) -> impl Iterator<Item = (u64, &LeaseName, &GoneObject)> + use<'_> {
        let gone = self.gone.iter_from(Bound::Excluded(&version));
        gone.map(|(version, (name, gone))| (*version, name, gone))
    }

    /// Whether there is room for one more object of this name; beside native ones, if it is written.
    pub(crate) fn room_for(&self, name: &LeaseName, written: bool) -> Result<(), Limit> {
        let counted = |all: u64, native: u64| all - if written { native } else { 0 };
        if counted(self.len(), self.native) >= OBJECTS_MAX {
            return Err(Limit::Objects(OBJECTS_MAX));
        }
        let here = self.namespaces.get(namespace_of(name));
        if here.is_some_and(|here| counted(here.all, here.native) >= NAMESPACE_OBJECTS_MAX) {
            return Err(Limit::NamespaceObjects(NAMESPACE_OBJECTS_MAX));
        }
        Ok(())
    }

    /// Puts in an object, or the next version of one.
    pub(crate) fn put(&mut self, name: &LeaseName, object: LeaseObject) {
        self.changes.insert(object.version, name.clone());
        let binding = binding(&object);
        self.count(name, object.native, 1);
        let before = self.by_name.insert(name.clone(), object);
        self.unbind(before.as_ref());
        if let Some((key, pod)) = binding {
            self.pods.insert(key, pod);
        }
        if let Some(before) = before {
            self.changes.remove(&before.version);
            self.count(name, before.native, -1);
        }
    }

    fn unbind(&mut self, object: Option<&LeaseObject>) {
        if let Some((key, _)) = object.and_then(binding) {
            self.pods.remove(&key);
        }
    }

    /// The Pods whose ends end terms, in the order of their UIDs.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().map(|(_, pod)| pod)
    }

    /// The first session of a term that ends with this Pod.
    pub(crate) fn bound_to(&self, uid: &PodUid) -> Option<SessionId> {
        let first = (uid.clone(), SessionId::FIRST);
        let ((found, session), _) = self.pods.iter_from(Bound::Included(&first)).next()?;
        (found == uid).then_some(*session)
    }

    /// Takes an object out, which was deleted with this version. The greatest version of a deletion
    /// that is forgotten for it, 0 if none is.
    pub(crate) fn delete(&mut self, name: &LeaseName, version: u64) -> u64 {
        let Some(object) = self.by_name.remove(name) else {
            return 0;
        };
        self.changes.remove(&object.version);
        self.unbind(Some(&object));
        self.count(name, object.native, -1);
        let gone = GoneObject {
            created: object.created,
            created_at: object.created_at,
        };
        self.add_gone(version, name.clone(), gone);
        let mut forgotten = 0;
        while self.gone.len() as u64 > GONE_OBJECTS_MAX
            && let Some((version, _)) = self.gone.pop_first()
        {
            forgotten = version;
        }
        forgotten
    }

    fn add_gone(&mut self, version: u64, name: LeaseName, gone: GoneObject) {
        self.gone.insert(version, (name, gone));
    }

    /// Puts in what a snapshot has of an object that was deleted. `versions` is the newest version.
    pub(crate) fn restore_gone(
        &mut self,
        record: GoneRecord,
        versions: u64,
    ) -> Result<(), &'static str> {
        let (version, created) = (record.version, record.gone.created);
        let full = self.gone.len() as u64 >= GONE_OBJECTS_MAX;
        if full || version > versions || created >= version || self.gone.get(&version).is_some() {
            return Err("is a deleted object too many, or one whose version makes no sense");
        }
        self.add_gone(version, record.name, record.gone);
        Ok(())
    }

    /// Puts in what a snapshot has of those who lost terms of a lease.
    pub(crate) fn restore_owing(
        &mut self,
        record: OwingRecord,
        versions: u64,
    ) -> Result<(), &'static str> {
        self.owing.restore(record.name, record.notes, versions)
    }

    /// Whether an object was changed with this version last.
    pub(crate) fn has_change(&self, version: u64) -> bool {
        self.changes.get(&version).is_some()
    }

    /// Objects by name, deleted ones by version, and what candidates owe, by name.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record> + use<'_> {
        let objects = self.by_name.iter().map(|(name, object)| {
            let (name, object) = (name.clone(), object.clone());
            Record::Object(ObjectRecord { name, object })
        });
        let gone = self.gone.iter().map(|(version, (name, gone))| {
            let (version, name, gone) = (*version, name.clone(), *gone);
            Record::GoneObject(GoneRecord {
                version,
                name,
                gone,
            })
        });
        let owing = self.owing.iter().map(|(name, notes)| {
            let (name, notes) = (name.clone(), notes.clone());
            Record::Owing(OwingRecord { name, notes })
        });
        objects.chain(gone).chain(owing)
    }

    fn count(&mut self, name: &LeaseName, native: bool, step: i64) {
        let native = if native { step } else { 0 };
        self.native = self.native.saturating_add_signed(native);
        let namespace = namespace_of(name);
        let here = self.namespaces.get(namespace).copied().unwrap_or_default();
        let here = Kinds {
            all: here.all.saturating_add_signed(step),
            native: here.native.saturating_add_signed(native),
        };
        match here.all {
            0 => drop(self.namespaces.remove(namespace)),
            _ => drop(self.namespaces.insert(namespace.into(), here)),
        }
    }
}

/// The Pod that an object's term ends with, and where it stands.
fn binding(object: &LeaseObject) -> Option<((PodUid, SessionId), Pod)> {
    let term = object.term.as_ref()?;
    let pod = term.pod.clone()?;
    Some(((pod.uid().clone(), term.session), pod))
}

/// The first two segments of a name.
fn namespace_of(name: &LeaseName) -> &str {
    let text = name.as_str();
    let end = text.match_indices('/').nth(1).map(|(at, _)| at);
    &text[..end.unwrap_or(text.len())]
}

impl Frozen {
    /// One Lease object.
    #[must_use]
    pub fn object(&self, name: &LeaseName) -> Option<ObjectView> {
        let object = self.objects.get(name)?;
        Some(self.object_view(name, object))
    }

    /// Lease objects whose names begin with `prefix` and stand behind `after`, in the order of their
    /// names.
    pub fn objects<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&str>,
    ) -> impl Iterator<Item = ObjectView> + use<'a> {
        let named = self.objects.named(prefix, after);
        named.map(|(name, object)| self.object_view(name, object))
    }

    /// The names of Lease objects that begin with `prefix` and stand behind `after`, in their order: a
    /// reader that looks for few of them makes no views of the others.
    pub fn object_names<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&str>,
    ) -> impl Iterator<Item = &'a LeaseName> + use<'a> {
        self.objects.named(prefix, after).map(|(name, _)| name)
    }

    /// How many Lease objects there are.
    #[must_use]
    pub fn object_count(&self) -> u64 {
        self.objects.len()
    }

    /// The names of objects whose last change is behind this version, in the order of their versions.
    pub fn objects_changed_after(
        &self,
        version: u64,
    ) -> impl Iterator<Item = (u64, &LeaseName)> + use<'_> {
        self.objects.changed_after(version)
    }

    /// Objects that were deleted behind this version, in the order of their deletions. Some may be
    /// missing if it is before [`Frozen::objects_forgotten`].
    pub fn objects_gone_after(
        &self,
        version: u64,
    ) -> impl Iterator<Item = (u64, &LeaseName, &GoneObject)> + use<'_> {
        self.objects.gone_after(version)
    }

    /// The version of the newest change of an object; 0 before the first.
    #[must_use]
    pub fn objects_version(&self) -> u64 {
        self.header.versions
    }

    /// The greatest version of a deletion that is forgotten; 0 if none is.
    #[must_use]
    pub fn objects_forgotten(&self) -> u64 {
        self.header.versions_forgotten
    }

    /// The grant of an object that was made through the Lease endpoint and is in force.
    #[must_use]
    pub fn object_term(&self, name: &LeaseName) -> Option<&Term> {
        self.objects.get(name)?.term.as_ref()
    }

    fn object_view(&self, name: &LeaseName, object: &LeaseObject) -> ObjectView {
        let grant = self.grant_of(name);
        let (seconds, renewed) = match grant.filter(|_| object.term.is_none()) {
            Some(grant) => self.liveness_of(object, grant.session),
            None => (object.seconds, object.renewed),
        };
        ObjectView {
            name: name.clone(),
            version: object.version,
            created: object.created,
            created_at: object.created_at,
            metadata: object.metadata.clone(),
            holder: grant.map(|grant| (self.identity_of(grant.session), grant.token)),
            seconds,
            acquired: object.acquired,
            renewed,
            transitions: object.transitions,
        }
    }
}

impl StateMachine {
    /// The next version. Versions neither fall nor repeat.
    pub(super) fn next_version(&mut self) -> u64 {
        let header = &mut self.state.header;
        header.versions += 1;
        header.versions
    }

    /// Raises the versions as a term raises tokens, so that they do not fall where the cluster's state
    /// is an older one.
    pub(crate) fn raise_versions(&mut self) {
        if self.is_at(LEVEL_OBJECTS) {
            let header = &mut self.state.header;
            let seconds = header.wall.0 / 1_000;
            let raised = seconds.min(VERSION_SECONDS_MAX) << FencingToken::CLOCK_SHIFT;
            // A watch that goes on from a version of another life of the cluster must list again.
            if header.versions == 0 {
                header.versions_forgotten = raised;
            }
            header.versions = header.versions.max(raised);
        }
    }

    /// Deletes an object, with the next version.
    pub(super) fn remove_object(&mut self, name: &LeaseName) -> u64 {
        let version = self.next_version();
        self.count_object(name, |counts| less(&mut counts.objects, 1));
        let forgotten = self.state.objects.delete(name, version);
        let header = &mut self.state.header;
        header.versions_forgotten = header.versions_forgotten.max(forgotten);
        version
    }

    /// Changes an object, if there is one, and gives it the next version.
    pub(super) fn change_object(
        &mut self,
        name: &LeaseName,
        change: impl FnOnce(&mut LeaseObject),
    ) {
        let Some(object) = self.state.objects.get(name) else {
            return;
        };
        let mut object = object.clone();
        let held = object.term.is_some();
        change(&mut object);
        let unseen = held && object.term.is_none() && planted(Bug::EndOfTermUnseen);
        if !unseen && !planted(Bug::ObjectChangedUnseen) {
            object.version = self.next_version();
        }
        self.put_object(name, object);
    }

    /// Puts in an object, or the next version of one, and counts it for its owner.
    pub(crate) fn put_object(&mut self, name: &LeaseName, object: LeaseObject) {
        self.count_object(name, |counts| less(&mut counts.objects, 1));
        self.state.objects.put(name, object);
        self.count_object(name, |counts| counts.objects += 1);
    }

    fn count_object(&mut self, name: &LeaseName, change: impl FnOnce(&mut Counts)) {
        let object = self.state.objects.get(name);
        if let Some(owner) = object.and_then(|object| object.owner.as_ref()) {
            self.usages.change(Some(owner), change);
        }
    }
}
