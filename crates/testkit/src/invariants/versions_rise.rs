//! E3: versions of Lease objects neither fall nor repeat, and each change has one: a watch that goes
//! on from any version ends in the state that is listed.

use std::collections::BTreeMap;

use ringfence_core::{LeaseName, LeaseObject};

use super::{Invariant, Step};
use crate::view::View;

/// A watch that was away for so many entries goes on.
const AWAY: [u64; 3] = [1, 4, 13];

#[derive(Default)]
pub(super) struct VersionsRise {
    entries: u64,
    watches: [Watch; AWAY.len()],
}

/// What a watch shows, and the version that it has come to.
#[derive(Default)]
struct Watch {
    shown: BTreeMap<LeaseName, LeaseObject>,
    version: u64,
}

impl Watch {
    fn go_on(&mut self, view: &View) {
        let header = &view.header;
        if self.version < header.versions_forgotten {
            self.shown.clear();
            self.version = 0;
        }
        let gone = view.gone.iter();
        for gone in gone.filter(|gone| gone.version > self.version) {
            let older = self.shown.get(&gone.name);
            if older.is_some_and(|older| older.version < gone.version) {
                self.shown.remove(&gone.name);
            }
        }
        let objects = view.objects.iter();
        for record in objects.filter(|record| record.object.version > self.version) {
            let (name, object) = (record.name.clone(), record.object.clone());
            self.shown.insert(name, object);
        }
        self.version = header.versions;
    }
}

impl Invariant for VersionsRise {
    fn check(&mut self, step: &Step) -> Result<(), String> {
        let (before, after) = (&step.before, &step.after);
        let newest = before.header.versions;
        if after.header.versions < newest {
            let to = after.header.versions;
            return Err(format!("the newest version fell from {newest} to {to}"));
        }
        let mut versions: Vec<u64> = after.objects.iter().map(|o| o.object.version).collect();
        versions.extend(after.gone.iter().map(|gone| gone.version));
        versions.sort_unstable();
        if let Some(twice) = versions.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("version {} is given twice", twice[0]));
        }
        for record in &after.objects {
            let known = before.object(&record.name);
            let changed = known != Some(&record.object);
            if changed && record.object.version <= newest {
                let (name, version) = (&record.name, record.object.version);
                return Err(format!("{name} changed and has version {version}"));
            }
        }
        self.entries += 1;
        let listed: BTreeMap<LeaseName, LeaseObject> = after
            .objects
            .iter()
            .map(|record| (record.name.clone(), record.object.clone()))
            .collect();
        for (watch, away) in self.watches.iter_mut().zip(AWAY) {
            if self.entries.is_multiple_of(away) {
                watch.go_on(after);
                if watch.shown != listed {
                    return Err(format!(
                        "a watch that was away for {away} entries shows {:?}, and {listed:?} is \
                         listed",
                        watch.shown
                    ));
                }
            }
        }
        Ok(())
    }
}
