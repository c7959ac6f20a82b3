//! Any record of a backup.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use ringfence_core::snapshot::TokenCounter;

use super::*;

fn header() -> BoxedStrategy<BackupHeader> {
    let ids = (cluster(), vec(cluster(), 0..4), 0..=RECORD_VERSION);
    let log = (count(), count(), time(), wall());
    let set = (settings(), count(), millis(), count());
    let tokens = (count(), count(), option::of(count()), option::of(token()));
    (ids, log, set, tokens, count())
        .prop_map(|(ids, log, set, tokens, next_session)| {
            let (cluster, lineage, level) = ids;
            let (index, term, time, wall) = log;
            let (settings, settings_set_at, ttl_greatest, versions) = set;
            let (reached, granted, token_floor, forgotten) = tokens;
            BackupHeader {
                cluster,
                lineage,
                index,
                term,
                time,
                wall,
                level,
                settings,
                settings_set_at,
                tokens: TokenCounter::restored(reached, granted),
                token_floor,
                forgotten,
                ttl_greatest,
                next_session,
                versions,
            }
        })
        .boxed()
}

pub(crate) fn backup_record() -> BoxedStrategy<BackupRecord> {
    let access = access::access_record();
    let access = access.prop_filter("a backup holds no cluster tokens", |part| {
        !matches!(part, AccessRecord::Token { .. })
    });
    prop_oneof![
        header().prop_map(BackupRecord::Header),
        access.prop_map(BackupRecord::Access),
        (name(), token()).prop_map(|(name, token)| BackupRecord::Floor { name, token }),
        (name(), token(), pod())
            .prop_map(|(name, token, pod)| BackupRecord::HeldByPod(HeldByPod { name, token, pod })),
    ]
    .boxed()
}
