//! What a cluster is restored from.

use ringfence_core::*;

use super::*;

/// Of a backup.
pub(crate) const DIGEST: BackupDigest = BackupDigest::new(*b"SHA-256 of the file of a backup.");

/// The clusters before this one.
pub(crate) fn lineage() -> Vec<ClusterId> {
    vec![ClusterId::new([1; 16]), ClusterId::new([2; 16])]
}

fn restored() -> Restored {
    Restored {
        lineage: lineage(),
        digest: DIGEST,
        parts: 2,
        tokens: 1_700_000_000_000_001,
        token_floor: None,
        sessions: 301,
        versions: 9,
        ttl_greatest: Millis(15_000),
        drill: false,
    }
}

pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    let quiet = Form {
        cluster: cluster(),
        token_floor: None,
        settings: Settings::STANDARD,
        mode: Mode::Off,
        quiet_time: Millis(300_000),
        restored: None,
    };
    let restoring = Form {
        mode: Mode::Enforced,
        restored: Some(restored()),
        ..quiet.clone()
    };
    let drill = Restored {
        lineage: Vec::new(),
        parts: 0,
        token_floor: Some(7),
        drill: true,
        ..restored()
    };
    let drilling = Form {
        token_floor: Some(0),
        quiet_time: Millis(0),
        restored: Some(drill),
        ..quiet.clone()
    };
    let rights = Seed {
        digest: DIGEST,
        part: 0,
        access: vec![AccessRecord::Ban(access::principal("jwt:corp:mallory"))],
        held: Vec::new(),
        secret: Secret::new(SECRET),
    };
    let held = Seed {
        part: 1,
        access: Vec::new(),
        held: vec![HeldByPod {
            name: name("db/primary"),
            token: token(5),
            pod: pod(),
        }],
        ..rights.clone()
    };
    vec![
        ("form_with_a_quiet_time", Command::Form(quiet)),
        ("form_restored", Command::Form(restoring)),
        ("form_a_drill", Command::Form(drilling)),
        ("seed_rights", Command::Seed(rights)),
        ("seed_held", Command::Seed(held)),
    ]
}
