//! What traces show of a call: its method, the lease that it is about, and how it was answered.
//!
//! Names of leases are recorded, since they are what a reader looks for. Secrets of sessions, credentials,
//! principals, holder data and the texts of refusals are not.

use ringfence_core::{Ask, Command, LeaseName};
use ringfence_proto::refusal::{code, reason_name};
use ringfence_proto::v1::client_frame::Body;
use ringfence_proto::{Refusal, TraceParent};
use ringfence_raft::{Serving, Spans};
use tonic::Code;

/// The methods with one answer, as traces name them.
pub const UNARY_METHODS: [&str; 26] = [
    "ringfence.v1.Access/ChangeAccess",
    "ringfence.v1.Access/GetAccess",
    "ringfence.v1.Access/ListActs",
    "ringfence.v1.Access/TestAccess",
    "ringfence.v1.Access/WhoAmI",
    "ringfence.v1.Cluster/AddMember",
    "ringfence.v1.Cluster/Configure",
    "ringfence.v1.Cluster/ListMembers",
    "ringfence.v1.Cluster/PromoteMember",
    "ringfence.v1.Cluster/RemoveMember",
    "ringfence.v1.Cluster/Status",
    "ringfence.v1.Cluster/TransferLeader",
    "ringfence.v1.Leases/Acquire",
    "ringfence.v1.Leases/Cancel",
    "ringfence.v1.Leases/Check",
    "ringfence.v1.Leases/Get",
    "ringfence.v1.Leases/History",
    "ringfence.v1.Leases/List",
    "ringfence.v1.Leases/Release",
    "ringfence.v1.Leases/Revoke",
    "ringfence.v1.Leases/Transfer",
    "ringfence.v1.Sessions/Close",
    "ringfence.v1.Sessions/Evict",
    "ringfence.v1.Sessions/Get",
    "ringfence.v1.Sessions/List",
    "ringfence.v1.Sessions/Open",
];

/// The same for a frame of a stream: the method with the same request.
fn method(body: &Body) -> &'static str {
    match body {
        Body::Open(_) => "ringfence.v1.Sessions/Open",
        Body::KeepAlive(_) => "ringfence.v1.Sessions/KeepAlive",
        Body::Close(_) => "ringfence.v1.Sessions/Close",
        Body::Acquire(_) => "ringfence.v1.Leases/Acquire",
        Body::Cancel(_) => "ringfence.v1.Leases/Cancel",
        Body::Release(_) => "ringfence.v1.Leases/Release",
        Body::Transfer(_) => "ringfence.v1.Leases/Transfer",
        Body::Get(_) => "ringfence.v1.Leases/Get",
        Body::Check(_) => "ringfence.v1.Leases/Check",
    }
}

/// Begins the span of a frame, if it is to be recorded.
pub(crate) fn frame(spans: &Spans, body: Option<&Body>, traceparent: &[u8]) -> Option<Serving> {
    let method = method(body?);
    let of_caller = || TraceParent::parse(std::str::from_utf8(traceparent).ok()?);
    let serving = spans.serve(method, of_caller)?;
    note_method(&serving, method);
    serving.span().note("ringfence.transport", "stream");
    if let Some(Body::KeepAlive(request)) = body {
        let sessions = request.sessions.len() as u64;
        serving.span().note("ringfence.sessions", sessions);
    }
    Some(serving)
}

/// Notes which method a call asks for.
pub fn note_method(serving: &Serving, method: &'static str) {
    serving.span().note("rpc.system.name", "grpc");
    serving.span().note("rpc.method", method);
}

/// Ends the span of a call that was answered.
pub(crate) fn answered<T>(serving: Option<Serving>, answer: &Result<T, Refusal>) {
    let Some(serving) = serving else { return };
    match answer {
        Ok(_) => end_with_code(serving, Code::Ok),
        Err(refusal) => {
            let reason = reason_name(refusal.reason);
            serving.span().note("ringfence.reason", reason);
            end_with_code(serving, code(refusal.reason));
        }
    }
}

/// Ends the span of a call with the code of its answer; one without the right to it has no span. A refusal that the caller has to do with, as of
/// a lease that another holds, is no failure of the node.
pub fn end_with_code(serving: Serving, code: Code) {
    // A stranger would fill the collector, and displace the spans of others.
    if matches!(code, Code::PermissionDenied | Code::Unauthenticated) {
        return serving.forget();
    }
    let name = code_name(code);
    serving.span().note("rpc.response.status_code", name);
    match code {
        Code::Unknown
        | Code::DeadlineExceeded
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => serving.fail(name),
        Code::Ok
        | Code::Cancelled
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unauthenticated => serving.end(),
    }
}

fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// Notes the lease that a command is about, if it is about one.
pub(crate) fn note_command(command: &Command) {
    if let Some(name) = lease_of(command) {
        note_lease(name);
    }
}

/// Notes the lease that the present call is about.
pub(crate) fn note_lease(name: &LeaseName) {
    ringfence_raft::note("ringfence.lease.name", || name.to_string());
}

fn lease_of(command: &Command) -> Option<&LeaseName> {
    match command.bare() {
        Command::Request(request) => match &request.ask {
            Ask::Acquire(acquire) => Some(&acquire.name),
            Ask::Release { name, .. } | Ask::Transfer { name, .. } => Some(name),
            Ask::Cancel { .. } => None,
        },
        Command::Open(open) => open.acquire.as_ref().map(|acquire| &acquire.name),
        Command::Revoke(revoke) => Some(&revoke.name),
        Command::WriteObject(write) => Some(&write.name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost_types::FileDescriptorSet;

    use super::*;

    #[test]
    fn each_method_with_one_answer_has_its_name_in_traces() {
        let set = FileDescriptorSet::decode(ringfence_proto::FILE_DESCRIPTOR_SET).unwrap();
        let files = set
            .file
            .iter()
            .filter(|file| file.package() == "ringfence.v1");
        let mut methods: Vec<String> = files
            .flat_map(|file| &file.service)
            .flat_map(|service| {
                let unary = service
                    .method
                    .iter()
                    .filter(|method| !method.client_streaming() && !method.server_streaming());
                unary.map(|method| format!("ringfence.v1.{}/{}", service.name(), method.name()))
            })
            .collect();
        methods.sort_unstable();
        assert_eq!(methods, UNARY_METHODS);
    }

    #[test]
    fn the_names_of_codes_are_those_of_grpc() {
        for number in 0..=16 {
            let code = Code::from_i32(number);
            let name = code_name(code);
            let words: String = name
                .split('_')
                .map(|word| format!("{}{}", &word[..1], word[1..].to_lowercase()))
                .collect();
            assert_eq!(words, format!("{code:?}"));
        }
    }
}
