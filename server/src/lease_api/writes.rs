//! Creates, updates, patches and deletes: each becomes one conditional write of the object.
//!
//! An update says the version that it is based on. A patch and a delete are applied to the newest
//! state, and to the next one if another write came between.

use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use rand::Rng;
use ringfence_core::{
    Identity, LeaseName, ObjectMetadata, ObjectSpec, ObjectView, ObjectWrite, ObjectWritten,
    OpenId, Rejection, Revoke, Secret, Verb, WriteObject,
};
use ringfence_lease_api::accept::{Form, form};
use ringfence_lease_api::body::{self, Target};
use ringfence_lease_api::lease::Spec;
use ringfence_lease_api::metadata::{Stored, check_own};
use ringfence_lease_api::options::{DeleteOptions, Include, WriteOptions};
use ringfence_lease_api::patch::Patch;
use ringfence_lease_api::route::Key;
use ringfence_lease_api::status::deleted;
use ringfence_lease_api::{Failure, Lease};
use ringfence_services::{Fresh, ObjectRefused};
use tokio::time::{sleep, timeout};

use super::failures::{self, What};
use super::reads::one;
use super::shown::{fence, lease, name_of, rehearsed_lease, uid};
use super::{Answer, Asked, BODY_BYTES_MAX, LeaseApi};

/// How many states a patch or a delete is applied to, at most.
const TRIES_MAX: u32 = 5;
/// The duration of a lease whose writer names none, in seconds: as in client-go.
const SECONDS_STANDARD: i32 = 15;
/// How long a write without a time-out of its own may take.
const TIME_STANDARD: Duration = Duration::from_secs(30);

/// The fence of the grant that the write made or renewed.
const FENCE: HeaderName = HeaderName::from_static("ringfence-fence");
/// For how long it may be believed, in milliseconds, counted from before the request was sent.
const VALID_FOR: HeaderName = HeaderName::from_static("ringfence-valid-for");
/// What a process sends with its first write: it knows nothing of an earlier term.
const NEW_TERM: HeaderName = HeaderName::from_static("ringfence-new-term");

/// The warning to a holder that may not give back what it holds.
const NOT_ALONE: &str = "the token names no Pod, so other processes may have it: it renews this lease \
                         and cannot release it; project a token into the Pod, or name the principal in \
                         --lease-api-single-process";

/// The warning to a holder whose token has expired.
const LATE: &str = "the token has expired: it renews and releases this lease for a while (--lease-api-token-grace), \
                    and is granted no other; see why its Pod gets no new one";

/// A write that is under way.
struct Writing<'a> {
    asked: &'a Asked,
    key: &'a Key,
    name: LeaseName,
    what: What<'a>,
}

impl LeaseApi {
    pub(super) async fn create(
        &self,
        asked: &Asked,
        namespace: String,
        options: WriteOptions,
        bytes: &[u8],
    ) -> Result<Answer, Failure> {
        let target = Target {
            namespace: &namespace,
            name: None,
        };
        let validation = options.field_validation;
        let kind = asked.content_type();
        let parsed = body::lease(kind, bytes, BODY_BYTES_MAX, validation, target)?;
        let key = Key {
            namespace: namespace.clone(),
            name: parsed.lease.metadata.name.clone(),
        };
        let writing = Writing::new(asked, &key, "create")?;
        self.admit(&writing, Verb::Acquire)?;
        let present = self.present(&writing, Fresh::Any).await?;
        if present.is_some() && self.present(&writing, Fresh::Newest).await?.is_some() {
            return Err(Failure::already_exists(&key.name));
        }
        let put = self.put(&writing, None, &parsed.lease, &options).await;
        let answer = put.map_err(|why| match why {
            Why::Moved => Failure::already_exists(&key.name),
            Why::Failed(failure) => failure,
        })?;
        Ok(answer.with(StatusCode::CREATED, parsed.warnings))
    }

