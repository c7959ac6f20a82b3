//! How many sessions a caller may name that this node does not know, in every mode: those that have
//! ended, that never were, or that are not the caller's.
//!
//! Naming one is dear: it is judged twice, and waits for an entry. So what a caller names is looked up
//! in this node's state first, and taken from two rates: a few of each connection, so that one which
//! shares its principal with a flood still hears that its own sessions have ended; then those of its
//! principal. Sessions that the state has as the caller's are never left out, whatever others ask.
//!
//! The state may lag, so it never says that a session is over: one beyond the rates is to be asked for
//! again, and nothing is acknowledged to it.

use std::sync::Arc;
use std::time::Duration;

use ringfence_access::{Buckets, Rate};
use ringfence_core::{Command, Principal, Secret, SessionId, StateMachine};
use ringfence_planted::{Bug, planted};
use ringfence_proto::Refusal;
use ringfence_proto::v1::Reason;
use ringfence_raft::{KeepAlive, KeptAlive, since_boot};

use crate::Context;
use crate::caller::Who;
use crate::clients::Account;
use crate::limits::{PRINCIPALS_COUNTED_MAX, UNKNOWN_REQUEST_COST, UNKNOWN_SESSIONS_PER_PRINCIPAL};

/// The name of the limit.
const LIMIT: &str = "unknown_sessions_per_principal";

/// What all principals have named of this node that it does not know.
pub(crate) struct UnknownSessions {
    of_principals: Buckets,
}

impl UnknownSessions {
    pub(crate) fn new() -> Arc<Self> {
        Self::of(UNKNOWN_SESSIONS_PER_PRINCIPAL)
    }

    fn of(rate: Rate) -> Arc<Self> {
        Arc::new(Self {
            of_principals: Buckets::new(rate, PRINCIPALS_COUNTED_MAX),
        })
    }
}

/// What became of the unknown sessions of a keep-alive.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    /// Those beyond the rates: they are not asked for.
    pub(crate) sessions: Vec<SessionId>,
    /// How many are asked for all the same.
    asked: usize,
    /// How many of these were taken from the principal's rate.
    taken: u64,
}

impl LeftOut {
    /// What a keep-alive is answered that names nothing else.
    pub(crate) fn refusal(&self) -> Refusal {
        over(self.sessions.len())
    }
}

/// The rate of a principal has no room for so many sessions.
fn over(sessions: usize) -> Refusal {
    let max = UNKNOWN_SESSIONS_PER_PRINCIPAL.per_second;
    let sessions = u64::try_from(sessions).unwrap_or(u64::MAX);
    let millis = (sessions.saturating_mul(1_000) / max).clamp(1, 1_000);
    let message = format!(
        "{LIMIT}: at most {max} sessions a second that this node does not know as the caller's may be \
         named by one principal; drop those that have ended, and ask again in {millis} ms"
    );
    Refusal::new(Reason::Limit, message)
        .with("limit", LIMIT)
        .with("max", max)
        .retry_after(Duration::from_millis(millis))
}

/// The session that a command acts for, with the secret that the caller has shown.
fn acts_for(command: &Command) -> Option<(SessionId, &Secret)> {
    match command.bare() {
        Command::Request(request) => Some((request.session, &request.secret)),
        Command::Close { session, secret } => Some((*session, secret)),
        _ => None,
    }
}

/// Whether a command acts for a session that this state does not know as that of who has its secret.
pub(crate) fn is_unknown(machine: &StateMachine, command: &Command) -> bool {
    acts_for(command).is_some_and(|(session, secret)| {
        let known = machine.authenticate(session, secret);
        known.is_err()
    })
}

fn name(who: &Who) -> &str {
    who.principal()
        .map_or(Principal::ANONYMOUS, Principal::as_str)
}

impl Context {
    /// Takes so many from the rates of a connection and its principal; how many there were, and how
    /// many of these were the principal's.
    fn take_unknown(&self, who: &Who, account: &Account, wanted: usize) -> (usize, u64) {
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
        let of_connection = account.take_unknown_sessions(wanted);
        let rates = &self.unknown_sessions.of_principals;
        let taken = rates.take_some(&name(who), wanted - of_connection, since_boot());
        let all = usize::try_from(of_connection + taken).unwrap_or(usize::MAX);
        (all, taken)
    }

    fn has_no_rates(who: &Who) -> bool {
        name(who) == Principal::LOCAL || planted(Bug::UnknownSessionsUnlimited)
    }

