//! Who asks, and who may do what.

use ringfence_core::snapshot::Record;
use ringfence_core::*;

use super::*;

pub(crate) fn principal(raw: &str) -> Principal {
    Principal::parse(raw).unwrap()
}

fn rule(principals: &str, verb: Verb, names: Option<&str>) -> Rule {
    Rule {
        principals: PrincipalPattern::parse(principals).unwrap(),
        verb,
        names: names.map(|names| NamePattern::parse(names).unwrap()),
    }
}

fn one_name() -> Rule {
    rule(
        "cert:uri:spiffe://shop/db",
        Verb::Acquire,
        Some("db/primary"),
    )
}

fn limits() -> PrincipalLimits {
    PrincipalLimits {
        sessions: 100,
        leases: 5_000,
    }
}

fn cluster_token() -> ClusterToken {
    ClusterToken {
        principal: principal("token:backup"),
        digest: [7; 32],
        expires: Some(1_800_000_000),
    }
}

fn caller() -> Caller {
    Caller {
        principal: principal("token:backup"),
        token: Some(41),
        node: 3,
    }
}

fn called(command: Command) -> Command {
    let caller = caller();
    Command::Called(Box::new(Called { caller, command }))
}

pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    let (session, secret) = (session(300), Secret::new(SECRET));
    let change = ChangeAccess {
        cluster: cluster(),
        based_on: 40,
        changes: vec![
            AccessChange::AddRule(one_name()),
            AccessChange::AddRule(rule("sa:prod:*", Verb::Observe, Some("k8s/{namespace}/*"))),
            AccessChange::RemoveRule(rule("*", Verb::Revoke, Some("team-a/*"))),
            AccessChange::Ban(principal("jwt:corp:mallory")),
            AccessChange::Unban(principal("cert:cn:carol")),
            AccessChange::AddToken(cluster_token()),
            AccessChange::RemoveTokens(principal("token:old")),
            AccessChange::SetMode(Mode::Permissive),
            AccessChange::SetLimits(limits()),
        ],
    };
    vec![
        ("called", called(acquire("db/primary"))),
        ("called_close", called(Command::Close { session, secret })),
        ("change_access", Command::ChangeAccess(change)),
        ("adopt", Command::Adopt { session, secret }),
        (
            "operate",
            Command::Operate {
                change: "remove n3 (node 17)".into(),
            },
        ),
    ]
}

pub(crate) fn records() -> Vec<(&'static str, Record)> {
    let mode = AccessRecord::Mode {
        mode: Mode::Enforced,
        limits: limits(),
        set_at: 41,
    };
    let act = AuditRecord {
        index: 41,
        wall: WallTime(1_700_000_000_123),
        principal: Some(principal("cert:cn:carol")),
        node: 3,
        act: "access: mode enforced".into(),
        reason: "drill".into(),
    };
    let token = AccessRecord::Token {
        id: 41,
        token: cluster_token(),
    };
    vec![
        ("access_mode", Record::Access(mode)),
        (
            "access_rule",
            Record::Access(AccessRecord::Rule(one_name())),
        ),
        (
            "access_rule_without_names",
            Record::Access(AccessRecord::Rule(rule("local", Verb::Operate, None))),
        ),
        (
            "access_ban",
            Record::Access(AccessRecord::Ban(principal("jwt:corp:mallory"))),
        ),
        ("access_token", Record::Access(token)),
        ("audit", Record::Audit(act)),
    ]
}

pub(crate) fn rejections() -> Vec<(&'static str, Rejection)> {
    let principal = principal("jwt:corp:mallory");
    let invalid = |why| Rejection::InvalidAccess(why);
    vec![
        (
            "permission_denied",
            Rejection::PermissionDenied {
                needed: Box::new(one_name()),
            },
        ),
        (
            "permission_denied_without_names",
            Rejection::PermissionDenied {
                needed: Box::new(rule("anonymous", Verb::Admin, None)),
            },
        ),
        ("banned", Rejection::Banned { principal }),
        ("token_revoked", Rejection::TokenRevoked { id: 41 }),
        ("other_principal", Rejection::OtherPrincipal),
        ("stale_access", Rejection::StaleAccess { set_at: 41 }),
        (
            "invalid_access_names_missing",
            invalid(InvalidAccess::Rule(InvalidRule::NamesMissing)),
        ),
        (
            "invalid_access_names_not_taken",
            invalid(InvalidAccess::Rule(InvalidRule::NamesNotTaken)),
        ),
        (
            "invalid_access_no_namespace",
            invalid(InvalidAccess::Rule(InvalidRule::NoNamespace)),
        ),
        ("invalid_access_changes", invalid(InvalidAccess::Changes)),
        ("invalid_access_rules", invalid(InvalidAccess::TooManyRules)),
        ("invalid_access_bans", invalid(InvalidAccess::TooManyBans)),
        (
            "invalid_access_tokens",
            invalid(InvalidAccess::TooManyTokens),
        ),
        (
            "invalid_access_token",
            invalid(InvalidAccess::TokenPrincipal),
        ),
        ("invalid_access_ban_local", invalid(InvalidAccess::BanLocal)),
        ("invalid_access_level", invalid(InvalidAccess::LevelTooLow)),
        (
            "invalid_access_cluster",
            invalid(InvalidAccess::OtherCluster),
        ),
        ("invalid_access_limit", invalid(InvalidAccess::LimitOfZero)),
        (
            "limit_principal_sessions",
            Rejection::Limit(Limit::PrincipalSessions(100_000)),
        ),
        (
            "limit_principal_leases",
            Rejection::Limit(Limit::PrincipalLeases(1_000_000)),
        ),
        ("would_lock_out", Rejection::WouldLockOut),
    ]
}