    pub(super) async fn update(
        &self,
        asked: &Asked,
        key: Key,
        options: WriteOptions,
        bytes: &[u8],
    ) -> Result<Answer, Failure> {
        let target = Target {
            namespace: &key.namespace,
            name: Some(&key.name),
        };
        let validation = options.field_validation;
        let kind = asked.content_type();
        let parsed = body::lease(kind, bytes, BODY_BYTES_MAX, validation, target)?;
        let writing = Writing::new(asked, &key, "update")?;
        self.admit(&writing, Verb::Acquire)?;
        let given = parsed.lease.metadata.version()?;
        // A holder that renews is based on the version that this node has: it costs one entry and no
        // round of a read.
        let mut present = self.present(&writing, Fresh::Any).await?;
        if present.as_ref().map(|object| object.version) != given {
            present = self.present(&writing, Fresh::Newest).await?;
        }
        let status = match (&present, given) {
            (Some(_), None) => return Err(Failure::version_required(&key.name)),
            (Some(object), Some(given)) if object.version != given => {
                return Err(Failure::modified(&key.name));
            }
            (None, Some(_)) => return Err(Failure::modified(&key.name)),
            (Some(_), Some(_)) => StatusCode::OK,
            (None, None) => StatusCode::CREATED,
        };
        let put = self.put(&writing, present.as_ref(), &parsed.lease, &options);
        let answer = put.await.map_err(|why| why.failure(&key))?;
        Ok(answer.with(status, parsed.warnings))
    }

    pub(super) async fn patch(
        &self,
        asked: &Asked,
        key: Key,
        options: WriteOptions,
        bytes: &[u8],
    ) -> Result<Answer, Failure> {
        let patch = Patch::read(asked.content_type(), bytes, BODY_BYTES_MAX, &options)?;
        let writing = Writing::new(asked, &key, "patch")?;
        self.admit(&writing, Verb::Acquire)?;
        let target = Target {
            namespace: &key.namespace,
            name: Some(&key.name),
        };
        let mut tries = 0;
        loop {
            tries += 1;
            let present = self.present(&writing, Fresh::Newest).await?;
            let patched = match &present {
                Some(object) => {
                    let holding = self.objects.holds(&asked.caller, &writing.name);
                    patch.apply(&lease(object, self.cluster()), holding)?
                }
                None => patch.create(target)?,
            };
            let given = patched.lease.metadata.version()?;
            let version = present.as_ref().map(|object| object.version);
            if given.is_some() && given != version {
                return Err(Failure::modified(&key.name));
            }
            let put = self.put(&writing, present.as_ref(), &patched.lease, &options);
            match put.await {
                Ok(answer) => {
                    let status = match present {
                        Some(_) => StatusCode::OK,
                        None => StatusCode::CREATED,
                    };
                    return Ok(answer.with(status, patched.warnings));
                }
                Err(Why::Moved) if !patch.binds() && tries < TRIES_MAX => {}
                Err(why) => return Err(why.failure(&key)),
            }
        }
    }

    pub(super) async fn delete(
        &self,
        asked: &Asked,
        key: Key,
        options: DeleteOptions,
        bytes: &[u8],
    ) -> Result<Answer, Failure> {
        let options = body::delete_options(asked.content_type(), bytes, BODY_BYTES_MAX, options)?;
        let writing = Writing::new(asked, &key, "delete")?;
        self.admit(&writing, Verb::Revoke)?;
        // What these are answered is known without an act: it is a read, and to end the grant of another
        // one is no right to that.
        let tells =
            options.is_dry_run() || options.uid.is_some() || options.resource_version.is_some();
        let mut tries = 0;
        loop {
            tries += 1;
            let present = match tells {
                true => self.present_to_read(&writing).await?,
                false => self.present(&writing, Fresh::Newest).await?,
            };
            let Some(present) = present else {
                let absent = self.objects.judge_absent(&asked.caller, &writing.name);
                absent.map_err(|refused| failures::of(writing.what, &refused))?;
                return Err(Failure::not_found(&key.name));
            };
            let own_uid = uid(self.cluster(), present.created);
            if let Some(given) = options.uid.as_deref()
                && given != own_uid
            {
                return Err(Failure::other_uid(&key.name, given, &own_uid));
            }
            if options.resource_version.is_some() && options.version() != Some(present.version) {
                return Err(Failure::modified(&key.name));
            }
            let revoke = present.holder.as_ref().map(|(_, token)| Revoke {
                name: writing.name.clone(),
                token: *token,
                // `kubectl delete --force` does not wait either.
                now: options.grace_period_seconds == Some(0),
                reason: "its Lease object was deleted".to_owned(),
                operator: String::new(),
            });
            let write = ObjectWrite::Delete { revoke };
            let version = Some(present.version);
            let done = match options.is_dry_run() {
                true => self.rehearse(&writing, version, write).await,
                false => self.write(&writing, version, write, None).await,
            };
            match done {
                Ok(_) => return Ok(Answer::ok(deleted(&key.name, &own_uid))),
                Err(Why::Moved) if options.resource_version.is_none() && tries < TRIES_MAX => {}
                Err(why) => return Err(why.failure(&key)),
            }
        }
    }

