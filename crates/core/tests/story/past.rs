//! How a cluster begins: without a past, or restored from a backup.

use ringfence_core::{
    AccessRecord, BackupDigest, ClusterId, ClusterToken, Command, FencingToken, Form, HeldByPod,
    LEVEL_RESTORE, Millis, Mode, Pod, PodEnded, PodSeen, PodText, Principal, PrincipalLimits,
    Restored, Secret, Seed, StateMachine,
};

use super::{Args, Step, lease, rights, settings};

/// `form` or `restore`: `floor=`, `mode=`, `quiet=` and settings; of the backup `tokens=`,
/// `lost-floor=`, `sessions=`, `ttl=`, `parts=`, `drill`.
pub(super) fn form(args: &Args<'_>, restores: bool) -> Step<Form> {
    let mode = args.pairs.get("mode");
    let restored = Restored {
        lineage: vec![ClusterId::new([9; 16])],
        digest: digest(args)?,
        parts: args
            .number("parts")?
            .map_or(Ok(0), u32::try_from)
            .map_err(|_| "too many")?,
        tokens: args.number("tokens")?.unwrap_or(0),
        token_floor: args.number("lost-floor")?,
        sessions: args.number("sessions")?.unwrap_or(1),
        versions: 0,
        ttl_greatest: args.millis("ttl")?.unwrap_or(Millis(0)),
        drill: args.has("drill"),
    };
    Ok(Form {
        cluster: ClusterId::new([1; 16]),
        token_floor: args.number("floor")?,
        settings: settings(args)?,
        mode: mode.map_or(Ok(Mode::Off), |mode| rights::mode(mode))?,
        quiet_time: args.millis("quiet")?.unwrap_or(Millis(0)),
        restored: restores.then_some(restored),
    })
}

/// `seed PART`: `held=NAME,…` by the container of `pod=UID`, a `ban=` and a cluster token `token=`.
pub(super) fn seed(args: &Args<'_>) -> Step<Command> {
    let names = args.pairs.get("held").into_iter();
    let held = names.flat_map(|names| names.split(',')).map(|name| {
        Ok(HeldByPod {
            name: lease(name)?,
            token: FencingToken::new(1).ok_or("no token")?,
            pod: pod(args)?,
        })
    });
    let mode = AccessRecord::Mode {
        mode: Mode::Enforced,
        limits: PrincipalLimits::STANDARD,
        set_at: 3,
    };
    let bans = args
        .pairs
        .get("ban")
        .map(|of| Ok(AccessRecord::Ban(principal(of)?)));
    let tokens = args.pairs.get("token").map(|of| {
        let token = ClusterToken {
            principal: principal(of)?,
            digest: [7; 32],
            expires: None,
        };
        Ok(AccessRecord::Token { id: 2, token })
    });
    let access = bans.into_iter().chain(tokens);
    let access = access.collect::<Step<Vec<_>>>()?;
    let mode = (!access.is_empty()).then_some(mode);
    Ok(Command::Seed(Seed {
        digest: digest(args)?,
        part: args.word(1)?.parse().map_err(|_| "no part")?,
        access: mode.into_iter().chain(access).collect(),
        held: held.collect::<Step<_>>()?,
        secret: Secret::new([9; 16]),
    }))
}

/// `pod-ended UID`.
pub(super) fn pod_ended(args: &Args<'_>) -> Step<Command> {
    let uid = args.word(1)?;
    Ok(Command::PodEnded(PodEnded {
        uid: ringfence_core::PodUid::parse(uid).map_err(|wrong| wrong.to_string())?,
        seen: PodSeen::Gone,
    }))
}

/// What the state keeps of its past.
pub(super) fn tell(machine: &StateMachine) -> String {
    let summary = machine.summary();
    format!(
        "lineage={:?} level={} last={} floor={:?} forgotten={:?} quiet={} tokens={} bans={}\n",
        machine.lineage(),
        match machine.level() {
            LEVEL_RESTORE => "restore".into(),
            other => other.to_string(),
        },
        summary.last_token,
        machine.token_floor(),
        summary.forgotten,
        summary.quiet,
        machine.access().tokens().count(),
        machine.access().bans().count(),
    )
}

fn digest(args: &Args<'_>) -> Step<BackupDigest> {
    let number = args.number("backup")?.unwrap_or(7);
    let number = u8::try_from(number).map_err(|_| "no such backup")?;
    Ok(BackupDigest::new([number; 32]))
}

fn principal(text: &str) -> Step<Principal> {
    Principal::parse(text).map_err(|wrong| wrong.to_string())
}

fn pod(args: &Args<'_>) -> Step<Pod> {
    let text = PodText {
        namespace: "shop",
        name: "controller-0",
        uid: args.pairs.get("pod").ok_or("pod= is missing")?,
        container: "main",
    };
    Pod::parse(text).map_err(|wrong| wrong.to_string())
}
