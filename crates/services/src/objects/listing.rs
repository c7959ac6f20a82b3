//! Lists of Lease objects, step by step: a list of all objects of a large cluster would keep a thread of
//! the node for seconds, and keep-alives would wait for it.
//!
//! A step is made when its reader has taken the one before. Between steps all other work has its turn,
//! and the caller is judged again. A list of several steps takes one of a few places, and a reader that
//! is too slow loses its connection, since the list keeps a frozen state.

use std::time::Duration;

use ringfence_core::{Frozen, LeaseName, ObjectView};
use ringfence_proto::Refusal;
use tokio::task::yield_now;

use super::{ObjectCaller, ObjectRefused, ObjectService};
use crate::clients::Unread;
use crate::limits::{LIST_PACE_MIN, OBJECTS_PER_STEP_MAX, REPLY_STALL_MAX};
use crate::places::Place;

/// What a list is asked for.
#[derive(Clone, Debug, Default)]
pub struct ObjectsAsked {
    /// What the names begin with.
    pub prefix: String,
    /// They stand behind this one.
    pub after: Option<String>,
    /// The most objects that are looked at; `None`: all.
    pub size: Option<usize>,
    /// The one name that is meant.
    pub only: Option<LeaseName>,
}

/// A list under way.
pub struct ObjectListing {
    objects: ObjectService,
    caller: ObjectCaller,
    state: Frozen,
    asked: ObjectsAsked,
    /// How many objects it may look at yet.
    left: usize,
    is_begun: bool,
    is_over: bool,
    /// `None` for a list of one step.
    _place: Option<Place>,
    _unread: Unread,
}

impl ObjectListing {
    /// A list out of this state, which the caller may read.
    pub(super) fn begin(
        objects: &ObjectService,
        caller: &ObjectCaller,
        asked: ObjectsAsked,
        state: Frozen,
    ) -> Result<Self, Refusal> {
        let left = asked.size.unwrap_or(usize::MAX);
        let place = match asked.only.is_some() || left <= OBJECTS_PER_STEP_MAX {
            true => None,
            false => {
                let mut names = state.object_names(&asked.prefix, asked.after.as_deref());
                let is_long = names.nth(OBJECTS_PER_STEP_MAX).is_some();
                let place = is_long.then(|| objects.context.list_place(&caller.who));
                place.transpose()?
            }
        };
        let pace = Duration::from_secs(state.object_count() / LIST_PACE_MIN);
        Ok(Self {
            objects: objects.clone(),
            caller: caller.clone(),
            left,
            is_begun: false,
            is_over: left == 0,
            _place: place,
            _unread: Unread::watched(&caller.account, REPLY_STALL_MAX + pace),
            state,
            asked,
        })
    }

