//! Keep-alives and their answers as messages between nodes.

use ringfence_core::{FencingToken, Outcome, Renewed, Secret, SessionId};
use ringfence_proto::raft as pb;
use ringfence_proto::record::{decode_outcome, encode_outcome};

use super::{KeepAlive, KeptAlive};
use crate::network::forward::unexpected;
use crate::types::codec;
use crate::types::reply::ProposeError;

pub(crate) fn request_from_pb(message: &pb::KeepAlive) -> Option<KeepAlive> {
    let sessions = message.sessions.iter().map(|proof| {
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&proof.secret_high.to_be_bytes());
        secret[8..].copy_from_slice(&proof.secret_low.to_be_bytes());
        Some((SessionId::new(proof.session)?, Secret::new(secret)))
    });
    let acknowledged = message.acknowledged.iter().map(|noticed| {
        Some((
            SessionId::new(noticed.session)?,
            FencingToken::new(noticed.token)?,
        ))
    });
    // A caller that cannot be read is another one than none.
    let caller = message.caller.as_ref().map(codec::caller_from_pb);
    Some(KeepAlive {
        sessions: sessions.collect::<Option<_>>()?,
        acknowledged: acknowledged.collect::<Option<_>>()?,
        caller: caller.transpose().ok()?,
    })
}

pub(super) fn request_to_pb(request: &KeepAlive) -> pb::KeepAlive {
    use pb::keep_alive::{Acknowledged, Proof};
    let half = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
    };
    let proofs = request.sessions.iter().map(|(session, secret)| Proof {
        session: session.get(),
        secret_high: half(&secret.as_bytes()[..8]),
        secret_low: half(&secret.as_bytes()[8..]),
    });
    let acknowledged = request.acknowledged.iter();
    let acknowledged = acknowledged.map(|(session, token)| Acknowledged {
        session: session.get(),
        token: token.get(),
    });
    pb::KeepAlive {
        sessions: proofs.collect(),
        acknowledged: acknowledged.collect(),
        caller: request.caller.as_ref().map(codec::caller_to_pb),
    }
}

pub(crate) fn kept_to_pb(kept: KeptAlive) -> pb::KeptAlive {
    let renewed = Renewed {
        time: kept.time,
        ended: Vec::new(),
        lost: kept.lost,
    };
    let ended = kept
        .ended
        .into_iter()
        .map(|(session, refusal)| pb::kept_alive::Ended {
            session: session.get(),
            outcome: encode_outcome(&Outcome::Rejected(refusal)),
        });
    pb::KeptAlive {
        renewed: encode_outcome(&Outcome::Renewed(renewed)),
        ended: ended.collect(),
        untold: kept.untold.into_iter().map(SessionId::get).collect(),
    }
}

pub(super) fn kept_from_answer(body: pb::answer::Body) -> Result<KeptAlive, ProposeError> {
    let pb::answer::Body::KeptAlive(kept) = body else {
        return Err(unexpected(&body));
    };
    let unreadable = || ProposeError::unknown("the leader's answer could not be read");
    let Ok(Outcome::Renewed(renewed)) = decode_outcome(&kept.renewed) else {
        return Err(unreadable());
    };
    let ended = kept.ended.into_iter().map(|ended| {
        let session = SessionId::new(ended.session)?;
        match decode_outcome(&ended.outcome) {
            Ok(Outcome::Rejected(refusal)) => Some((session, refusal)),
            _ => None,
        }
    });
    let ended = ended.collect::<Option<_>>().ok_or_else(unreadable)?;
    let untold = kept.untold.into_iter().map(SessionId::new);
    Ok(KeptAlive {
        time: renewed.time,
        ended,
        lost: renewed.lost,
        untold: untold.collect::<Option<_>>().ok_or_else(unreadable)?,
    })
}
