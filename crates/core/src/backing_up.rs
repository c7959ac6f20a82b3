//! A backup of a state.

use core::iter;

use ringfence_planted::{Bug, planted};

use crate::access::AccessRecord;
use crate::backup::{BackupHeader, BackupRecord, HeldByPod};
use crate::id::{ClusterId, FencingToken, SessionId};
use crate::lease::Lease;
use crate::settings::TTL_MAX_CEILING;
use crate::state::Frozen;

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
            let (session, token) = last_believer(lease)?;
            Some(BackupRecord::HeldByPod(HeldByPod {
                name: name.clone(),
                token,
                pod: self.sessions.get(&session)?.pod()?.clone(),
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
        // A session that was evicted is gone, and its holder may believe until then.
        let leases = self.leases.iter();
        let leases = leases.filter(|_| !planted(Bug::BackupForgetsRevokedTtls));
        let revoked = leases.filter_map(|(_, lease)| {
            let revoked = lease.blocked.as_deref()?.revoked?;
            Some(revoked.until.since(header.time))
        });
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
                .chain(revoked)
                .filter(|ttl| *ttl <= TTL_MAX_CEILING)
                .max()
                .unwrap_or_default(),
            next_session: header.next_session,
            versions: header.versions,
        }
    }
}

/// Who may still believe that it holds a lease: its holder, or the one that lost it to an operator and
/// may not know.
fn last_believer(lease: &Lease) -> Option<(SessionId, FencingToken)> {
    if let Some(grant) = lease.grant.as_deref() {
        return Some((grant.session, grant.token));
    }
    if planted(Bug::BackupForgetsRevokedPods) {
        return None;
    }
    let revoked = lease.blocked.as_deref()?.revoked?;
    Some((revoked.session, revoked.token))
}
