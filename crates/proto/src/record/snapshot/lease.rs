//! Leases with their grants and queues.

use ringfence_core::snapshot::{Block, GrantRecord, LeaseRecord, RevokedHolder, WaiterRecord};
use ringfence_core::{ClusterTime, Millis, WallTime};

use crate::record::access::{principal_or_none, text_of};
use crate::record::pb;
use crate::{DecodeError, fields};

impl From<&LeaseRecord> for pb::Lease {
    fn from(lease: &LeaseRecord) -> Self {
        Self {
            name: lease.name.as_str().into(),
            floor: fields::token_or_zero(lease.floor),
            grant: lease.grant.as_ref().map(Into::into),
            blocked: lease.blocked.as_ref().map(|block| pb::Block {
                lock_delay_until: block.lock_delay_until.0,
                revoked: block.revoked.as_ref().map(Into::into),
            }),
            idle_since: lease.idle_since.0,
            armed: lease.armed.map(|at| at.0),
            queue: lease.queue.iter().map(Into::into).collect(),
            revoked: fields::token_or_zero(lease.revoked),
            kept_for: text_of(lease.kept_for.as_ref()),
            kept_lost: lease.kept_lost,
        }
    }
}

impl TryFrom<pb::Lease> for LeaseRecord {
    type Error = DecodeError;

    fn try_from(lease: pb::Lease) -> Result<Self, DecodeError> {
        let queue = lease.queue.into_iter().map(TryInto::try_into);
        Ok(Self {
            name: fields::lease_name(&lease.name, "lease.name")?,
            floor: fields::token_or_none(lease.floor, "lease.floor")?,
            grant: lease.grant.map(TryInto::try_into).transpose()?,
            blocked: lease.blocked.map(TryInto::try_into).transpose()?,
            idle_since: ClusterTime(lease.idle_since),
            armed: lease.armed.map(ClusterTime),
            revoked: fields::token_or_none(lease.revoked, "lease.revoked")?,
            kept_for: principal_or_none(&lease.kept_for, "lease.kept_for")?,
            kept_lost: lease.kept_lost,
            queue: queue.collect::<Result<_, _>>()?,
        })
    }
}

impl From<&GrantRecord> for pb::GrantInForce {
    fn from(grant: &GrantRecord) -> Self {
        Self {
            token: grant.token.get(),
            session: grant.session.get(),
            request: grant.request.get(),
            data: fields::data_bytes(&grant.data),
            lock_delay: grant.lock_delay.0,
            index: grant.index,
            since: grant.since.0,
        }
    }
}

impl TryFrom<pb::GrantInForce> for GrantRecord {
    type Error = DecodeError;

    fn try_from(grant: pb::GrantInForce) -> Result<Self, DecodeError> {
        Ok(Self {
            token: fields::token(grant.token, "lease.grant.token")?,
            session: fields::session(grant.session, "lease.grant.session")?,
            request: fields::number(grant.request, "lease.grant.request")?,
            data: fields::holder_data(&grant.data, "lease.grant.data")?,
            lock_delay: Millis(grant.lock_delay),
            index: grant.index,
            since: WallTime(grant.since),
        })
    }
}

impl TryFrom<pb::Block> for Block {
    type Error = DecodeError;

    fn try_from(block: pb::Block) -> Result<Self, DecodeError> {
        Ok(Self {
            lock_delay_until: ClusterTime(block.lock_delay_until),
            revoked: block.revoked.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<&RevokedHolder> for pb::RevokedHolder {
    fn from(holder: &RevokedHolder) -> Self {
        Self {
            session: holder.session.get(),
            token: holder.token.get(),
            until: holder.until.0,
        }
    }
}

impl TryFrom<pb::RevokedHolder> for RevokedHolder {
    type Error = DecodeError;

    fn try_from(holder: pb::RevokedHolder) -> Result<Self, DecodeError> {
        Ok(Self {
            session: fields::session(holder.session, "lease.revoked.session")?,
            token: fields::token(holder.token, "lease.revoked.token")?,
            until: ClusterTime(holder.until),
        })
    }
}

impl From<&WaiterRecord> for pb::Waiter {
    fn from(waiter: &WaiterRecord) -> Self {
        Self {
            place: waiter.place,
            session: waiter.session.get(),
            request: waiter.request.get(),
            until: waiter.until.0,
            data: fields::data_bytes(&waiter.data),
            lock_delay: waiter.lock_delay.0,
        }
    }
}

impl TryFrom<pb::Waiter> for WaiterRecord {
    type Error = DecodeError;

    fn try_from(waiter: pb::Waiter) -> Result<Self, DecodeError> {
        Ok(Self {
            place: waiter.place,
            session: fields::session(waiter.session, "waiter.session")?,
            request: fields::number(waiter.request, "waiter.request")?,
            until: ClusterTime(waiter.until),
            data: fields::holder_data(&waiter.data, "waiter.data")?,
            lock_delay: Millis(waiter.lock_delay),
        })
    }
}
