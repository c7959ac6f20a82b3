//! A backup of a state.

use core::iter;

use ringfence_planted::{Bug, planted};

use crate::access::AccessRecord;
use crate::backup::{BackupHeader, BackupRecord, HeldByPod};
use crate::id::ClusterId;
use crate::state::Frozen;
use crate::time::Millis;

impl Frozen {
    /// The records of a backup at this index; `None` if no cluster is formed, or a restored one has not
    /// all of its state yet. Looks at every session and every lease.
    pub fn backup(&self) -> Option<impl Iterator<Item = BackupRecord> + '_> {
        let cluster = self.header.cluster.filter(|_| self.is_formed())?;
        let header = self.backup_header(cluster);
        let access = self.access.records();
        // What proves a caller is no part of a backup: a file that leaks must not give rights, and a
        // token that is revoked after the backup must stay so.
        let access = access.filter(|part| {
            !matches!(part, AccessRecord::Token { .. }) || planted(Bug::BackupHoldsTokens)
        });
        let floors = self.floors("", None);
        let floors = floors.map(|(name, token)| BackupRecord::Floor { name, token });
        let pods = self.leases.iter().filter_map(|(name, lease)| {
            let grant = lease.grant.as_deref()?;
            Some(BackupRecord::HeldByPod(HeldByPod {
                name: name.clone(),
                token: grant.token,
                pod: self.sessions.get(&grant.session)?.pod()?.clone(),
            }))
        });
        let records = iter::once(BackupRecord::Header(header));
        Some(
            records
                .chain(access.map(BackupRecord::Access))
                .chain(floors)
                .chain(pods),
        )
    }

    fn backup_header(&self, cluster: ClusterId) -> BackupHeader {
        let header = &self.header;
        let ttls = self.sessions.iter().map(|(_, session)| session.ttl());
        BackupHeader {
            cluster,
            lineage: header.lineage.clone(),
            index: header.index,
            term: header.term,
            time: header.time,
            wall: header.wall,
            level: header.level,
            settings: header.settings,
            settings_set_at: header.settings_set_at,
            tokens: header.tokens,
            token_floor: header.token_floor,
            forgotten: header.forgotten,
            ttl_greatest: ttls
                .filter(|ttl| *ttl != Millis::FOREVER)
                .max()
                .unwrap_or_default(),
            next_session: header.next_session,
            versions: header.versions,
        }
    }
}
