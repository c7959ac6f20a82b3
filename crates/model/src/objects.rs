//! Lease objects: their table, and what the life of leases does to them. What writes do is in
//! `objects/writes.rs`, who owes the end of a term in `objects/owing.rs`.

mod owing;
mod writes;

use ringfence_core::{
    Candidate, ClusterTime, EndCause, FencingToken, GoneObject, Identity, LeaseName, Limit, Millis,
    ObjectMetadata, ObjectView, Pod, PodUid, Principal, SessionId, WallTime,
};

use super::Model;
use super::rights::named;
use owing::Note;

/// The level from which on there are objects.
const LEVEL_OBJECTS: u32 = 5;
/// From this level on keep-alives change no objects, and those of sessions go with their grants.
const LEVEL_RESTORE: u32 = 6;
/// The most objects of all names, and of names with the same first two segments.
const OBJECTS_MAX: (usize, usize) = (100_000, 10_000);
/// The most objects that one principal wrote first.
const OBJECTS_OF_ONE_MAX: usize = 2_500;
/// The most deleted objects that are remembered.
const GONE_MAX: usize = 10_000;

/// All objects, and what is remembered of those that are gone.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    /// In the order of their names.
    present: Vec<Object>,
    /// In the order of their deletions.
    gone: Vec<(u64, LeaseName, GoneObject)>,
    /// In the order of the losses.
    notes: Vec<Note>,
    /// The newest version.
    pub(super) versions: u64,
    /// The greatest version of a deletion that is forgotten.
    forgotten: u64,
    /// The names whose objects the present entry has freed, and which go unless it grants them.
    freed: Vec<LeaseName>,
}

#[derive(Clone, Debug)]
struct Object {
    name: LeaseName,
    version: u64,
    created: u64,
    created_at: WallTime,
    metadata: ObjectMetadata,
    seconds: u32,
    acquired: WallTime,
    renewed: WallTime,
    heard: ClusterTime,
    transitions: u32,
    term: Option<Term>,
    native: bool,
    /// Who wrote it first.
    owner: Option<Principal>,
}

impl Object {
    /// It stays from now on, and is its first writer's.
    fn is_written_by(&mut self, writer: Option<Principal>) {
        if self.native {
            self.owner = writer;
        }
        self.native = false;
    }
}

#[derive(Clone, Debug)]
struct Term {
    session: SessionId,
    candidate: Candidate,
    pod: Option<Pod>,
}

impl Model {
    /// All Lease objects, in the order of their names, as readers see them.
    pub fn objects(&self) -> impl Iterator<Item = ObjectView> {
        let present = self.objects.present.iter();
        present.map(|object| self.object_view(object))
    }

    /// Objects that were deleted and are remembered, in the order of their deletions.
    pub fn gone_objects(&self) -> impl Iterator<Item = (u64, &LeaseName, &GoneObject)> {
        let gone = self.objects.gone.iter();
        gone.map(|(version, name, gone)| (*version, name, gone))
    }

    /// The newest version of an object, and the greatest one of a deletion that is forgotten.
    #[must_use]
    pub fn versions(&self) -> (u64, u64) {
        (self.objects.versions, self.objects.forgotten)
    }

    fn object(&self, name: &LeaseName) -> Option<&Object> {
        self.objects
            .present
            .iter()
            .find(|object| object.name == *name)
    }

    fn term(&self, name: &LeaseName) -> Option<&Term> {
        self.object(name)?.term.as_ref()
    }

    fn next_version(&mut self) -> u64 {
        self.objects.versions += 1;
        self.objects.versions
    }

    /// Changes an object, if there is one; each change has a version of its own.
    fn change_object(&mut self, name: &LeaseName, change: impl FnOnce(&mut Object)) {
        if self.object(name).is_none() {
            return;
        }
        let version = self.next_version();
        let mut present = self.objects.present.iter_mut();
        let object = present.find(|object| object.name == *name);
        let object = object.expect("found a moment ago");
        change(object);
        object.version = version;
    }

    fn make_object(&mut self, name: &LeaseName, owner: Option<Principal>) {
        if self.object(name).is_some() {
            return;
        }
        let version = self.next_version();
        let created_at = self.wall;
        self.objects.present.push(Object {
            name: name.clone(),
            version,
            created: version,
            created_at,
            metadata: ObjectMetadata::default(),
            seconds: 0,
            acquired: WallTime(0),
            renewed: WallTime(0),
            heard: ClusterTime(0),
            transitions: 0,
            term: None,
            native: false,
            owner,
        });
        self.objects.present.sort_by(|a, b| a.name.cmp(&b.name));
    }

