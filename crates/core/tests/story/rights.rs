//! Who asks, and what rights change: `as=PRINCIPAL` and `token=ID` beside any step, `rights …` and
//! `may …`.

use ringfence_core::{
    AccessChange, AuditRecord, Called, Caller, ChangeAccess, ClusterId, ClusterToken, Command,
    LeaseName, Mode, NamePattern, Principal, PrincipalLimits, PrincipalPattern, Rejection, Rule,
    Scope, StateMachine, Verb,
};

use super::{Args, Step};

fn principal(raw: &str) -> Step<Principal> {
    Principal::parse(raw).map_err(|wrong| wrong.to_string())
}

/// The command with who asks for it, if that is said.
pub(super) fn called(command: Command, args: &Args<'_>) -> Step<Command> {
    let Some(raw) = args.pairs.get("as") else {
        return Ok(command);
    };
    let caller = Caller {
        principal: principal(raw)?,
        token: args.number("token-id")?,
        node: 1,
    };
    Ok(Command::Called(Box::new(Called { caller, command })))
}

pub(super) fn mode(text: &str) -> Step<Mode> {
    match text {
        "off" => Ok(Mode::Off),
        "permissive" => Ok(Mode::Permissive),
        "enforced" => Ok(Mode::Enforced),
        other => Err(format!("`{other}` is no mode")),
    }
}

/// `PRINCIPALS VERB [NAMES]`, from the second word on.
fn rule(args: &Args<'_>) -> Step<Rule> {
    let names = args.words.get(4).map(|raw| NamePattern::parse(raw));
    Ok(Rule {
        principals: PrincipalPattern::parse(args.word(2)?).map_err(|wrong| wrong.to_string())?,
        verb: args
            .word(3)?
            .parse()
            .map_err(|_| "no such verb".to_string())?,
        names: names.transpose().map_err(|wrong| wrong.to_string())?,
    })
}

/// `rights grant|revoke PRINCIPALS VERB [NAMES]`, `rights ban|unban|token|tokens-end PRINCIPAL`, and
/// `rights mode MODE`.
pub(super) fn change(machine: &StateMachine, args: &Args<'_>) -> Step<Command> {
    let change = match args.word(1)? {
        "grant" => AccessChange::AddRule(rule(args)?),
        "revoke" => AccessChange::RemoveRule(rule(args)?),
        "ban" => AccessChange::Ban(principal(args.word(2)?)?),
        "unban" => AccessChange::Unban(principal(args.word(2)?)?),
        "token" => AccessChange::AddToken(ClusterToken {
            principal: principal(args.word(2)?)?,
            digest: [7; 32],
            expires: None,
        }),
        "tokens-end" => AccessChange::RemoveTokens(principal(args.word(2)?)?),
        "limits" => AccessChange::SetLimits(PrincipalLimits {
            sessions: args.number("sessions")?.ok_or("sessions= is missing")?,
            leases: args.number("leases")?.ok_or("leases= is missing")?,
        }),
        "mode" => AccessChange::SetMode(mode(args.word(2)?)?),
        other => return Err(format!("`{other}` changes no rights")),
    };
    let cluster = args.number("cluster")?.unwrap_or(1);
    Ok(Command::ChangeAccess(ChangeAccess {
        cluster: ClusterId::new([u8::try_from(cluster).unwrap(); 16]),
        based_on: args
            .number("based-on")?
            .unwrap_or(machine.access().set_at()),
        changes: vec![change],
    }))
}

/// `may PRINCIPAL VERB [NAME|PREFIX*]`: by which rule, or which one it lacks.
pub(super) fn may(machine: &StateMachine, args: &Args<'_>) -> Step<String> {
    let (who, what) = (args.word(1)?, args.word(2)?);
    let verb: Verb = what.parse().map_err(|_| "no such verb".to_string())?;
    let name;
    let scope = match args.words.get(3) {
        None => Scope::Cluster,
        Some(raw) if raw.ends_with('*') => Scope::Prefix(raw.trim_end_matches('*')),
        Some(raw) => {
            name = LeaseName::parse(raw).map_err(|wrong| wrong.to_string())?;
            Scope::Name(&name)
        }
    };
    let access = machine.access();
    if let Some(rule) = access.rule(who, verb, scope) {
        return Ok(format!("yes: {rule}\n"));
    }
    Ok(match access.judge(Some(&principal(who)?), verb, scope) {
        Ok(()) => "yes\n".into(),
        Err(Rejection::PermissionDenied { needed }) => format!("no: needs {needed}\n"),
        Err(other) => format!("no: {other:?}\n"),
    })
}

/// What operators did, oldest first.
pub(super) fn audit(machine: &StateMachine) -> String {
    let line = |act: &AuditRecord| {
        let who = act
            .principal
            .as_ref()
            .map_or("nobody proven", Principal::as_str);
        format!("{} {who}: {} ({})\n", act.index, act.act, act.reason)
    };
    machine.audit().map(line).collect()
}