    /// The object that a write is based on, once [`LeaseApi::admit`] has let it pass.
    async fn present(
        &self,
        writing: &Writing<'_>,
        fresh: Fresh,
    ) -> Result<Option<ObjectView>, Failure> {
        let caller = &writing.asked.caller;
        let found = self.objects.get_to_write(caller, &writing.name, fresh);
        let found = found.await;
        found.map_err(|refused| failures::of(writing.what, &refused))
    }

    /// The same for a write whose answer tells what a read does: for its holder, and who may read it.
    async fn present_to_read(&self, writing: &Writing<'_>) -> Result<Option<ObjectView>, Failure> {
        let (caller, name) = (&writing.asked.caller, &writing.name);
        if self.objects.holds(caller, name) {
            return self.present(writing, Fresh::Newest).await;
        }
        let found = self.objects.get(caller, name, Fresh::Newest).await;
        found.map_err(|refused| failures::of(writing.what, &refused))
    }

    /// Writes a lease over the present object.
    async fn put(
        &self,
        writing: &Writing<'_>,
        present: Option<&ObjectView>,
        wanted: &Lease,
        options: &WriteOptions,
    ) -> Result<Answer, Why> {
        let key = writing.key;
        let shown = present.map(|object| lease(object, self.cluster()));
        if let (Some(shown), Some(given)) = (&shown, &wanted.metadata.uid) {
            let own = shown.metadata.uid.as_deref().unwrap_or_default();
            if !given.is_empty() && own != given {
                return Err(Failure::other_uid(&key.name, given, own).into());
            }
        }
        check_own(
            shown.as_ref().map(|shown| &shown.metadata),
            &wanted.metadata,
        )?;
        let stored = Stored::of(wanted).encode(&key.name)?;
        let metadata = ObjectMetadata::new(&stored);
        let metadata = metadata.map_err(|why| Failure::not_allowed(&key.name, &why.to_string()))?;
        // A free object is shown with times of its own, which are no writer's.
        let unchanged = shown.as_ref().is_some_and(|shown| {
            let native = || self.objects.is_held_by_session(&writing.name);
            shown.spec == wanted.spec || (was_shown_before(shown, wanted) && native())
        });
        let spec = match unchanged {
            true => None,
            false => Some(writing.spec(wanted)?),
        };
        let form = form(writing.asked.accept().as_deref(), true)?;
        let version = present.map(|object| object.version);
        let write = ObjectWrite::Put { metadata, spec };
        if options.dry_run {
            let rehearsed = self.rehearse(writing, version, write).await?;
            let would = rehearsed_lease(&rehearsed.object, shown.as_ref(), self.cluster());
            return Ok(Answer::ok(one(&would, form, Include::default())));
        }
        let written = self
            .write(writing, version, write, options.timeout_ms)
            .await?;
        let mut answer = self.answer_of(&written, form);
        let held = present.and_then(|object| object.holder.as_ref());
        let granted = written
            .held
            .filter(|(token, _)| held.map(|(_, held)| held) != Some(token));
        if writing.asked.caller.is_late() {
            answer.warnings.push(LATE.to_owned());
        }
        if granted.is_some() && writing.asked.caller.pod().is_none() {
            answer.warnings.push(NOT_ALONE.to_owned());
        }
        Ok(answer)
    }

    /// Refuses a caller that may not write the lease, before anything of it is compared.
    fn admit(&self, writing: &Writing<'_>, verb: Verb) -> Result<(), Failure> {
        let (caller, name) = (&writing.asked.caller, &writing.name);
        let judged = self.objects.judge_writer(caller, verb, name);
        judged.map_err(|refused| failures::of(writing.what, &refused))
    }

    /// What a write would be answered now, without an entry.
    async fn rehearse(
        &self,
        writing: &Writing<'_>,
        version: Option<u64>,
        write: ObjectWrite,
    ) -> Result<ObjectWritten, Why> {
        let seconds = seconds_of(&write);
        let write = writing.object_write(version, write);
        let rehearsed = self.objects.rehearse(&writing.asked.caller, write).await;
        rehearsed.map_err(|refused| writing.refused(&refused, seconds))
    }

    fn answer_of(&self, written: &ObjectWritten, form: Form) -> Answer {
        let shown = lease(&written.object, self.cluster());
        let mut answer = Answer::ok(one(&shown, form, Include::default()));
        if let Some((token, ttl)) = written.held {
            let fence = fence(&written.object.name, token);
            if let Ok(fence) = HeaderValue::from_str(&fence) {
                answer.headers.push((FENCE, fence));
            }
            let valid = ringfence_rest::validity(ttl.0);
            answer.headers.push((VALID_FOR, HeaderValue::from(valid)));
        }
        answer
    }

