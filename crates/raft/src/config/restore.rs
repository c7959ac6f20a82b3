//! What a cluster is restored from: the same entries on whichever first member leads first.

use std::sync::Arc;

use ring::digest::{Context, SHA256};
use ringfence_core::{
    AccessRecord, BackupDigest, BackupHeader, BackupRecord, ClusterId, FencingToken, Form,
    HeldByPod, LINEAGE_MAX, Millis, Mode, RESTORE_TOKEN_GAP, Restored, Secret, Seed, WallTime,
};
use ringfence_planted::{Bug, planted};
use ringfence_proto::record::encode_backup_record;

use crate::platform::clock::BELIEVABLE_UNTIL;
use crate::store::backup_file::Backup;
use crate::types::entry_size::ENTRY_BYTES_MAX;

/// The most bytes of records in one [`Seed`]: half of what an entry may have.
const SEED_BYTES_MAX: usize = ENTRY_BYTES_MAX as usize / 2;

/// A backup to form the cluster from. It counts only when forming: all first members must be empty
/// and be given the same backup, rules, drill, mode, quiet time and token floor.
#[derive(Debug, Clone)]
pub struct Restore {
    /// The backup, verified.
    pub backup: Arc<Backup>,
    /// Who may do what in the restored cluster, mode and bans included; `None`: as in the backup.
    /// Cluster tokens are left out.
    pub rules: Option<Vec<AccessRecord>>,
    /// How much rights bind in the restored cluster; `None`: as in the rules or in the backup.
    pub mode: Option<Mode>,
    /// Whether the cluster is a drill: its tokens begin at 1, so [`crate::NodeConfig::token_floor`] must
    /// be `None`; there is no quiet time, and the cluster in the backup is not superseded. For a machine
    /// that no lasting store and no other node is connected to.
    pub drill: bool,
}

/// One record that a [`Seed`] carries.
enum Part {
    Access(AccessRecord),
    Held(HeldByPod),
}

impl Restore {
    /// What first members compare: the digest of the backup and of all else that decides what the log
    /// begins with. It is that of the backup if nothing else was given.
    pub(crate) fn digest(&self, token_floor: Option<u64>, quiet_time: Millis) -> BackupDigest {
        let mode = self.mode.filter(|mode| *mode != self.recorded_mode());
        let plain = self.rules.is_none() && !self.drill && mode.is_none();
        if plain && token_floor.is_none() && quiet_time == Millis(0) {
            return self.backup.digest;
        }
        let mut context = Context::new(&SHA256);
        context.update(self.backup.digest.as_bytes());
        context.update(&[u8::from(self.drill), u8::from(token_floor.is_some())]);
        context.update(&token_floor.unwrap_or_default().to_be_bytes());
        context.update(&quiet_time.0.to_be_bytes());
        context.update(mode.map_or("", Mode::as_str).as_bytes());
        context.update(&[0, u8::from(self.rules.is_some())]);
        for record in self.rules.iter().flatten() {
            context.update(&encoded(record.clone()));
        }
        finished(context)
    }

    pub(crate) fn header(&self) -> &BackupHeader {
        &self.backup.contents.header
    }

    /// Who may do what in the restored cluster.
    pub(crate) fn access(&self) -> impl Iterator<Item = AccessRecord> {
        let access = self.rules.as_ref().unwrap_or(&self.backup.contents.access);
        let given = self.mode;
        access.iter().filter_map(move |record| match record {
            AccessRecord::Token { .. } => None,
            AccessRecord::Mode {
                mode,
                limits,
                set_at,
            } => Some(AccessRecord::Mode {
                mode: given.unwrap_or(*mode),
                limits: *limits,
                set_at: *set_at,
            }),
            other => Some(other.clone()),
        })
    }

    /// How far the tokens of the lost cluster may have come, as far as the backup knows: to its counter,
    /// and to the second in which it was made, since a later term counts from that. A wall time that
    /// cannot be true raises no token, so it counts for nothing here.
    fn tokens(&self) -> u64 {
        let header = self.header();
        let reached = header.tokens.reached();
        if planted(Bug::RestoreClockCheckedOnce) {
            return reached;
        }
        match header.wall.0 / 1_000 {
            made if made > BELIEVABLE_UNTIL => reached,
            made => reached.max(made << FencingToken::CLOCK_SHIFT),
        }
    }

