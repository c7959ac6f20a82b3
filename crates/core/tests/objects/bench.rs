//! A state machine with one Lease object, and the electors that write it.

use ringfence_core::{
    Called, Caller, Command, FencingToken, Identity, LEVEL_OBJECTS, LeaseName, Millis,
    ObjectMetadata, ObjectSpec, ObjectView, ObjectWrite, ObjectWritten, OpenId, Outcome, Pod,
    PodText, PodUid, Principal, Rejection, Secret, Settings, WriteObject,
};

use crate::world::World;

pub(crate) const SECONDS: u32 = 10;

/// An elector: what it calls itself, and the Pod that its token names.
#[derive(Clone, Copy)]
pub(crate) struct Elector {
    pub(crate) identity: &'static str,
    pub(crate) pod: Option<&'static str>,
}

pub(crate) const ONE: Elector = Elector {
    identity: "one",
    pod: Some("uid-1"),
};
pub(crate) const TWO: Elector = Elector {
    identity: "two",
    pod: Some("uid-2"),
};

pub(crate) struct Bench {
    pub(crate) world: World,
    opened: u8,
    /// Whether leaders watch the Kubernetes of the electors' Pods.
    pub(crate) watches: bool,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::at(LEVEL_OBJECTS)
    }

    pub(crate) fn at(level: u32) -> Self {
        Self {
            world: World::formed(level, Settings::STANDARD),
            opened: 0,
            watches: false,
        }
    }

    /// Lets time pass. What is due then ends, as the leader sees to.
    pub(crate) fn pass(&mut self, length: Millis) {
        self.world.time = self.world.time.after(length);
        self.world.apply(Command::Tick);
    }

    pub(crate) fn object(&self) -> Option<ObjectView> {
        self.world.machine.object(&name())
    }

    pub(crate) fn version(&self) -> Option<u64> {
        self.object().map(|object| object.version)
    }

    pub(crate) fn write_at(
        &mut self,
        version: Option<u64>,
        by: Elector,
        write: ObjectWrite,
    ) -> Outcome {
        let write = WriteObject {
            name: name(),
            version,
            pod: by.pod.map(|pod| PodUid::parse(pod).unwrap()),
            watched: by.pod.filter(|_| self.watches).map(pod),
            write,
        };
        let caller = Caller {
            principal: Principal::parse("sa:prod:shop/web").unwrap(),
            token: None,
            node: 1,
        };
        let command = Command::WriteObject(Box::new(write));
        self.world
            .apply(Command::Called(Box::new(Called { caller, command })))
    }

    pub(crate) fn spec(&mut self, holder: &str) -> ObjectSpec {
        self.opened += 1;
        ObjectSpec {
            holder: Identity::parse(holder).unwrap(),
            seconds: SECONDS,
            new_term: false,
            open: OpenId::new([self.opened; 16]),
            secret: Secret::new([self.opened; 16]),
        }
    }

    /// Writes, on the present version, that `holder` holds the lease.
    pub(crate) fn put(&mut self, by: Elector, holder: &str) -> Outcome {
        let (version, spec) = (self.version(), self.spec(holder));
        self.write_at(version, by, put(Some(spec)))
    }

    pub(crate) fn acquire(&mut self, by: Elector) -> FencingToken {
        let done = self.put(by, by.identity);
        held(&done).unwrap_or_else(|| panic!("{done:?}"))
    }

    pub(crate) fn holder(&self) -> Option<String> {
        let (identity, _) = self.object()?.holder?;
        Some(identity.as_str().to_owned())
    }
}

pub(crate) fn name() -> LeaseName {
    LeaseName::parse("k8s/shop/web").unwrap()
}

pub(crate) fn pod(uid: &str) -> Pod {
    let text = PodText {
        namespace: "shop",
        name: "web-0",
        uid,
        container: "",
    };
    Pod::parse(text).unwrap()
}

pub(crate) fn put(spec: Option<ObjectSpec>) -> ObjectWrite {
    ObjectWrite::Put {
        metadata: ObjectMetadata::default(),
        spec,
    }
}

pub(crate) fn written(outcome: &Outcome) -> &ObjectWritten {
    match outcome {
        Outcome::Object(written) => written,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn held(outcome: &Outcome) -> Option<FencingToken> {
    match outcome {
        Outcome::Object(written) => written.held.map(|(token, _)| token),
        _ => None,
    }
}

pub(crate) fn rejection(outcome: Outcome) -> Rejection {
    match outcome {
        Outcome::Rejected(rejection) => rejection,
        other => panic!("{other:?}"),
    }
}

/// Longer than any term without a renewal.
pub(crate) const LONG: Millis = Millis::from_secs(3_600);
