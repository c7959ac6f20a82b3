//! Service `ringfence.v1.Access`.

use prost::Message;
use ringfence_core::{
    Access, Caller, Command, Mode, Outcome, Principal, Rejection, Rule, Scope, StateMachine, Verb,
};
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::{Applied, Node};
use tonic::{Request, Response, Status};

use super::{Context, deadline, paging};
use crate::metrics::Call;
use crate::proposals::Proposal;
use crate::status::{not_read, unexpected};

/// Service `ringfence.v1.Access`.
pub struct AccessService {
    context: Context,
}

impl AccessService {
    /// The service of this node.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self { context }
    }

    /// Answers from a state that reflects everything that was acknowledged before.
    async fn read<T: Message>(
        &self,
        metadata: &tonic::metadata::MetadataMap,
        look: impl FnOnce(&StateMachine) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let read = async {
            self.context.node.read_barrier().await.map_err(not_read)?;
            self.context.node.read(look)
        };
        deadline::within(metadata, read).await
    }
}

/// Who asks, if a node has proven it.
fn caller<T>(_request: &Request<T>) -> Option<Caller> {
    None
}

/// What only administrators may read.
fn demand_admin(access: &Access, caller: Option<&Caller>) -> Result<(), Refusal> {
    let admitted = match access.mode() {
        Mode::Enforced => access.admit(caller),
        Mode::Off | Mode::Permissive => Ok(()),
    };
    let principal = caller.map(|caller| &caller.principal);
    let allowed = admitted.and_then(|()| access.demand(principal, Verb::Admin, Scope::Cluster));
    allowed.map_err(|rejection| Refusal::from_rejection(&rejection))
}

#[tonic::async_trait]
impl v1::access_server::Access for AccessService {
    async fn get_access(
        &self,
        request: Request<v1::GetAccessRequest>,
    ) -> Result<Response<v1::GetAccessResponse>, Status> {
        let (account, caller) = (self.context.account(&request), caller(&request));
        let answer = self.read(request.metadata(), |machine| {
            let access = machine.access();
            demand_admin(access, caller.as_ref())?;
            Ok(wire::access_to_wire(access, machine.cluster().as_ref()))
        });
        let answer = answer.await;
        let answer = answer.and_then(|answer| paging::in_room(&account, answer));
        Ok(self.context.answered(Call::Access, answer)?)
    }

    async fn change_access(
        &self,
        request: Request<v1::ChangeAccessRequest>,
    ) -> Result<Response<v1::ChangeAccessResponse>, Status> {
        self.context.call(request).await
    }

    async fn test_access(
        &self,
        request: Request<v1::TestAccessRequest>,
    ) -> Result<Response<v1::TestAccessResponse>, Status> {
        let caller = caller(&request);
        let answer = match wire::test_access_from_wire(request.get_ref()) {
            Ok(asked) => {
                let look = |machine: &StateMachine| tested(machine, &asked, caller.as_ref());
                self.read(request.metadata(), look).await
            }
            Err(refusal) => Err(refusal),
        };
        let answer = self.context.answered(Call::Access, answer);
        Ok(Response::new(answer?))
    }

    async fn who_am_i(
        &self,
        request: Request<v1::WhoAmIRequest>,
    ) -> Result<Response<v1::WhoAmIResponse>, Status> {
        let principal = match caller(&request) {
            Some(caller) => caller.principal.as_str().into(),
            None => Principal::ANONYMOUS.into(),
        };
        let node = &self.context.node;
        let mode = node.read(|machine| machine.access().mode());
        Ok(Response::new(v1::WhoAmIResponse {
            principal,
            mode: wire::mode_to_wire(mode).into(),
            node_id: node.status().node_id.unwrap_or_default(),
        }))
    }
}

/// Whether something is allowed, as it would be judged in the mode `enforced`.
fn tested(
    machine: &StateMachine,
    asked: &wire::TestedAccess,
    caller: Option<&Caller>,
) -> Result<v1::TestAccessResponse, Refusal> {
    let access = machine.access();
    let own = caller.map(|caller| &caller.principal);
    let of = asked.principal.as_ref();
    let of_caller = match of {
        None => true,
        Some(of) => of.as_str() == own.map_or(Principal::ANONYMOUS, Principal::as_str),
    };
    if !of_caller {
        demand_admin(access, caller)?;
    }
    let principal = of.or(own).cloned().unwrap_or_else(Principal::anonymous);
    let banned = access.bans().any(|ban| *ban == principal);
    let (allowed, rule) = judged(access, &principal, asked.verb, asked.scope());
    Ok(v1::TestAccessResponse {
        allowed: allowed && !banned,
        rule: rule.as_ref().map(wire::rule_to_wire),
        banned,
    })
}

/// Whether it is allowed, and the rule that allows it, or that would. None allows `local` to change
/// rights: that is so always.
fn judged(
    access: &Access,
    principal: &Principal,
    verb: Verb,
    scope: Scope<'_>,
) -> (bool, Option<Rule>) {
    match access.judge(Some(principal), verb, scope) {
        Ok(()) => {
            let rule = access.rule(principal.as_str(), verb, scope);
            (true, rule.cloned())
        }
        Err(Rejection::PermissionDenied { needed }) => (false, Some(*needed)),
        Err(_) => (false, None),
    }
}

impl Proposal for v1::ChangeAccessRequest {
    const CALL: Call = Call::ChangeAccess;
    type Answer = v1::ChangeAccessResponse;

    fn command(self) -> Result<Command, Refusal> {
        wire::change_access_from_wire(self).map(Command::ChangeAccess)
    }

    fn answer(applied: Applied, _: &Node) -> Result<v1::ChangeAccessResponse, Refusal> {
        match applied.outcome {
            Outcome::AccessChanged { set_at, token } => Ok(v1::ChangeAccessResponse {
                access_index: set_at,
                token_id: token.unwrap_or_default(),
            }),
            other => Err(unexpected(&other)),
        }
    }
}
