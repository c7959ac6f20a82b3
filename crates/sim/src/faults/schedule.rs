//! Which faults a run has, and when: a random part of all kinds, so that some runs have much of one
//! kind and others a little of many.

use std::time::Duration;

use super::{Fault, Who};
use crate::random::Random;
use crate::workload::Pace;

/// A fault in its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// When it begins, behind the beginning of the run.
    pub at: Duration,
    /// How long it lasts.
    pub lasts: Duration,
    /// What it is.
    pub fault: Fault,
}

/// What a schedule is drawn for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// How many nodes there are.
    pub nodes: usize,
    /// How many clients there are.
    pub clients: usize,
    /// From when on there may be faults.
    pub from: Duration,
    /// When all of them are over.
    pub until: Duration,
    /// How much longer faults last, and how much rarer they are.
    pub pace: Pace,
    /// How far clocks' rates may be set off, in parts per million.
    pub ppm: i32,
    /// Whether all disks may be set back to an older copy.
    pub rollback: bool,
    /// Whether a node joins before anything is written.
    pub joins: bool,
    /// Whether the leader's disk hangs for minutes, if there is the time.
    pub hangs: bool,
}

/// How many kinds there are to choose from.
const KINDS: u64 = 40;
/// Of a thousand kinds so many are part of a run.
const TAKEN_PER_MILLE: u64 = 220;
/// How long nothing begins.
const GAP: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How long most faults last.
const LASTS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(6));
/// How long the leader's disk hangs, whatever the pace.
pub const HANGS: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(120));
/// For how long disks have kept nothing when all of them lose power.
const BEHIND: (Duration, Duration) = (Duration::ZERO, Duration::from_millis(500));

/// Draws the faults of a run, in the order of their beginnings.
#[must_use]
pub fn schedule(frame: &Frame, random: &mut Random) -> Vec<Scheduled> {
    let kinds: Vec<u64> = (0..KINDS)
        .filter(|_| random.chance(TAKEN_PER_MILLE))
        .collect();
    let mut faults = singular(frame, random);
    let mut at = frame.from;
    let mut lost = false;
    loop {
        at += frame.pace.of(random.time(GAP.0..GAP.1));
        let Some(&kind) = random.pick(&kinds) else {
            break;
        };
        let (fault, lasts) = draw(kind, frame, random);
        if at + lasts > frame.until {
            break;
        }
        // A second disk that is lost before the first is replaced can lose what was acknowledged.
        if fault == Fault::RollBackAll && !frame.rollback {
            continue;
        }
        if fault.loses_a_disk() && std::mem::replace(&mut lost, true) {
            continue;
        }
        faults.push(Scheduled { at, lasts, fault });
    }
    faults.sort_by_key(|one| one.at);
    faults
}

/// What happens once in a run, if it does.
fn singular(frame: &Frame, random: &mut Random) -> Vec<Scheduled> {
    let mut faults = Vec::new();
    let lags = random.chance(300);
    if frame.joins {
        faults.push(Scheduled {
            at: Duration::ZERO,
            lasts: Duration::ZERO,
            fault: Fault::JoinFirst { lags },
        });
    }
    let at = frame.from + frame.pace.of(random.time(GAP.0..GAP.1));
    let lasts = random.time(HANGS.0..HANGS.1);
    let fault = match random.chance(300) {
        true => laggard(Fault::LeaderDiskHangs),
        false => Fault::LeaderDiskHangs,
    };
    if frame.hangs && at + lasts <= frame.until {
        faults.push(Scheduled { at, lasts, fault });
    }
    faults
}

fn laggard(during: Fault) -> Fault {
    let during = Box::new(during);
    Fault::Laggard { during }
}

/// A fault of this kind, and how long it lasts.
fn draw(kind: u64, frame: &Frame, random: &mut Random) -> (Fault, Duration) {
    let lasts = frame.pace.of(random.time(LASTS.0..LASTS.1));
    let who = who(frame, random);
    let client = usize::try_from(random.within(0..frame.clients as u64)).unwrap_or_default();
    let millis = Duration::from_millis;
    let fault = match kind {
        0 => Fault::Split { from: who },
        1 => Fault::Isolate(who),
        2 => Fault::Isolate(Who::Leader),
        3 => Fault::Deaf(who),
        4 => Fault::Deaf(Who::Leader),
        5 => Fault::Mute(who),
        6 => Fault::Mute(Who::Leader),
        7 => Fault::Bridge { hub: who },
        8 => Fault::Ring,
        9 => Fault::Flap {
            who,
            period: random.time(millis(50)..millis(500)),
        },
        10 | 11 => weather(random),
        12 => Fault::HalfOpen(who),
        13 => Fault::Resets {
            every: random.time(millis(100)..millis(1_500)),
        },
        14 => Fault::CutClient { client },
        15 => Fault::Kill(who),
        16 => Fault::Kill(Who::Leader),
        17 => Fault::KillAll,
        18 => Fault::KillLoop {
            every: random.time(millis(800)..millis(4_000)),
        },
        19 => Fault::Pause(Who::Leader),
        20 => Fault::PauseClient { client },
        21 => Fault::KillClient { client },
        _ => return slower(kind, who, client, lasts, frame, random),
    };
    (fault, lasts)
}