    /// How much rights bind in the restored cluster.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode.unwrap_or_else(|| self.recorded_mode())
    }

    fn recorded_mode(&self) -> Mode {
        let access = self.rules.as_ref().unwrap_or(&self.backup.contents.access);
        let mode = access.iter().find_map(|record| match record {
            AccessRecord::Mode { mode, .. } => Some(*mode),
            _ => None,
        });
        mode.unwrap_or_default()
    }

    /// What the cluster is formed with; its [`Seed`]s are those of [`Restore::seeds`].
    pub(crate) fn form(
        &self,
        cluster: ClusterId,
        token_floor: Option<u64>,
        quiet_time: Millis,
    ) -> Form {
        let header = self.header();
        let mut lineage = header.lineage.clone();
        lineage.push(header.cluster);
        let spare = lineage.len().saturating_sub(LINEAGE_MAX);
        Form {
            cluster,
            token_floor: match self.drill {
                true => Some(0),
                false => token_floor,
            },
            settings: header.settings,
            mode: self.mode(),
            quiet_time,
            restored: Some(Restored {
                lineage: lineage.split_off(spare),
                digest: self.digest(token_floor, quiet_time),
                parts: u32::try_from(self.parts().len()).unwrap_or(u32::MAX),
                tokens: self.tokens(),
                token_floor: header.token_floor,
                sessions: header.next_session,
                versions: header.versions,
                ttl_greatest: header.ttl_greatest,
                drill: self.drill,
            }),
        }
    }

    /// The parts of the state that follow the forming, in their order. `secret` is that of the sessions
    /// that stand for Pods, `digest` that of the forming.
    pub(crate) fn seeds(&self, digest: BackupDigest, secret: Secret) -> Vec<Seed> {
        let parts = (0..).zip(self.parts());
        let seed = |(part, records): (u32, Vec<Part>)| {
            let (mut access, mut held) = (Vec::new(), Vec::new());
            for record in records {
                match record {
                    Part::Access(record) => access.push(record),
                    Part::Held(record) => held.push(record),
                }
            }
            Seed {
                digest,
                part,
                access,
                held,
                secret,
            }
        };
        parts.map(seed).collect()
    }

    fn parts(&self) -> Vec<Vec<Part>> {
        let access = self.access().map(|record| {
            let bytes = encoded(record.clone()).len();
            (bytes, Part::Access(record))
        });
        // A drill is no place where a Pod of the true cluster could do harm.
        let held = self.backup.contents.pods.iter().filter(|_| !self.drill);
        let held = held.map(|held| {
            let bytes = record_bytes(&BackupRecord::HeldByPod(held.clone())).len();
            (bytes, Part::Held(held.clone()))
        });
        let mut parts: Vec<Vec<Part>> = Vec::new();
        let mut room = 0;
        for (bytes, record) in access.chain(held) {
            match parts.last_mut() {
                Some(last) if bytes <= room => {
                    room -= bytes;
                    last.push(record);
                }
                _ => {
                    room = SEED_BYTES_MAX.saturating_sub(bytes);
                    parts.push(vec![record]);
                }
            }
        }
        parts
    }

    /// Whether this wall clock can be that of the restored cluster: it stands behind the backup, and
    /// above its tokens. A token floor makes up for one that does not.
    ///
    /// # Errors
    /// What is wrong with it, and the way out.
    pub(crate) fn check_clock(
        &self,
        wall: WallTime,
        token_floor: Option<u64>,
    ) -> Result<(), String> {
        let header = self.header();
        let last = self.tokens();
        let needed = last.saturating_add(RESTORE_TOKEN_GAP);
        if self.drill || token_floor.is_some_and(|floor| floor >= needed) {
            return Ok(());
        }
        let (shown, made) = (wall.0 / 1_000, header.wall.0 / 1_000);
        let way_out = format!(
            "set the clocks of all first members, or, if the clock of the lost cluster was wrong, give \
             all of them --token-floor N, where N is at least {needed} and greater than the mark of \
             every guard"
        );
        if wall < header.wall {
            return Err(format!(
                "a clock behind the backup: this one shows {shown} s since 1970, and the backup was \
                 made at {made} s; {way_out}"
            ));
        }
        if shown.saturating_mul(1 << FencingToken::CLOCK_SHIFT) <= last {
            return Err(format!(
                "a clock above the tokens of the backup: this one shows {shown} s since 1970, and \
                 token {last} belongs to a later second; {way_out}"
            ));
        }
        Ok(())
    }
}