    /// Takes the sessions out of a keep-alive that this node does not know as the caller's, beyond the
    /// rates.
    pub(crate) fn leave_out_unknown(
        &self,
        who: &Who,
        account: &Account,
        keep_alive: &mut KeepAlive,
    ) -> LeftOut {
        if Self::has_no_rates(who) {
            return LeftOut::default();
        }
        let unknown = self.node.unknown_sessions(keep_alive);
        if unknown.is_empty() {
            return LeftOut::default();
        }
        let (asked, taken) = self.take_unknown(who, account, unknown.len());
        let mut left_out = LeftOut {
            sessions: Vec::with_capacity(unknown.len() - asked),
            asked,
            taken,
        };
        let mut beyond = unknown[asked..].iter().peekable();
        if beyond.peek().is_none() {
            return left_out;
        }
        let mut at = 0;
        keep_alive.sessions.retain(|(session, _)| {
            let is_beyond = beyond.next_if_eq(&&at).is_some();
            at += 1;
            if is_beyond {
                left_out.sessions.push(*session);
            }
            !is_beyond
        });
        self.metrics.limited(&left_out.refusal(), name(who), true);
        left_out
    }

    /// Gives back what was taken for sessions that were the caller's after all: this node lagged.
    pub(crate) fn give_back_known(&self, who: &Who, left_out: &LeftOut, kept: &KeptAlive) {
        let known = left_out.asked.saturating_sub(kept.ended.len());
        let amount = u64::try_from(known).unwrap_or(0).min(left_out.taken);
        if amount > 0 {
            let rates = &self.unknown_sessions.of_principals;
            rates.give_back(&name(who), amount, since_boot());
        }
    }

    /// Takes a request in a session that this node does not know. Each is an entry of its own, while
    /// keep-alives share one, so it costs as much as many of these.
    ///
    /// # Errors
    /// [`Refusal`] if the rates have no room for it. Nothing was done.
    pub(crate) fn take_unknown_request(&self, who: &Who, account: &Account) -> Result<(), Refusal> {
        const COST: usize = UNKNOWN_REQUEST_COST;
        if Self::has_no_rates(who) || self.take_unknown(who, account, COST).0 == COST {
            return Ok(());
        }
        let refusal = over(COST);
        self.metrics.limited(&refusal, name(who), true);
        Err(refusal)
    }
}

#[cfg(test)]
mod tests {
    use ringfence_core::{Ask, FencingToken, LeaseName, Request, RequestNumber};
    use ringfence_proto::v1;
    use tokio::sync::oneshot;

    use super::*;
    use crate::alone::{Alone, alone, within};
    use crate::limits::UNKNOWN_SESSIONS_PER_CONNECTION;

    /// What a principal may name at once; hardly anything comes in during a test.
    const BURST: u64 = 500;
    const OF_CONNECTION: u64 = UNKNOWN_SESSIONS_PER_CONNECTION.burst;

    async fn strict() -> Alone {
        let mut alone = alone().await;
        alone.context.unknown_sessions = UnknownSessions::of(Rate {
            per_second: 1,
            burst: BURST,
        });
        alone
    }

    fn handle(session: u64, secret: u8) -> v1::SessionHandle {
        v1::SessionHandle {
            session,
            secret: vec![secret; 16].into(),
        }
    }

    /// Handles of so many sessions that were never opened.
    fn invented(sessions: u64) -> impl Iterator<Item = v1::SessionHandle> {
        (0..sessions).map(|n| handle((1 << 40) | n, 7))
    }

    /// What a keep-alive is answered, and how long its connection has to rest.
    async fn keep_alive(
        alone: &Alone,
        account: &Account,
        sessions: impl Iterator<Item = v1::SessionHandle>,
    ) -> (Result<v1::KeepAliveResponse, Refusal>, Duration) {
        let request = v1::KeepAliveRequest {
            id: 1,
            sessions: sessions.collect(),
            acknowledged: Vec::new(),
        };
        let (tell, told) = oneshot::channel();
        let (context, nobody) = (&alone.context, Who::default());
        let told_now = |answer| drop(tell.send(answer));
        let rest = crate::keep_alive::submit(context, &nobody, account, request, told_now);
        (within("answer", told).await.unwrap(), rest.pause)
    }