    async fn write(
        &self,
        writing: &Writing<'_>,
        version: Option<u64>,
        write: ObjectWrite,
        timeout_ms: Option<u64>,
    ) -> Result<ObjectWritten, Why> {
        let seconds = seconds_of(&write);
        let write = writing.object_write(version, write);
        let time = timeout_ms.map_or(TIME_STANDARD, Duration::from_millis);
        let done = timeout(time, self.objects.write(&writing.asked.caller, write)).await;
        let done = done.map_err(|_| Failure::timeout("the write may be done yet"))?;
        if let Err(refused) = &done {
            // A client that waits for less is to hear of it, too.
            sleep(failures::pause(refused).min(time / 4)).await;
        }
        done.map_err(|refused| writing.refused(&refused, seconds))
    }
}

/// Whether this may be the spec of an earlier read, beside other metadata. While a session holds a
/// lease, the time of its last renewal moves without a version. Shown times are whole milliseconds, and
/// an elector writes no metadata beside its renewal: neither is taken for the other.
fn was_shown_before(shown: &Lease, wanted: &Lease) -> bool {
    let as_now = Spec {
        renew_time: shown.spec.renew_time,
        ..wanted.spec.clone()
    };
    let earlier = wanted.spec.renew_time.is_some_and(|renewed| {
        let range = shown.spec.acquire_time..=shown.spec.renew_time;
        range.contains(&Some(renewed)) && renewed.micros() % 1_000 == 0
    });
    earlier && as_now == shown.spec && Stored::of(shown) != Stored::of(wanted)
}

/// The duration that a write asks for, if it names a holder.
fn seconds_of(write: &ObjectWrite) -> Option<u32> {
    match write {
        ObjectWrite::Put { spec, .. } => spec.as_ref().map(|spec| spec.seconds),
        ObjectWrite::Delete { .. } => None,
    }
}

impl<'a> Writing<'a> {
    fn new(asked: &'a Asked, key: &'a Key, verb: &'static str) -> Result<Self, Failure> {
        Ok(Self {
            asked,
            key,
            name: name_of(&key.namespace, &key.name)?,
            what: What {
                verb,
                namespace: &key.namespace,
                name: &key.name,
            },
        })
    }

    fn object_write(&self, version: Option<u64>, write: ObjectWrite) -> WriteObject {
        WriteObject {
            name: self.name.clone(),
            version,
            pod: self.asked.caller.pod(),
            watched: self.asked.caller.watched_pod(),
            write,
        }
    }

    /// Why a write that asks for this duration was refused.
    fn refused(&self, refused: &ObjectRefused, seconds: Option<u32>) -> Why {
        match (refused, seconds) {
            (ObjectRefused::Rejected(Rejection::ObjectChanged { .. }), _) => Why::Moved,
            (
                ObjectRefused::Rejected(Rejection::InvalidTtl { offered, min, max }),
                Some(seconds),
            ) => Why::Failed(failures::duration(
                self.what.name,
                seconds,
                *offered,
                (*min, *max),
            )),
            _ => Why::Failed(failures::of(self.what, refused)),
        }
    }

    /// What a writer says of the holder. Its times and its count of transitions are the server's.
    fn spec(&self, wanted: &Lease) -> Result<ObjectSpec, Failure> {
        let name = &self.key.name;
        let holder = Identity::parse(wanted.spec.holder().unwrap_or_default());
        let holder = holder
            .map_err(|why| Failure::not_allowed(name, &format!("spec.holderIdentity: {why}")))?;
        let seconds = wanted.spec.lease_duration_seconds;
        let seconds = u32::try_from(seconds.unwrap_or(SECONDS_STANDARD)).unwrap_or_default();
        let new_term = self.asked.header(&NEW_TERM);
        Ok(ObjectSpec {
            holder,
            seconds,
            new_term: new_term.is_some_and(|value| value.eq_ignore_ascii_case("true")),
            open: OpenId::new(random()),
            secret: Secret::new(random()),
        })
    }
}

fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    rand::rng().fill(&mut bytes);
    bytes
}

/// Why a write has no answer yet.
enum Why {
    /// Another write came first.
    Moved,
    Failed(Failure),
}

impl Why {
    fn failure(self, key: &Key) -> Failure {
        match self {
            Self::Moved => Failure::modified(&key.name),
            Self::Failed(failure) => failure,
        }
    }
}

impl From<Failure> for Why {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}
