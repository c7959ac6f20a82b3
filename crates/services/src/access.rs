//! Service `ringfence.v1.Access`.

use ringfence_core::{
    Access, AuditRecord, Command, Frozen, Outcome, Principal, Rejection, Rule, Scope, StateMachine,
    Verb,
};
use ringfence_proto::{Refusal, v1, wire};
use ringfence_raft::{Applied, Node};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::{Context, deadline, paging};
use crate::caller::Who;
use crate::metrics::Call;
use crate::proposals::Proposal;
use crate::rights::judged;
use crate::status::{not_read, unexpected};

/// Service `ringfence.v1.Access`.
pub struct AccessService {
    context: Context,
}

/// Whose rights are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Own,
    Others,
}

impl AccessService {
    /// The service of this node.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self { context }
    }

    /// Answers from a state that reflects everything that was acknowledged before. The rights of
    /// others are shown to administrators.
    async fn read<T>(
        &self,
        who: &Who,
        metadata: &MetadataMap,
        shown: Shown,
        look: impl FnOnce(&StateMachine) -> T,
    ) -> Result<T, Refusal> {
        let caller = self.context.caller(who);
        let judge = |access: &Access| match shown {
            Shown::Own => Ok(()),
            Shown::Others => access.judge(who.principal(), Verb::Admin, Scope::Cluster),
        };
        let read = async {
            self.context.admit(who)?;
            self.context.node.read_barrier().await.map_err(not_read)?;
            let looked = self.context.node.read(|machine| {
                let access = machine.access();
                let would = judged(access, caller.as_ref(), judge)?;
                Ok((would, look(machine)))
            });
            let (would, answer) =
                looked.map_err(|rejection| Refusal::from_rejection(&rejection))?;
            self.context.heed(Ok(would)).map(|()| answer)
        };
        deadline::within(metadata, read).await
    }
}

#[tonic::async_trait]
impl v1::access_server::Access for AccessService {
    async fn get_access(
        &self,
        request: Request<v1::GetAccessRequest>,
    ) -> Result<Response<v1::GetAccessResponse>, Status> {
        let (account, who) = (self.context.account(&request), Who::of(&request));
        let look = |machine: &StateMachine| wire::access_to_wire(machine.access());
        let answer = self
            .read(&who, request.metadata(), Shown::Others, look)
            .await;
        let answer = answer.and_then(|mut answer| {
            let cluster = self.context.node.read(|machine| machine.cluster());
            answer.cluster_id = cluster
                .as_ref()
                .map(wire::cluster_id_to_wire)
                .unwrap_or_default();
            paging::in_room(&account, answer)
        });
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
        let who = Who::of(&request);
        let me = who
            .principal()
            .cloned()
            .unwrap_or_else(Principal::anonymous);
        let answer = match wire::test_access_from_wire(request.get_ref()) {
            Ok(asked) => {
                let of = asked.principal.as_ref().unwrap_or(&me);
                let shown = if *of == me { Shown::Own } else { Shown::Others };
                let look = |machine: &StateMachine| {
                    tested(machine.access(), of, asked.verb, asked.scope())
                };
                self.read(&who, request.metadata(), shown, look).await
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
        let who = Who::of(&request);
        let admitted = self.context.admit(&who);
        self.context.answered(Call::Access, admitted)?;
        let principal = who
            .principal()
            .map_or(Principal::ANONYMOUS, Principal::as_str);
        let node = &self.context.node;
        let mode = node.read(|machine| machine.access().mode());
        Ok(Response::new(v1::WhoAmIResponse {
            principal: principal.into(),
            mode: wire::mode_to_wire(mode).into(),
            node_id: node.status().node_id.unwrap_or_default(),
        }))
    }

    async fn list_acts(
        &self,
        request: Request<v1::ListActsRequest>,
    ) -> Result<Response<v1::ListActsResponse>, Status> {
        let (account, who) = (self.context.account(&request), Who::of(&request));
        let answer = match wire::list_acts_from_wire(request.get_ref()) {
            Ok(ask) => {
                // A thousand acts are copied without the lock under which entries are applied.
                let look = |machine: &StateMachine| machine.freeze();
                let state = self.read(&who, request.metadata(), Shown::Others, look);
                state.await.and_then(|state| acts(&state, &ask))
            }
            Err(refusal) => Err(refusal),
        };
        let answer = answer.and_then(|answer| paging::in_room(&account, answer));
        Ok(self.context.answered(Call::Access, answer)?)
    }
}

/// A page of the acts of a state.
fn acts(state: &Frozen, ask: &wire::ActsAsk) -> Result<v1::ListActsResponse, Refusal> {
    let cluster = state.cluster();
    if let (Some(offered), Some(present)) = (ask.cluster, cluster)
        && offered != present
    {
        return Err(Refusal::cluster_changed(offered, present));
    }
    if ask.after > state.index() {
        return Err(Refusal::position_unknown(ask.after, state.index()));
    }
    let page = state.audit_after(ask.after).take(ask.limit);
    let index = |record: Option<&AuditRecord>| record.map_or(0, |record| record.index);
    Ok(v1::ListActsResponse {
        cluster_id: cluster
            .as_ref()
            .map(wire::cluster_id_to_wire)
            .unwrap_or_default(),
        acts: page.map(wire::act_to_wire).collect(),
        newest: index(state.audit().last()),
        oldest: state.audit_complete_from().unwrap_or(0),
        compacted: state.audit_may_lack_after(ask.after),
    })
}

/// Whether something is allowed, as it would be judged in the mode `enforced`.
fn tested(
    access: &Access,
    principal: &Principal,
    verb: Verb,
    scope: Scope<'_>,
) -> v1::TestAccessResponse {
    let banned = access.bans().any(|ban| ban == principal);
    let (allowed, rule) = rule_for(access, principal, verb, scope);
    v1::TestAccessResponse {
        allowed: allowed && !banned,
        rule: rule.as_ref().map(wire::rule_to_wire),
        banned,
    }
}

/// Whether it is allowed, and the rule that allows it, or that would. None allows `local` to change
/// rights: that is so always.
fn rule_for(
    access: &Access,
    principal: &Principal,
    verb: Verb,
    scope: Scope<'_>,
) -> (bool, Option<Rule>) {
    // As reads are judged: who may have a lease may read it, too.
    let (judged, verbs) = match verb {
        Verb::Observe => {
            let judged = access.judge_read(Some(principal), scope);
            (judged, &[Verb::Observe, Verb::Acquire][..])
        }
        verb => (access.judge(Some(principal), verb, scope), &[verb][..]),
    };
    match judged {
        Ok(()) => {
            let mut verbs = verbs.iter();
            let rule = verbs.find_map(|verb| access.rule(principal.as_str(), *verb, scope));
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
