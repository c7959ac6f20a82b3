//! Lease objects, for the Lease endpoint: read, listed and written. What they mean in the API of
//! Kubernetes is the endpoint's part; who may read or write one is decided here and by the entry.

mod listing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use ringfence_core::{
    Access, ClusterId, Command, Frozen, Holder, LEVEL_OBJECTS, LeaseName, Millis, Mode, ObjectView,
    ObjectWrite, ObjectWritten, Outcome, Pod, PodUid, Rejection, Scope, StateMachine, Verb,
    WriteObject,
};
use ringfence_proto::Refusal;
use ringfence_proto::v1::Reason;
use tokio::time::{sleep, timeout};

use crate::Context;
use crate::caller::{Identified, Who};
use crate::clients::{Account, Client};
use crate::places::Place;
use crate::rights::{expired, judged};
use crate::status::{RETRY_AFTER, not_proposed, not_read, unexpected};

pub use listing::{ObjectListing, ObjectsAsked};

/// How often a state is looked at for a version that is awaited.
const VERSION_LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How new a state has to be that a read is answered from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fresh {
    /// It reflects everything that was acknowledged before.
    Newest,
    /// What this node has.
    Any,
    /// It has this version, or a later one, within so long.
    Version(u64, Duration),
}

/// Why a read or write of an object has no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectRefused {
    /// Refused by the entry, without an effect on the object.
    Rejected(Rejection),
    /// The same, since another holder has the lease.
    Held {
        /// The holder.
        holder: Holder,
        /// Cluster time until the grant ends if its holder does not renew it, as far as this node
        /// knows; [`Millis::FOREVER`] if it ends with a Pod, `None` if this node does not know the
        /// holder's session.
        remaining: Option<Millis>,
    },
    /// Refused or failed otherwise.
    Refused(Box<Refusal>),
    /// This node has not come to the version in time.
    Behind {
        /// The version that was asked for.
        asked: u64,
        /// Its own version.
        own: u64,
    },
}

impl From<Refusal> for ObjectRefused {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

/// What a state is wanted for.
#[derive(Clone, Copy)]
enum For<'a> {
    /// To answer a read of what lies in this scope.
    Read(Scope<'a>),
    /// To base a write of this lease on.
    Write(&'a LeaseName),
}

/// Who asks for objects.
#[derive(Clone, Debug)]
pub struct ObjectCaller {
    who: Who,
    account: Arc<Account>,
}

impl ObjectCaller {
    /// The Pod that the caller's credential was made for, if it names one.
    #[must_use]
    pub fn pod(&self) -> Option<PodUid> {
        self.who.process()
    }

    /// Whether the credential has expired. The edge takes it for what its caller holds, and what it is
    /// taken for ends with that.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.who.has_expired()
    }

    fn holds(&self, state: &Frozen, name: &LeaseName) -> bool {
        let principal = self.who.principal();
        let may_be_unproven = state.access().mode() != Mode::Enforced && !self.is_late();
        let term = state.object_term(name).map(|term| &term.candidate);
        term.is_some_and(|of| {
            let unproven = of.principal.is_none() && may_be_unproven;
            of.pod == self.pod() && (unproven || of.principal.as_ref() == principal)
        })
    }

    /// The same Pod, if leaders watch its Kubernetes.
    #[must_use]
    pub fn watched_pod(&self) -> Option<Pod> {
        self.who.watched_pod()
    }
}

/// Reads and writes Lease objects.
#[derive(Clone)]
pub struct ObjectService {
    context: Context,
}

impl ObjectService {
    /// Objects of this node's cluster.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self { context }
    }

    /// The caller of a request with these extensions.
    #[must_use]
    pub fn caller(&self, beside: &Extensions) -> ObjectCaller {
        let client = beside.get::<Client>();
        ObjectCaller {
            who: Who::new(beside.get::<Identified>().cloned()),
            account: client.map_or_else(
                || self.context.new_account(),
                |client| Arc::clone(client.account()),
            ),
        }
    }

    /// One object; `None` if there is none of this name.
    ///
    /// # Errors
    /// [`ObjectRefused`].
    pub async fn get(
        &self,
        caller: &ObjectCaller,
        name: &LeaseName,
        fresh: Fresh,
    ) -> Result<Option<ObjectView>, ObjectRefused> {
        let state = self
            .state(caller, For::Read(Scope::Name(name)), fresh)
            .await?;
        Ok(state.object(name))
    }

    /// The same for a write that [`ObjectService::judge_writer`] has let pass. It needs no right to
    /// read: a holder that has lost its right renews and releases, and who may revoke deletes.
    ///
    /// # Errors
    /// [`ObjectRefused`].
    pub async fn get_to_write(
        &self,
        caller: &ObjectCaller,
        name: &LeaseName,
        fresh: Fresh,
    ) -> Result<Option<ObjectView>, ObjectRefused> {
        let state = self.state(caller, For::Write(name), fresh).await?;
        Ok(state.object(name))
    }

