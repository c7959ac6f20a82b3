//! Records of backups.

use ringfence_core::snapshot::TokenCounter;
use ringfence_core::*;

use super::*;

pub(crate) fn backups() -> Vec<(&'static str, BackupRecord)> {
    let header = BackupHeader {
        cluster: cluster(),
        lineage: vec![],
        index: 42,
        term: 3,
        time: ClusterTime(123_456),
        wall: WallTime(1_700_000_000_123),
        level: RECORD_VERSION_OF_BACKUPS,
        settings: Settings::STANDARD,
        settings_set_at: 1,
        tokens: TokenCounter::restored(1_700_000_000_000_009, 1_700_000_000_000_001),
        token_floor: None,
        forgotten: None,
        ttl_greatest: Millis(0),
        next_session: 1,
        versions: 0,
    };
    let restored = BackupHeader {
        lineage: vec![
            ClusterId::new(*b"the first one's."),
            ClusterId::new(*b"the second one's"),
        ],
        token_floor: Some(7),
        forgotten: Some(token(5)),
        ttl_greatest: Millis(15_000),
        next_session: 301,
        versions: 12,
        ..header.clone()
    };
    let mode = AccessRecord::Mode {
        mode: Mode::Enforced,
        limits: PrincipalLimits::default(),
        set_at: 40,
    };
    let held = HeldByPod {
        name: name("db/primary"),
        token: token(1_700_000_000_000_001),
        pod: pod(),
    };
    vec![
        ("header", BackupRecord::Header(header)),
        ("header_restored", BackupRecord::Header(restored)),
        ("access_mode", BackupRecord::Access(mode)),
        (
            "floor",
            BackupRecord::Floor {
                name: name("jobs/nightly"),
                token: token(1_700_000_000_000_000),
            },
        ),
        ("held_by_pod", BackupRecord::HeldByPod(held)),
    ]
}

/// The level of the release that wrote the first backups.
const RECORD_VERSION_OF_BACKUPS: u32 = 5;