    fn remove_object(&mut self, name: &LeaseName) -> u64 {
        let version = self.next_version();
        let objects = &mut self.objects;
        let at = objects
            .present
            .iter()
            .position(|object| object.name == *name);
        let object = objects.present.remove(at.expect("it is there"));
        let gone = GoneObject {
            created: object.created,
            created_at: object.created_at,
        };
        objects.gone.push((version, name.clone(), gone));
        if objects.gone.len() > GONE_MAX {
            let (forgotten, ..) = objects.gone.remove(0);
            objects.forgotten = objects.forgotten.max(forgotten);
        }
        version
    }

    /// What one more object of this name would exceed. From the level on, those of sessions' leases take
    /// no room from written ones.
    fn lacks_room(&self, name: &LeaseName, written: bool) -> Option<Limit> {
        let (all, of_namespace) = OBJECTS_MAX;
        let yields = written && self.level >= LEVEL_RESTORE;
        let counted = |object: &&Object| !(yields && object.native);
        let present = || self.objects.present.iter().filter(counted);
        if present().count() >= all {
            return Some(Limit::Objects(all as u64));
        }
        let beside = present().filter(|object| namespace(&object.name) == namespace(name));
        (beside.count() >= of_namespace).then_some(Limit::NamespaceObjects(of_namespace as u64))
    }

    /// What a write would exceed that makes an object of its own.
    fn write_lacks_room(&self, name: &LeaseName, metadata: &ObjectMetadata) -> Option<Limit> {
        if let Some(known) = self.object(name)
            && !self.makes_stay(known, metadata)
        {
            return None;
        }
        let own = |object: &&Object| object.owner.is_some() && object.owner == self.writer();
        let count = self.objects.present.iter().filter(own).count();
        let full = self.binds() && count >= OBJECTS_OF_ONE_MAX;
        let own = full.then_some(Limit::PrincipalObjects(OBJECTS_OF_ONE_MAX as u64));
        self.lacks_room(name, true).or(own)
    }

    /// Whether a write with this metadata keeps an object that would go with its lease, or goes now.
    fn makes_stay(&self, object: &Object, metadata: &ObjectMetadata) -> bool {
        let free = self.grant_of(&object.name).is_none();
        object.native && (free || object.metadata != *metadata)
    }

    /// Whose an object is that the caller writes first.
    fn writer(&self) -> Option<Principal> {
        if self.level < LEVEL_RESTORE {
            return None;
        }
        match self.binds() {
            true => Some(named(self.principal())),
            false => self.principal().cloned(),
        }
    }

    /// Versions follow the clock, as tokens do.
    pub(super) fn raise_versions(&mut self) {
        if self.level < LEVEL_OBJECTS {
            return;
        }
        let raised = (self.wall.0 / 1_000).min(1 << 33) << 20;
        let objects = &mut self.objects;
        if objects.versions == 0 {
            objects.forgotten = raised;
        }
        objects.versions = objects.versions.max(raised);
    }

    /// A restored cluster gives out no version of the one before it again.
    pub(super) fn versions_of_the_past(&mut self, versions: u64) {
        let objects = &mut self.objects;
        objects.versions = objects.versions.max(versions);
        objects.forgotten = objects.versions;
    }

    fn make_native_object(&mut self, name: &LeaseName) {
        let knows = self.level >= LEVEL_OBJECTS && is_of_kubernetes(name);
        if knows && self.object(name).is_none() && self.lacks_room(name, false).is_none() {
            self.make_object(name, None);
            if self.level >= LEVEL_RESTORE {
                self.change_object(name, |object| object.native = true);
            }
        }
    }

    /// The level was raised: what is held since before there were objects has one from now on.
    pub(super) fn make_objects_of_held(&mut self, before: u32) {
        if before >= LEVEL_RESTORE || self.level < LEVEL_RESTORE {
            return;
        }
        let held: Vec<(LeaseName, WallTime)> = self
            .leases
            .iter()
            .filter(|lease| lease.name.as_str().starts_with("k8s/"))
            .filter_map(|lease| Some((lease.name.clone(), lease.grant.as_ref()?.since)))
            .collect();
        let (now, wall) = (self.time, self.wall);
        for (name, since) in held {
            if self.object(&name).is_none() {
                self.make_native_object(&name);
                self.change_object(&name, |object| {
                    (object.acquired, object.renewed, object.heard) = (since, wall, now);
                });
            }
        }
    }

    /// A lease was granted.
    pub(super) fn object_granted(&mut self, name: &LeaseName, ttl: Millis) {
        self.make_native_object(name);
        let (now, wall) = (self.time, self.wall);
        self.change_object(name, |object| {
            if object.seconds > 0 {
                object.transitions += 1;
            }
            object.seconds = whole_seconds(ttl);
            (object.acquired, object.renewed, object.heard) = (wall, wall, now);
        });
    }

