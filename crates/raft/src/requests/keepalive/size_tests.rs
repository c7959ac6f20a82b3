//! Batches of keep-alives are split so that every entry can be logged.

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use ringfence_core::Renew;
use ringfence_proto::record::encode_command;

use super::*;
use crate::types::entry_size;

fn checked(sessions: Vec<SessionId>, noticed: Vec<Acknowledgement>) -> Checked {
    Checked {
        alive: sessions,
        unowned: Vec::new(),
        doubtful: Vec::new(),
        noticed,
        left_out: Vec::new(),
        asked: Asked {
            request: KeepAlive {
                sessions: Vec::new(),
                acknowledged: Vec::new(),
                caller: None,
            },
            reply: Reply::new(drop),
            origin: Origin::Here,
            source: KeepAliveSource::UNNAMED,
            deadline: Duration::ZERO,
        },
    }
}

fn fits(renew: &Renew) {
    let command = encode_command(&Command::Renew(renew.clone()));
    let proposal = crate::types::proposal::Proposal::new(
        ClusterTime(u64::MAX),
        ringfence_core::WallTime(u64::MAX),
        &command,
    );
    entry_size::check(proposal.encoded().len()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

    /// Nothing of a batch is lost or doubled, no entry is too long, and what is acknowledged
    /// stands before or with the sessions.
    #[test]
    fn every_entry_of_a_batch_can_be_logged(
        sessions in btree_set(1..=u64::MAX, 0..8_000),
        near in 0..12_000_u64,
        noticed in vec((any::<prop::sample::Index>(), 1..1_u64 << 52), 0..3_000),
    ) {
        let mut sessions: BTreeSet<u64> = sessions;
        sessions.extend(1..near);
        let sessions: Vec<SessionId> = sessions.into_iter().filter_map(SessionId::new).collect();
        prop_assume!(!sessions.is_empty());
        let acknowledged: BTreeSet<(SessionId, FencingToken)> = noticed
            .into_iter()
            .map(|(at, token)| (*at.get(&sessions), FencingToken::new(token).unwrap()))
            .collect();
        let acknowledged: Vec<_> = acknowledged.into_iter().collect();

        let entries = entries(&[checked(sessions.clone(), acknowledged.clone())]);

        entries.iter().for_each(fits);
        let all = entries.iter().flat_map(|renew| renew.sessions.clone());
        prop_assert_eq!(all.collect::<Vec<_>>(), sessions);
        let all = entries.iter().flat_map(|renew| renew.acknowledged.clone());
        prop_assert_eq!(all.collect::<Vec<_>>(), acknowledged);
        let begun = entries.iter().position(|renew| !renew.sessions.is_empty());
        let begun = begun.unwrap_or(entries.len());
        prop_assert!(entries.iter().skip(begun + 1).all(|renew| renew.acknowledged.is_empty()));
    }
}