    /// Begins a list: its objects are made step by step, out of one state.
    ///
    /// # Errors
    /// [`ObjectRefused`], also if the list takes several steps and this node, or this caller, has as many
    /// such lists under way as it may.
    pub async fn list(
        &self,
        caller: &ObjectCaller,
        asked: ObjectsAsked,
        fresh: Fresh,
    ) -> Result<ObjectListing, ObjectRefused> {
        let scope = Scope::Prefix(&asked.prefix);
        let state = self.state(caller, For::Read(scope), fresh).await?;
        Ok(ObjectListing::begin(self, caller, asked, state)?)
    }

    /// This node's state for a caller that may read all names with this prefix: for watches, which
    /// look at it again and again.
    ///
    /// # Errors
    /// [`ObjectRefused`].
    pub async fn look(
        &self,
        caller: &ObjectCaller,
        prefix: &str,
        fresh: Fresh,
    ) -> Result<Frozen, ObjectRefused> {
        self.state(caller, For::Read(Scope::Prefix(prefix)), fresh)
            .await
    }

    /// Whether the caller may go on to read these objects: a stream ends with its caller's right, and
    /// with its credential, also while it has nothing to say. A node that may know old rights alone
    /// ends none.
    ///
    /// # Errors
    /// [`ObjectRefused`] says what the caller lacks.
    pub fn judge_reader(&self, caller: &ObjectCaller, prefix: &str) -> Result<(), ObjectRefused> {
        if self.context.node.access_mode() != Mode::Enforced {
            return Ok(());
        }
        let who = &caller.who;
        if who.has_expired() {
            return Err(expired().into());
        }
        let may = |access: &Access| access.judge_read(who.principal(), Scope::Prefix(prefix));
        match self.context.look_early(who, may) {
            Err(refusal) if refusal.reason == Reason::Unavailable => Ok(()),
            judged => Ok(judged?),
        }
    }

    /// Whether the caller holds this lease through its object, as far as this node knows. A term that began
    /// while nothing was proven is, where rights bind, that of no principal: who takes it over needs the
    /// right to acquire it. And what has expired proves only who it was.
    #[must_use]
    pub fn holds(&self, caller: &ObjectCaller, name: &LeaseName) -> bool {
        self.context
            .node
            .read(|machine| caller.holds(machine, name))
    }

    /// Whether the lease is held through its object by this very process of this principal, as far as this
    /// node knows.
    #[must_use]
    pub fn is_held_by(&self, who: &Identified, name: &LeaseName) -> bool {
        let (principal, process) = (&who.principal, &who.process);
        self.context.node.read(|machine| {
            let term = machine.object_term(name).map(|term| &term.candidate);
            term.is_some_and(|of| of.pod == *process && of.principal.as_ref() == Some(principal))
        })
    }

    /// Whether the lease is held otherwise than through its object, as far as this node knows.
    #[must_use]
    pub fn is_held_by_session(&self, name: &LeaseName) -> bool {
        self.context.node.read(|machine| {
            let object = machine.object(name);
            object.is_some_and(|object| object.holder.is_some())
                && machine.object_term(name).is_none()
        })
    }

    /// Whether the caller may write this lease, as far as this node knows: its holder and who may
    /// acquire it, and for [`Verb::Revoke`] who may end the grant of another one.
    ///
    /// # Errors
    /// [`ObjectRefused`] names the rule that would allow it.
    pub fn judge_writer(
        &self,
        caller: &ObjectCaller,
        verb: Verb,
        name: &LeaseName,
    ) -> Result<(), ObjectRefused> {
        if self.holds(caller, name) {
            return Ok(());
        }
        let who = &caller.who;
        let judged = self.context.look_early(who, |access| {
            let judge = |verb| access.judge(who.principal(), verb, Scope::Name(name));
            judge(Verb::Acquire).or_else(|denied| match verb {
                Verb::Revoke => judge(Verb::Revoke),
                _ => Err(denied),
            })
        });
        Ok(judged?)
    }

    /// Whether the caller may learn that this lease has no object, as far as this node knows. Who may not
    /// read it is refused as the entry refuses to delete an object that is free.
    ///
    /// # Errors
    /// [`ObjectRefused`] names the rule that would allow it.
    pub fn judge_absent(
        &self,
        caller: &ObjectCaller,
        name: &LeaseName,
    ) -> Result<(), ObjectRefused> {
        let (principal, scope) = (caller.who.principal(), Scope::Name(name));
        let judged = self.context.look_early(&caller.who, |access| {
            let read = access.judge_read(principal, scope);
            read.or_else(|_| access.judge(principal, Verb::Acquire, scope))
        });
        Ok(judged?)
    }

    /// What a write would be answered now. Nothing is written, here or in the log.
    ///
    /// # Errors
    /// As of [`ObjectService::write`].
    pub async fn rehearse(
        &self,
        caller: &ObjectCaller,
        write: WriteObject,
    ) -> Result<ObjectWritten, ObjectRefused> {
        let of_late = caller.is_late().then(|| write.clone());
        let command = Command::WriteObject(Box::new(write));
        let command = self.context.asked(&caller.who, &caller.account, command)?;
        self.context.node.read_barrier().await.map_err(not_read)?;
        if of_late.is_some_and(|write| !self.keeps(caller, &write)) {
            return Err(expired().into());
        }
        let rehearse = |machine: &StateMachine| machine.rehearse_object_write(&command);
        self.written(self.context.node.read(rehearse))
    }