    /// A connection that has named as many as it and its principal may.
    async fn flood(alone: &Alone) -> Arc<Account> {
        let account = alone.context.new_account();
        let all = invented(BURST + OF_CONNECTION);
        let (answer, rest) = keep_alive(alone, &account, all).await;
        let ended = answer.unwrap().ended.len() as u64;
        assert_eq!(
            ended,
            BURST + OF_CONNECTION,
            "as a client whose sessions all ended"
        );
        assert_eq!(rest, Duration::ZERO);
        account
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_flood_of_invented_sessions_is_refused_and_rests_and_those_that_live_are_kept_alive()
    {
        let alone = strict().await;
        let (session, _) = alone.open(1).await;
        let living = || std::iter::once(handle(session.get(), 1));
        let flooding = flood(&alone).await;

        // A connection earns ten in a second.
        let (answer, rest) = keep_alive(&alone, &flooding, invented(10_000)).await;
        assert!(rest > Duration::from_millis(900), "{rest:?}");
        match answer {
            Ok(answer) => assert!(answer.untold.len() > 9_000),
            Err(refusal) => assert_eq!(refusal.reason, Reason::Limit, "{refusal}"),
        }

        // On the same connection and on others, alone and beside invented ones.
        let (answer, rest) = keep_alive(&alone, &flooding, living()).await;
        let answer = answer.unwrap();
        assert!(answer.ended.is_empty() && answer.untold.is_empty());
        assert_eq!(rest, Duration::ZERO);
        let other = alone.context.new_account();
        let mixed = invented(4_000).chain(living()).chain(invented(4_000));
        let (answer, _) = keep_alive(&alone, &other, mixed).await;
        let answer = answer.unwrap();
        let told = answer.ended.len() + answer.untold.len();
        assert_eq!(told, 8_000, "no other one is kept alive");
        assert!(answer.untold.len() > 7_000, "the rate is used up");
        let ended = |state: &v1::SessionState| state.session == session.get();
        assert!(!answer.ended.iter().any(ended) && !answer.untold.contains(&session.get()));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_refused_as_a_whole_says_which_limit_and_when_to_ask_again() {
        let alone = strict().await;
        let flooding = flood(&alone).await;
        let refused = async {
            loop {
                let (answer, _) = keep_alive(&alone, &flooding, invented(1)).await;
                if let Err(refusal) = answer {
                    return refusal;
                }
            }
        };
        let refusal = within("refusal", refused).await;
        assert_eq!(refusal.reason, Reason::Limit, "{refusal}");
        assert_eq!(refusal.metadata["limit"], LIMIT);
        assert!(refusal.retry_after.is_some());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_shares_the_principal_of_a_flood_hears_that_its_own_sessions_have_ended() {
        let alone = strict().await;
        flood(&alone).await;
        let honest = alone.context.new_account();
        let (answer, rest) = keep_alive(&alone, &honest, invented(50)).await;
        assert_eq!(answer.unwrap().ended.len(), 50);
        assert_eq!(rest, Duration::ZERO);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_a_lagging_node_did_not_know_is_given_back() {
        let alone = strict().await;
        let (context, who) = (&alone.context, Who::default());
        let sessions = (1..=BURST).map(|n| (SessionId::new(n).unwrap(), Secret::new([7; 16])));
        let mut keep_alive = KeepAlive {
            sessions: sessions.collect(),
            ..KeepAlive::default()
        };
        for _ in 0..10 {
            let account = context.new_account();
            let left_out = context.leave_out_unknown(&who, &account, &mut keep_alive);
            assert!(left_out.sessions.is_empty(), "given back each time");
            context.give_back_known(&who, &left_out, &KeptAlive::default());
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn requests_in_invented_sessions_beyond_the_rate_are_refused_before_the_log() {
        let alone = strict().await;
        let (session, secret) = alone.open(1).await;
        let flooding = flood(&alone).await;
        let ask = |account: &Account, session, secret| {
            let command = Command::Request(Request {
                session,
                secret,
                number: RequestNumber::new(1).unwrap(),
                lowest: RequestNumber::new(1).unwrap(),
                ask: Ask::Release {
                    name: LeaseName::parse("db").unwrap(),
                    token: FencingToken::new(1).unwrap(),
                    close: false,
                },
            });
            alone.context.asked(&Who::default(), account, command)
        };
        let invented = SessionId::new(1 << 40).unwrap();
        let wrong = Secret::new([9; 16]);
        for (session, secret) in [(invented, secret), (session, wrong)] {
            let refused = (0..1_000).filter_map(|_| ask(&flooding, session, secret).err());
            let refused: Vec<Refusal> = refused.collect();
            assert!(refused.len() > 900, "{}", refused.len());
            let limited = |refusal: &Refusal| refusal.reason == Reason::Limit;
            assert!(refused.iter().all(limited));
        }
        for _ in 0..1_000 {
            ask(&flooding, session, secret).expect("its own session");
        }
        let other = alone.context.new_account();
        ask(&other, invented, secret).expect("a connection has some of its own");
    }
}