/// The kinds that touch clocks, disks and members.
fn slower(
    kind: u64,
    who: Who,
    client: usize,
    lasts: Duration,
    frame: &Frame,
    random: &mut Random,
) -> (Fault, Duration) {
    let ppm = rate(frame.ppm, random);
    let fault = match kind {
        22 => Fault::Starve(who),
        23 => Fault::WallJump {
            who,
            millis: i64::try_from(random.within(0..7_200_000)).unwrap_or_default() - 3_600_000,
        },
        24 => return (Fault::NodeRate { who, ppm }, 3 * lasts),
        25 => return (Fault::ClientRate { client, ppm }, 3 * lasts),
        26 => Fault::Suspend(who),
        27 => Fault::SuspendClient { client },
        28 => Fault::SyncFails(who),
        29 => match random.within(0..3) {
            0 => Fault::PowerLossAll {
                behind: random.fork("behind").time(BEHIND.0..BEHIND.1),
            },
            1 => Fault::PowerLoss(who),
            _ => Fault::TornWrites(who),
        },
        30 => Fault::CrashInRecovery(who),
        31 => Fault::DiskStalls(who),
        32 => match random.within(0..3) {
            0 => Fault::DiskFull(who),
            1 => Fault::HandOver,
            _ => return (Fault::LeftBehind(who), 3 * lasts),
        },
        33 => match random.within(0..4) {
            0 => Fault::RollBackAll,
            1 => Fault::Wipe(who),
            2 => return (Fault::Replace(who), lasts + Duration::from_secs(3)),
            _ => return (Fault::ReplaceInSplit(who), lasts + Duration::from_secs(3)),
        },
        39 => {
            let kind = random.within(34..39);
            let (during, lasts) = longer(kind, who, lasts, random);
            return (laggard(during), lasts + Duration::from_secs(2));
        }
        _ => return longer(kind, who, lasts, random),
    };
    (fault, lasts)
}

/// The kinds that need some time to come about.
fn longer(kind: u64, who: Who, lasts: Duration, random: &mut Random) -> (Fault, Duration) {
    let kill = random.chance(500);
    let (fault, more) = match kind {
        34 => (Fault::EmptiedLog(who), 0),
        35 => (Fault::NoRoomForSnapshots, 2),
        36 => (Fault::InterruptedChange { who, kill }, 3),
        37 => (Fault::RemoveBesideDead(who), 7),
        _ => (Fault::CancelledTransfer { who, kill }, 5),
    };
    (fault, lasts + Duration::from_secs(more))
}

fn who(frame: &Frame, random: &mut Random) -> Who {
    match random.within(0..frame.nodes as u64) {
        0 => Who::Leader,
        behind => Who::Behind(usize::try_from(behind).unwrap_or(1)),
    }
}

fn weather(random: &mut Random) -> Fault {
    let millis = Duration::from_millis;
    Fault::BadWeather {
        delay: random.time(millis(1)..millis(400)),
        jitter: random.time(millis(1)..millis(400)),
        loss_per_mille: u16::try_from(random.within(0..300)).unwrap_or_default(),
        double_per_mille: u16::try_from(random.within(0..300)).unwrap_or_default(),
    }
}

fn rate(most: i32, random: &mut Random) -> i32 {
    let drawn = random.within(0..2 * u64::from(most.unsigned_abs()) + 1);
    i32::try_from(drawn).unwrap_or_default() - most
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const FRAME: Frame = Frame {
        nodes: 3,
        clients: 4,
        from: Duration::from_secs(2),
        until: Duration::from_secs(150),
        pace: Pace::BRISK,
        ppm: 10_000,
        rollback: true,
        joins: true,
        hangs: true,
    };

    #[test]
    fn every_row_that_is_injected_is_drawn_for_some_seed() {
        let mut rows = BTreeSet::new();
        for seed in 0..2_000 {
            let faults = schedule(&FRAME, &mut Random::new(seed));
            rows.extend(faults.iter().map(|one| one.fault.row()));
        }
        for row in super::super::ROWS {
            assert!(rows.contains(row), "{row} is never drawn");
        }
    }

    #[test]
    fn all_is_over_in_time_and_clocks_keep_their_bound() {
        for seed in 0..500 {
            for one in schedule(&FRAME, &mut Random::new(seed)) {
                let first = matches!(one.fault, Fault::JoinFirst { .. });
                assert!(one.at >= FRAME.from || first, "{one:?}");
                assert!(one.at + one.lasts <= FRAME.until, "{one:?}");
                let ppm = match one.fault {
                    Fault::NodeRate { ppm, .. } | Fault::ClientRate { ppm, .. } => ppm,
                    _ => 0,
                };
                assert!(ppm.abs() <= FRAME.ppm, "{one:?}");
            }
        }
    }

    #[test]
    fn no_two_disks_are_lost_in_one_run() {
        for seed in 0..500 {
            let faults = schedule(&FRAME, &mut Random::new(seed));
            let lost = |one: &&Scheduled| one.fault.loses_a_disk();
            assert!(faults.iter().filter(lost).count() <= 1);
        }
    }
}