    /// The version that this node's objects have come to.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.context.node.read(|machine| machine.objects_version())
    }

    /// A place for one more watch of this node.
    ///
    /// # Errors
    /// [`ObjectRefused`] if it, or this caller, has as many as it may.
    pub fn watch_place(&self, caller: &ObjectCaller) -> Result<Place, ObjectRefused> {
        Ok(self.context.watch_place(&caller.who)?)
    }

    /// Resolves when the node is stopping.
    pub async fn stopped(&self) {
        self.context.stopped().await;
    }

    /// The cluster of the objects; `None` before it is formed.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.context.node.read(|machine| machine.cluster())
    }

    /// A state for a caller that may ask for it.
    async fn state(
        &self,
        caller: &ObjectCaller,
        purpose: For<'_>,
        fresh: Fresh,
    ) -> Result<Frozen, ObjectRefused> {
        let who = &caller.who;
        self.context.admit(who)?;
        self.context.cluster()?;
        match fresh {
            Fresh::Newest => self.context.node.read_barrier().await.map_err(not_read)?,
            Fresh::Any => {}
            Fresh::Version(version, within) => self.wait_for(version, within).await?,
        }
        let state = self.context.node.frozen();
        let held = match purpose {
            For::Read(Scope::Name(name)) | For::Write(name) => caller.holds(&state, name),
            For::Read(_) => false,
        };
        if caller.is_late() && !held && state.access().mode() == Mode::Enforced {
            return Err(expired().into());
        }
        let judge = |access: &Access| match purpose {
            For::Read(scope) => access.judge_read(who.principal(), scope),
            For::Write(_) => Ok(()),
        };
        let asker = self.context.caller(who);
        self.context
            .heed(judged(state.access(), asker.as_ref(), judge))?;
        Ok(state)
    }

    async fn wait_for(&self, version: u64, within: Duration) -> Result<(), ObjectRefused> {
        let come = async {
            while self.version() < version {
                sleep(VERSION_LOOK_INTERVAL).await;
            }
        };
        let come = timeout(within, come).await;
        come.map_err(|_| ObjectRefused::Behind {
            asked: version,
            own: self.version(),
        })
    }

    /// Writes or deletes an object.
    ///
    /// # Errors
    /// [`ObjectRefused::Rejected`] if the entry was refused; other refusals say by their reason
    /// whether the write may have been done.
    pub async fn write(
        &self,
        caller: &ObjectCaller,
        write: WriteObject,
    ) -> Result<ObjectWritten, ObjectRefused> {
        self.context.cluster()?;
        let level = self.context.node.read(|machine| machine.level());
        if level < LEVEL_OBJECTS {
            let why = format!(
                "Lease objects begin with level {LEVEL_OBJECTS}, and the level of the cluster is \
                 {level}: it is raised once every node runs this release"
            );
            return Err(Refusal::unavailable(why, None, RETRY_AFTER).into());
        }
        if caller.is_late() && !self.keeps(caller, &write) {
            return Err(expired().into());
        }
        let command = Command::WriteObject(Box::new(write));
        let command = self.context.asked(&caller.who, &caller.account, command)?;
        let applied = self.context.node.propose(command).await;
        let applied = applied.map_err(not_proposed)?;
        self.written(applied.outcome)
    }

    /// Whether this write can only renew or release what its caller holds, or change its metadata. It is bound to a version, in
    /// which the caller holds the lease, and the end of a grant makes another version: an entry that would
    /// grant finds that one, and is refused.
    fn keeps(&self, caller: &ObjectCaller, write: &WriteObject) -> bool {
        let ObjectWrite::Put { spec, .. } = &write.write else {
            return false;
        };
        let begins = spec.as_ref().is_some_and(|spec| spec.new_term);
        // In this order: versions do not come back, so a lease that is held behind the look at its version
        // was held in it, or the version has passed.
        let newest = self
            .context
            .node
            .read(|machine| machine.object(&write.name));
        let based = newest.map(|object| object.version);
        !begins && based.is_some() && based == write.version && self.holds(caller, &write.name)
    }

    fn written(&self, outcome: Outcome) -> Result<ObjectWritten, ObjectRefused> {
        match outcome {
            Outcome::Object(written) => Ok(*written),
            Outcome::Rejected(Rejection::Held { holder, .. }) => {
                let session = |machine: &StateMachine| machine.session(holder.session);
                let session = self.context.node.read(session);
                Err(ObjectRefused::Held {
                    remaining: session.map(|session| session.remaining),
                    holder,
                })
            }
            Outcome::Rejected(rejection) => Err(ObjectRefused::Rejected(rejection)),
            other => Err(unexpected(&other).into()),
        }
    }
}
