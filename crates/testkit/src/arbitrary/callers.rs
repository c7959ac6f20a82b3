//! Who asks, and changes of rights.

use ringfence_core::{
    AccessChange, AccessRecord, Called, Caller, ChangeAccess, ClusterId, ClusterToken, Command,
    NamePattern, Principal, PrincipalLimits, PrincipalPattern, Rule, SessionId, Verb,
};

use super::{AccessAct, By};
use crate::view::View;

/// The principals of all histories.
const PRINCIPALS: [&str; 6] = [
    "cert:cn:a",
    "cert:cn:b",
    "sa:k:ns/x",
    "token:t",
    "local",
    "anonymous",
];
/// For whom rules are.
const FOR: [&str; 8] = [
    "*",
    "cert:cn:a",
    "cert:cn:b",
    "cert:*",
    "sa:k:*",
    "token:t",
    "local",
    "anonymous",
];
/// For which leases; the last one is for service accounts only.
const NAMES: [&str; 6] = ["*", "a", "b", "c/*", "c/d", "k8s/{namespace}/*"];

fn around<'a>(texts: &[&'a str], at: u8) -> &'a str {
    texts[usize::from(at) % texts.len()]
}

pub(super) fn principal(at: u8) -> Principal {
    Principal::parse(around(&PRINCIPALS, at)).expect("a lawful principal")
}

fn proven(principal: Principal, token: Option<u64>) -> Caller {
    let node = 1;
    Caller {
        principal,
        token,
        node,
    }
}

/// The session that a command names.
fn session_of(command: &Command) -> Option<SessionId> {
    match command {
        Command::Request(request) => Some(request.session),
        Command::Close { session, .. } | Command::Adopt { session, .. } => Some(*session),
        _ => None,
    }
}

fn owner(command: &Command, view: &View) -> Option<Principal> {
    let opener = |id: &[u8; 16]| principal(id[0] % 4);
    match command {
        Command::Open(open) => Some(opener(open.id.as_bytes())),
        Command::OpenForPod(open) => Some(opener(open.id.as_bytes())),
        // Most electors are of one account.
        Command::WriteObject(_) => Some(principal(2)),
        command => match session_of(command) {
            Some(id) => view.session(id)?.owner.clone(),
            None => Some(Principal::local()),
        },
    }
}

/// The command with who asks for it, if a client can.
pub(super) fn called(command: Command, by: By, view: &View) -> Command {
    if !command.is_asked() {
        return command;
    }
    let caller = match by {
        By::Nobody => None,
        By::Owner => owner(&command, view).map(|owner| proven(owner, None)),
        By::Principal(at) => Some(proven(principal(at), None)),
        By::Token(at) => {
            let tokens = view.access.iter().filter_map(|record| match record {
                AccessRecord::Token { id, token } => Some((*id, token.principal.clone())),
                _ => None,
            });
            let valid = tokens.into_iter().nth(usize::from(at));
            let (id, principal) = valid.unwrap_or((1, principal(3)));
            Some(proven(principal, Some(id)))
        }
    };
    match caller {
        Some(caller) => Command::Called(Box::new(Called { caller, command })),
        None => command,
    }
}

pub(super) fn change_access(
    stale: bool,
    cluster: ClusterId,
    changes: &[AccessAct],
    view: &View,
) -> Command {
    let set_at = view.access.iter().find_map(|record| match record {
        AccessRecord::Mode { set_at, .. } => Some(*set_at),
        _ => None,
    });
    Command::ChangeAccess(ChangeAccess {
        cluster,
        based_on: set_at.unwrap_or(0) + u64::from(stale),
        changes: changes.iter().map(|act| change(*act, view)).collect(),
    })
}

fn change(act: AccessAct, view: &View) -> AccessChange {
    match act {
        AccessAct::Allow { who, verb, names } => AccessChange::AddRule(rule(who, verb, names)),
        AccessAct::Forbid(at) => {
            let rules = view.access.iter().filter_map(|record| match record {
                AccessRecord::Rule(rule) => Some(rule.clone()),
                _ => None,
            });
            let rules: Vec<Rule> = rules.collect();
            let found = rules.get(usize::from(at) % rules.len().max(1));
            AccessChange::RemoveRule(found.cloned().unwrap_or_else(|| rule(at, 0, at)))
        }
        AccessAct::Ban(at) => AccessChange::Ban(principal(at)),
        AccessAct::Unban(at) => AccessChange::Unban(principal(at)),
        AccessAct::Token(at) => AccessChange::AddToken(ClusterToken {
            // Now and then of another principal, for which there are none.
            principal: principal(if at < 200 { 3 } else { at }),
            digest: [at; 32],
            expires: None,
        }),
        AccessAct::EndTokens(at) => {
            AccessChange::RemoveTokens(principal(if at < 200 { 3 } else { at }))
        }
        AccessAct::Mode(mode) => AccessChange::SetMode(mode),
        AccessAct::Limits { sessions, leases } => AccessChange::SetLimits(PrincipalLimits {
            sessions: u64::from(sessions),
            leases: u64::from(leases),
        }),
    }
}

/// A rule whose parts fit together, but for the names of service accounts and of every 50th.
fn rule(who: u8, verb: u8, names: u8) -> Rule {
    let verb = Verb::ALL[usize::from(verb) % Verb::ALL.len()];
    let misfit = names % 50 == 49;
    Rule {
        principals: PrincipalPattern::parse(around(&FOR, who)).expect("a lawful pattern"),
        verb,
        names: (verb.takes_names() != misfit)
            .then(|| NamePattern::parse(around(&NAMES, names)).expect("a lawful pattern")),
    }
}
