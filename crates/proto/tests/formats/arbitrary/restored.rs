//! Any past of a cluster.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use ringfence_core::snapshot::Seeding;
use ringfence_core::*;

use super::*;

pub(crate) fn lineage() -> BoxedStrategy<Vec<ClusterId>> {
    vec(cluster(), 0..=LINEAGE_MAX).boxed()
}

fn digest() -> BoxedStrategy<BackupDigest> {
    any::<[u8; 32]>().prop_map(BackupDigest::new).boxed()
}

pub(crate) fn restored() -> BoxedStrategy<Restored> {
    let numbers = (count(), option::of(count()), count(), count(), count());
    (lineage(), digest(), any::<u32>(), numbers, any::<bool>())
        .prop_map(|(lineage, digest, parts, numbers, drill)| {
            let (tokens, token_floor, sessions, versions, ttl) = numbers;
            Restored {
                lineage,
                digest,
                parts,
                tokens,
                token_floor,
                sessions,
                versions,
                ttl_greatest: Millis(ttl),
                drill,
            }
        })
        .boxed()
}

pub(crate) fn seed() -> BoxedStrategy<Seed> {
    let held =
        (name(), token(), pod()).prop_map(|(name, token, pod)| HeldByPod { name, token, pod });
    let parts = (vec(access::access_record(), 0..4), vec(held, 0..4));
    (digest(), any::<u32>(), parts, secret())
        .prop_map(|(digest, part, (access, held), secret)| Seed {
            digest,
            part,
            access,
            held,
            secret,
        })
        .boxed()
}

pub(crate) fn seeding() -> BoxedStrategy<Seeding> {
    (digest(), any::<u32>(), any::<u32>())
        .prop_map(|(digest, parts, done)| Seeding {
            digest,
            parts,
            done,
        })
        .boxed()
}
