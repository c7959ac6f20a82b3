//! Anyone who asks, and any right.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use ringfence_core::*;

use super::*;

pub(crate) fn principal() -> BoxedStrategy<Principal> {
    let named = "(cert:(uri|dns|email|cn):|jwt:corp:|sa:prod:shop/|token:|node:)[!-)+-~]{1,30}";
    prop_oneof![
        named.prop_map(|raw| Principal::parse(&raw).unwrap()),
        Just(Principal::local()),
        Just(Principal::anonymous()),
    ]
    .boxed()
}

fn principals() -> BoxedStrategy<PrincipalPattern> {
    let prefix = prop::sample::select(vec![
        "*",
        "sa:*",
        "sa:prod:*",
        "sa:prod:shop/*",
        "cert:uri:*",
    ]);
    prop_oneof![
        principal().prop_map(PrincipalPattern::Exact),
        prefix.prop_map(|raw| PrincipalPattern::parse(raw).unwrap()),
    ]
    .boxed()
}

fn names() -> BoxedStrategy<NamePattern> {
    prop_oneof![
        name().prop_map(NamePattern::Exact),
        name().prop_map(|name| NamePattern::parse(&format!("{name}/*")).unwrap()),
        Just(NamePattern::all()),
        Just(NamePattern::OwnNamespace),
    ]
    .boxed()
}

pub(crate) fn rule() -> BoxedStrategy<Rule> {
    let verb = prop::sample::select(Verb::ALL.to_vec());
    (principals(), verb, option::of(names()))
        .prop_map(|(principals, verb, names)| Rule {
            principals,
            verb,
            names,
        })
        .boxed()
}

fn mode() -> BoxedStrategy<Mode> {
    prop::sample::select(vec![Mode::Off, Mode::Permissive, Mode::Enforced]).boxed()
}

fn limits() -> BoxedStrategy<PrincipalLimits> {
    (count(), count())
        .prop_map(|(sessions, leases)| PrincipalLimits { sessions, leases })
        .boxed()
}

fn cluster_token() -> BoxedStrategy<ClusterToken> {
    (principal(), any::<[u8; 32]>(), option::of(1..=u64::MAX))
        .prop_map(|(principal, digest, expires)| ClusterToken {
            principal,
            digest,
            expires,
        })
        .boxed()
}

pub(crate) fn called(command: BoxedStrategy<Command>) -> BoxedStrategy<Command> {
    let command = command.prop_filter("only what clients ask for", Command::is_asked);
    (principal(), option::of(1..=u64::MAX), count(), command)
        .prop_map(|(principal, token, node, command)| {
            let caller = Caller {
                principal,
                token,
                node,
            };
            Command::Called(Box::new(Called { caller, command }))
        })
        .boxed()
}

pub(crate) fn change_access() -> BoxedStrategy<Command> {
    let change = prop_oneof![
        rule().prop_map(AccessChange::AddRule),
        rule().prop_map(AccessChange::RemoveRule),
        principal().prop_map(AccessChange::Ban),
        principal().prop_map(AccessChange::Unban),
        cluster_token().prop_map(AccessChange::AddToken),
        principal().prop_map(AccessChange::RemoveTokens),
        mode().prop_map(AccessChange::SetMode),
        limits().prop_map(AccessChange::SetLimits),
    ];
    (cluster(), count(), vec(change, 0..5))
        .prop_map(|(cluster, based_on, changes)| {
            Command::ChangeAccess(ChangeAccess {
                cluster,
                based_on,
                changes,
            })
        })
        .boxed()
}

pub(crate) fn access_record() -> BoxedStrategy<AccessRecord> {
    prop_oneof![
        (mode(), limits(), count()).prop_map(|(mode, limits, set_at)| AccessRecord::Mode {
            mode,
            limits,
            set_at
        }),
        rule().prop_map(AccessRecord::Rule),
        principal().prop_map(AccessRecord::Ban),
        (count(), cluster_token()).prop_map(|(id, token)| AccessRecord::Token { id, token }),
    ]
    .boxed()
}

pub(crate) fn audit() -> BoxedStrategy<AuditRecord> {
    let who = (option::of(principal()), count());
    (count(), wall(), who, text(), text())
        .prop_map(
            |(index, wall, (principal, node), act, reason)| AuditRecord {
                index,
                wall,
                principal,
                node,
                act,
                reason,
            },
        )
        .boxed()
}

pub(crate) fn denied() -> BoxedStrategy<Rejection> {
    prop_oneof![
        rule().prop_map(|needed| Rejection::PermissionDenied {
            needed: Box::new(needed)
        }),
        principal().prop_map(|principal| Rejection::Banned { principal }),
        count().prop_map(|id| Rejection::TokenRevoked { id }),
        Just(Rejection::OtherPrincipal),
        count().prop_map(|set_at| Rejection::StaleAccess { set_at }),
        Just(Rejection::InvalidAccess(InvalidAccess::Changes)),
        Just(Rejection::WouldLockOut),
    ]
    .boxed()
}