    /// A grant has ended.
    pub(super) fn object_freed(&mut self, name: &LeaseName, identity: &Identity, cause: &EndCause) {
        let (mut ended, mut native) = (None, false);
        self.change_object(name, |object| {
            (ended, native) = (object.term.take(), object.native);
        });
        if native {
            self.objects.freed.push(name.clone());
        }
        let knows = matches!(
            cause,
            EndCause::Released | EndCause::Closed | EndCause::Transferred { .. }
        );
        if let Some(term) = ended.filter(|_| !knows) {
            self.note_loss(name, identity, term.candidate);
        }
    }

    /// The entry is over: the objects of sessions' leases that it left free are gone.
    pub(super) fn remove_freed_objects(&mut self) {
        for name in std::mem::take(&mut self.objects.freed) {
            let native = self.object(&name).is_some_and(|object| object.native);
            if native && self.grant_of(&name).is_none() {
                self.remove_object(&name);
            }
        }
    }

    /// Below the level a keep-alive changes the objects of what its sessions hold.
    pub(super) fn show_renewals(&mut self, sessions: &[SessionId]) {
        if !(LEVEL_OBJECTS..LEVEL_RESTORE).contains(&self.level) {
            return;
        }
        let (now, wall) = (self.time, self.wall);
        for id in sessions {
            let Some(session) = self.session(*id).filter(|session| session.seen == now) else {
                continue;
            };
            let pause = session.ttl.0 / 2;
            let held = self.leases.iter().filter(|lease| {
                let grant = lease.grant.as_ref();
                grant.is_some_and(|grant| grant.session == *id)
                    && lease.name.as_str().starts_with("k8s/")
            });
            let due = held.filter(|lease| match self.object(&lease.name) {
                Some(object) => now.since(object.heard).0 >= pause,
                None => is_of_kubernetes(&lease.name),
            });
            let due: Vec<LeaseName> = due.map(|lease| lease.name.clone()).collect();
            for name in due {
                self.make_native_object(&name);
                self.change_object(&name, |object| (object.renewed, object.heard) = (wall, now));
            }
        }
    }

    /// The sessions of terms that end with this Pod, the oldest first.
    pub(super) fn terms_of_pod(&self, uid: &PodUid) -> Vec<SessionId> {
        let terms = self
            .objects
            .present
            .iter()
            .filter_map(|object| object.term.as_ref());
        let own = terms.filter(|term| term.pod.as_ref().is_some_and(|pod| pod.uid() == uid));
        let mut own: Vec<SessionId> = own.map(|term| term.session).collect();
        own.sort_unstable();
        own
    }

    fn grant_of(&self, name: &LeaseName) -> Option<&ringfence_core::snapshot::GrantRecord> {
        let at = self.lease_at(name)?;
        self.leases[at].grant.as_ref()
    }

    /// What readers see.
    fn object_view(&self, object: &Object) -> ObjectView {
        let grant = self.grant_of(&object.name);
        let identity = |id| self.session(id).expect("alive").identity.clone();
        let holder: Option<(Identity, FencingToken)> =
            grant.map(|grant| (identity(grant.session), grant.token));
        let (mut seconds, mut renewed) = (object.seconds, object.renewed);
        if let Some(grant) = grant.filter(|_| object.term.is_none()) {
            let session = self.session(grant.session).expect("alive");
            seconds = whole_seconds(session.ttl);
            let since = session.seen.since(object.heard).0;
            renewed = WallTime(renewed.0.saturating_add(since));
        }
        ObjectView {
            name: object.name.clone(),
            version: object.version,
            created: object.created,
            created_at: object.created_at,
            metadata: object.metadata.clone(),
            holder,
            seconds,
            acquired: object.acquired,
            renewed,
            transitions: object.transitions,
        }
    }
}

fn whole_seconds(ttl: Millis) -> u32 {
    u32::try_from(ttl.0.div_ceil(1_000)).unwrap_or(u32::MAX)
}

/// The first two segments of a name.
fn namespace(name: &LeaseName) -> String {
    let segments: Vec<&str> = name.as_str().split('/').take(2).collect();
    segments.join("/")
}

/// Whether a name is that of a Lease in Kubernetes: `k8s/NAMESPACE/NAME`.
fn is_of_kubernetes(name: &LeaseName) -> bool {
    let segments: Vec<&str> = name.as_str().split('/').collect();
    let [root, namespace, name] = segments.as_slice() else {
        return false;
    };
    let is_label = |text: &str| {
        let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        text.starts_with(fine) && text.ends_with(fine) && text.chars().all(|c| fine(c) || c == '-')
    };
    *root == "k8s" && namespace.len() <= 63 && is_label(namespace) && name.split('.').all(is_label)
}
