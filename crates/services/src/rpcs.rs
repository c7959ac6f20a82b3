//! Every RPC of the public package with what its caller needs, and each of them called for real.

mod called;
mod numbers;
mod particular;
mod streams;
mod world;

use std::collections::BTreeSet;

use prost::Message;
use prost_types::FileDescriptorSet;
use ringfence_core::Verb;
use ringfence_proto::FILE_DESCRIPTOR_SET;

/// What a caller needs in the mode `enforced`, beside not being banned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// Nothing more: no names, principals or data are shown, and nothing of others' is changed.
    Admission,
    /// That the session is its own. The log judges it.
    OwnSession,
    /// This verb for the lease; of `Evict`, for each that the session has.
    Lease(Verb),
    /// This verb for some lease, whichever.
    SomeLease(Verb),
    /// To observe the lease, or to be granted it.
    ToRead,
    /// The same for all names with the prefix.
    ToReadAll,
    /// To observe all names; one's own session needs nothing.
    Sessions,
    /// This verb, which takes no names.
    Cluster(Verb),
}

/// The RPCs, by service and method.
const RPCS: [(&str, Needs); 31] = [
    ("Access/GetAccess", Needs::Cluster(Verb::Admin)),
    ("Access/ChangeAccess", Needs::Cluster(Verb::Admin)),
    // For oneself nothing.
    ("Access/TestAccess", Needs::Cluster(Verb::Admin)),
    ("Access/WhoAmI", Needs::Admission),
    ("Access/ListActs", Needs::Cluster(Verb::Admin)),
    ("Cluster/Status", Needs::Admission),
    ("Cluster/ListMembers", Needs::Admission),
    ("Cluster/AddMember", Needs::Cluster(Verb::Operate)),
    ("Cluster/PromoteMember", Needs::Cluster(Verb::Operate)),
    ("Cluster/RemoveMember", Needs::Cluster(Verb::Operate)),
    ("Cluster/TransferLeader", Needs::Cluster(Verb::Operate)),
    ("Cluster/Configure", Needs::Cluster(Verb::Configure)),
    ("Cluster/Backup", Needs::Cluster(Verb::Backup)),
    // Each frame needs what its RPC does.
    ("Connection/Stream", Needs::Admission),
    ("Leases/Acquire", Needs::Lease(Verb::Acquire)),
    ("Leases/Cancel", Needs::OwnSession),
    ("Leases/Release", Needs::OwnSession),
    ("Leases/Transfer", Needs::Lease(Verb::Acquire)),
    ("Leases/Revoke", Needs::Lease(Verb::Revoke)),
    ("Leases/Get", Needs::ToRead),
    ("Leases/List", Needs::ToReadAll),
    ("Leases/Check", Needs::ToRead),
    ("Leases/Watch", Needs::ToReadAll),
    ("Leases/WatchFloors", Needs::ToReadAll),
    ("Leases/History", Needs::ToRead),
    // With an inline acquire, what that needs; for a Pod, the Pod's own credential.
    ("Sessions/Open", Needs::SomeLease(Verb::Acquire)),
    // The leader compares the principals of the sessions.
    ("Sessions/KeepAlive", Needs::Admission),
    ("Sessions/Close", Needs::OwnSession),
    ("Sessions/Evict", Needs::Lease(Verb::Revoke)),
    ("Sessions/Get", Needs::Sessions),
    ("Sessions/List", Needs::Sessions),
];

#[test]
fn every_rpc_of_the_public_package_says_what_its_caller_needs() {
    let files = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap().file;
    let services = files.into_iter().flat_map(|file| file.service);
    let there: BTreeSet<String> = services
        .flat_map(|service| {
            let of = service.name().to_owned();
            let methods = service.method.into_iter();
            methods.map(move |method| format!("{of}/{}", method.name()))
        })
        .collect();
    let said: BTreeSet<String> = RPCS.map(|(rpc, _)| rpc.to_owned()).into_iter().collect();
    assert_eq!(there, said);
}