    /// The version of its state.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.state.objects_version()
    }

    /// Its state.
    #[must_use]
    pub fn state(&self) -> &Frozen {
        &self.state
    }

    /// The same, when the list is over.
    #[must_use]
    pub fn into_state(self) -> Frozen {
        self.state
    }

    /// Whether all of its steps are made.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The objects of the next step whose names are wanted, which may be none; `None` when the list is
    /// over.
    ///
    /// # Errors
    /// [`ObjectRefused`] if the caller may not go on to read them.
    pub async fn next(
        &mut self,
        wanted: impl Fn(&LeaseName) -> bool,
    ) -> Result<Option<Vec<ObjectView>>, ObjectRefused> {
        if self.is_over {
            return Ok(None);
        }
        yield_now().await;
        // The state that it began with was judged.
        if self.is_begun {
            self.objects
                .judge_reader(&self.caller, &self.asked.prefix)?;
        }
        self.is_begun = true;
        Ok(Some(self.step(wanted)))
    }

    fn step(&mut self, wanted: impl Fn(&LeaseName) -> bool) -> Vec<ObjectView> {
        if let Some(only) = &self.asked.only {
            self.is_over = true;
            let after = self.asked.after.as_deref();
            let is_here = after.is_none_or(|after| only.as_str() > after) && wanted(only);
            let found = is_here.then(|| self.state.object(only)).flatten();
            return found.into_iter().collect();
        }
        let most = self.left.min(OBJECTS_PER_STEP_MAX);
        let names = self
            .state
            .object_names(&self.asked.prefix, self.asked.after.as_deref());
        let (mut found, mut looked, mut last) = (Vec::new(), 0, None);
        for name in names.take(most) {
            looked += 1;
            last = Some(name);
            if wanted(name) {
                found.extend(self.state.object(name));
            }
        }
        let last = last.map(|last| last.as_str().to_owned());
        self.left -= looked;
        self.is_over = looked < most || self.left == 0;
        self.asked.after = last.or(self.asked.after.take());
        let rated = self.objects.context.rated(&self.caller.who);
        rated.looked_at(looked);
        found
    }

    /// The name that a next page goes on behind, if the list is over and there are more objects.
    #[must_use]
    pub fn more_behind(&self) -> Option<&str> {
        let after = self.asked.after.as_deref()?;
        let may_have = self.is_begun && self.is_over && self.left == 0 && self.asked.only.is_none();
        let mut rest = self.state.object_names(&self.asked.prefix, Some(after));
        (may_have && rest.next().is_some()).then_some(after)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures_util::future::join_all;
    use http::Extensions;
    use ringfence_core::{LEVEL_OBJECTS, ObjectMetadata, ObjectWrite, WriteObject};

    use super::super::Fresh;
    use super::*;
    use crate::alone::{Alone, alone, within};
    use crate::limits::LISTS_MAX;

    const OBJECTS: usize = 2 * OBJECTS_PER_STEP_MAX + 6;

    fn name(n: usize) -> LeaseName {
        LeaseName::parse(&format!("k8s/shop/o{n:03}")).unwrap()
    }

    /// A node with these objects, and a caller.
    async fn with_objects() -> (Alone, ObjectService, ObjectCaller) {
        let alone = alone().await;
        let knows_objects = async {
            while alone.node.read(|machine| machine.level()) < LEVEL_OBJECTS {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within("the level", knows_objects).await;
        let objects = ObjectService::new(alone.context.clone());
        let caller = objects.caller(&Extensions::new());
        let writes = (0..OBJECTS).map(|n| {
            let write = WriteObject {
                name: name(n),
                version: None,
                pod: None,
                watched: None,
                write: ObjectWrite::Put {
                    metadata: ObjectMetadata::default(),
                    spec: None,
                },
            };
            objects.write(&caller, write)
        });
        for written in join_all(writes).await {
            written.unwrap();
        }
        (alone, objects, caller)
    }

    fn all() -> ObjectsAsked {
        ObjectsAsked {
            prefix: "k8s/".to_owned(),
            ..ObjectsAsked::default()
        }
    }

    /// The names of each step.
    async fn steps(listing: &mut ObjectListing) -> Vec<Vec<LeaseName>> {
        let mut steps = Vec::new();
        while let Some(step) = listing.next(|_| true).await.unwrap() {
            steps.push(step.into_iter().map(|object| object.name).collect());
        }
        steps
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_list_is_made_of_bounded_steps_and_is_complete() {
        let (_alone, objects, caller) = with_objects().await;
        let begin = |asked| objects.list(&caller, asked, Fresh::Newest);
        let mut whole = begin(all()).await.unwrap();
        let made = steps(&mut whole).await;
        assert!(made.iter().all(|step| step.len() <= OBJECTS_PER_STEP_MAX));
        let names: Vec<LeaseName> = (0..OBJECTS).map(name).collect();
        assert_eq!(made.concat(), names);
        assert_eq!(whole.more_behind(), None);

        // Page by page.
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let asked = ObjectsAsked {
                size: Some(OBJECTS_PER_STEP_MAX + 3),
                after,
                ..all()
            };
            let mut page = begin(asked).await.unwrap();
            seen.extend(steps(&mut page).await.concat());
            after = page.more_behind().map(str::to_owned);
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, names);

        for (only, found) in [(name(7), 1), (name(OBJECTS), 0)] {
            let asked = ObjectsAsked {
                only: Some(only),
                ..all()
            };
            let mut listing = begin(asked).await.unwrap();
            assert_eq!(steps(&mut listing).await.concat().len(), found);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_node_has_so_many_lists_of_several_steps_under_way() {
        let (_alone, objects, caller) = with_objects().await;
        let begin = |asked| objects.list(&caller, asked, Fresh::Any);
        let mut under_way = Vec::new();
        for _ in 0..LISTS_MAX {
            under_way.push(begin(all()).await.unwrap());
        }
        let refused = begin(all()).await.err().unwrap();
        let ObjectRefused::Refused(refusal) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(refusal.metadata["limit"], "lists_per_node");
        // One step needs no place.
        let short = ObjectsAsked {
            size: Some(OBJECTS_PER_STEP_MAX),
            ..all()
        };
        let named = ObjectsAsked {
            only: Some(name(3)),
            ..all()
        };
        for asked in [short, named] {
            begin(asked).await.unwrap();
        }
        under_way.pop();
        begin(all()).await.unwrap();
    }
}