/// What first members compare that form a cluster with a quiet time and without a past; `None` without
/// one. So a release that does not know quiet times takes no seat there, and a member that is lost
/// after the seats needs to announce nothing.
pub(crate) fn quiet_time_digest(quiet_time: Millis) -> Option<BackupDigest> {
    if quiet_time == Millis(0) {
        return None;
    }
    let mut context = Context::new(&SHA256);
    context.update(b"quiet time");
    context.update(&quiet_time.0.to_be_bytes());
    Some(finished(context))
}

fn finished(context: Context) -> BackupDigest {
    let mut digest = [0; 32];
    // SHA-256 has 32 bytes.
    digest.copy_from_slice(context.finish().as_ref());
    BackupDigest::new(digest)
}

fn encoded(record: AccessRecord) -> Vec<u8> {
    record_bytes(&BackupRecord::Access(record))
}

fn record_bytes(record: &BackupRecord) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_backup_record(record, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use ringfence_core::snapshot::TokenCounter;
    use ringfence_core::{
        BackupContents, ClusterTime, Command, LeaseName, Pod, PodText, Principal, PrincipalLimits,
        Settings,
    };
    use ringfence_proto::record::encode_command;

    use super::*;
    use crate::types::entry_size;
    use crate::types::proposal::Proposal;

    /// A backup of a cluster with these rights, and with names as long as they may be held by Pods.
    fn restore(access: Vec<AccessRecord>, pods: usize) -> Restore {
        let long = "p".repeat(253);
        let text = PodText {
            namespace: &long[..63],
            name: &long,
            uid: &long[..64],
            container: &long[..63],
        };
        let held = (0..pods).map(|number| HeldByPod {
            name: LeaseName::parse(&format!("{}/{number:04}", "n".repeat(250))).unwrap(),
            token: FencingToken::new(9).unwrap(),
            pod: Pod::parse(text).unwrap(),
        });
        let header = BackupHeader {
            cluster: ClusterId::new([1; 16]),
            lineage: (0..64).map(|n| ClusterId::new([n + 2; 16])).collect(),
            index: 7,
            term: 2,
            time: ClusterTime(5_000),
            wall: WallTime(1_000_000_000),
            level: 6,
            settings: Settings::STANDARD,
            settings_set_at: 2,
            tokens: TokenCounter::restored(1_000_000 << 20, 9),
            token_floor: None,
            forgotten: None,
            ttl_greatest: Millis(15_000),
            next_session: 3,
            versions: 0,
        };
        Restore {
            backup: Arc::new(Backup {
                contents: BackupContents {
                    header,
                    access,
                    floors: 0,
                    pods: held.collect(),
                },
                digest: BackupDigest::new([7; 32]),
                bytes: 0,
            }),
            rules: None,
            mode: None,
            drill: false,
        }
    }

    fn ban(number: usize) -> AccessRecord {
        let name = format!("token:{}{number:04}", "b".repeat(200));
        AccessRecord::Ban(Principal::parse(&name).unwrap())
    }

    #[test]
    fn every_part_fits_in_an_entry_and_none_is_left_out() {
        let restore = restore((0..500).map(ban).collect(), 700);
        let form = restore.form(ClusterId::new([9; 16]), None, Millis(0));
        let seeds = restore.seeds(restore.backup.digest, Secret::new([3; 16]));
        let restored = form.restored.as_ref().unwrap();
        assert_eq!(restored.parts as usize, seeds.len());
        assert_eq!(restored.lineage.len(), LINEAGE_MAX);
        assert_eq!(restored.lineage.last(), Some(&ClusterId::new([1; 16])));
        assert!(seeds.iter().map(|seed| seed.part).eq(0..restored.parts));
        assert_eq!(
            seeds.iter().map(|seed| seed.access.len()).sum::<usize>(),
            500
        );
        assert_eq!(seeds.iter().map(|seed| seed.held.len()).sum::<usize>(), 700);
        for command in seeds
            .into_iter()
            .map(Command::Seed)
            .chain([Command::Form(form)])
        {
            let bytes = Proposal::encoded_len(&encode_command(&command));
            assert_eq!(entry_size::check(bytes), Ok(()));
        }
    }

    #[test]
    fn what_decides_the_beginning_of_the_log_decides_the_digest() {
        let plain = restore(vec![ban(1)], 0);
        let digest = |restore: &Restore| restore.digest(None, Millis(0));
        let rules = Restore {
            rules: Some(vec![ban(2)]),
            ..plain.clone()
        };
        let drill = Restore {
            drill: true,
            ..plain.clone()
        };
        let with_mode = |mode| Restore {
            mode: Some(mode),
            ..plain.clone()
        };
        assert_eq!(digest(&plain), plain.backup.digest);
        assert_eq!(digest(&with_mode(Mode::Off)), digest(&plain));
        let all = [
            digest(&plain),
            digest(&rules),
            digest(&drill),
            digest(&with_mode(Mode::Permissive)),
            digest(&with_mode(Mode::Enforced)),
            plain.digest(Some(0), Millis(0)),
            plain.digest(Some(7), Millis(0)),
            plain.digest(None, Millis(7)),
        ];
        for (at, digest) in all.iter().enumerate() {
            assert!(!all[..at].contains(digest), "{at}");
        }
    }

    #[test]
    fn a_mode_that_is_given_takes_the_place_of_that_of_the_backup() {
        let record = |mode| AccessRecord::Mode {
            mode,
            limits: PrincipalLimits::default(),
            set_at: 9,
        };
        let of_backup = restore(vec![record(Mode::Enforced), ban(1)], 0);
        assert_eq!(of_backup.mode(), Mode::Enforced);
        let given = Restore {
            mode: Some(Mode::Permissive),
            ..of_backup
        };
        let form = given.form(ClusterId::new([9; 16]), None, Millis(0));
        assert_eq!(form.mode, Mode::Permissive);
        let access: Vec<_> = given.access().collect();
        assert_eq!(access, [record(Mode::Permissive), ban(1)]);
    }

    #[test]
    fn a_clock_is_behind_the_backup_or_its_tokens_unless_a_floor_makes_up_for_it() {
        let restore = restore(Vec::new(), 0);
        let last = 1_000_000_u64 << 20;
        let check = |wall, floor| restore.check_clock(WallTime(wall), floor);
        assert_eq!(check(1_000_001_000, None), Ok(()));
        let why = check(999_999_999, None).unwrap_err();
        assert!(why.contains("behind the backup"), "{why}");
        let why = check(1_000_000_500, None).unwrap_err();
        assert!(
            why.contains("above the tokens") && why.contains("--token-floor"),
            "{why}"
        );
        assert!(check(5_000, Some(last + (1 << 32) - 1)).is_err());
        assert_eq!(check(5_000, Some(last + (1 << 32))), Ok(()));
    }

    /// `1 << 44` seconds are token 0 in 64 bits.
    #[test]
    fn a_backup_from_an_impossible_time_needs_a_floor_above_its_counter() {
        let mut of_old = restore(Vec::new(), 0);
        let backup = Arc::get_mut(&mut of_old.backup).unwrap();
        backup.contents.header.wall = WallTime((1 << 44) * 1_000);
        let last = 1_000_000_u64 << 20;
        let check = |floor| of_old.check_clock(WallTime(1_800_000_000_000), floor);
        let why = check(None).unwrap_err();
        assert!(
            why.contains("behind the backup") && why.contains("--token-floor"),
            "{why}"
        );
        assert!(check(Some(last + (1 << 32) - 1)).is_err());
        assert_eq!(check(Some(last + (1 << 32))), Ok(()));
        let form = of_old.form(ClusterId::new([9; 16]), None, Millis(0));
        assert_eq!(form.restored.unwrap().tokens, last);
    }
}
