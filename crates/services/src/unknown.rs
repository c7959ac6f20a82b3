//! How many sessions a caller may name that this node does not know, in every mode: those that have
//! ended, that never were, or that are not the caller's. Losses that a keep-alive acknowledges count
//! like them if there is no such loss here of a session that it names.
//!
//! Naming one is dear: it is judged twice, and waits for an entry. So what a caller names is looked up
//! in this node's state first, and taken from two rates: a few of each connection, so that one which
//! shares its principal with a flood still hears that its own sessions have ended; then those of its
//! principal. Sessions that the state has as the caller's, and losses that it has, are never left out,
//! whatever others ask.
//!
//! The state may lag, so it never says that a session is over, or that there is no such loss: a session
//! beyond the rates is to be asked for again, and nothing is acknowledged to it; and so is one whose
//! loss the leader lists though its acknowledgement was left out.

use std::sync::Arc;
use std::time::Duration;

use ringfence_access::{Buckets, Rate};
use ringfence_core::{Principal, SessionId};
use ringfence_planted::{Bug, planted};
use ringfence_proto::Refusal;
use ringfence_proto::v1::Reason;
use ringfence_raft::{Acknowledgement, KeepAlive, KeptAlive, since_boot};

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

/// What became of the unknown sessions and losses of a keep-alive.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    /// Sessions beyond the rates: they are not asked for.
    pub(crate) sessions: Vec<SessionId>,
    /// Acknowledgements beyond the rates, sorted: the leader does not receive them.
    losses: Vec<Acknowledgement>,
    /// How many sessions are asked for all the same.
    asked: usize,
    /// How many of these were taken from the principal's rate.
    taken: u64,
}

impl LeftOut {
    /// How many sessions and losses were left out.
    pub(crate) fn named(&self) -> usize {
        self.sessions.len() + self.losses.len()
    }

    /// What a keep-alive is answered that names nothing else.
    pub(crate) fn refusal(&self) -> Refusal {
        over(self.named())
    }

    /// Says in an answer for which sessions nothing was done, or not all.
    pub(crate) fn add_to(&self, kept: &mut KeptAlive) {
        kept.ask_again_for(&self.losses);
        if !planted(Bug::LeftOutUntold) {
            kept.untold.extend(&self.sessions);
        }
    }
}

/// The rate of a principal has no room for so many sessions and losses.
fn over(named: usize) -> Refusal {
    let max = UNKNOWN_SESSIONS_PER_PRINCIPAL.per_second;
    let named = u64::try_from(named).unwrap_or(u64::MAX);
    let millis = (named.saturating_mul(1_000) / max).clamp(1, 1_000);
    let message = format!(
        "{LIMIT}: at most {max} sessions, and losses of them, a second that this node does not know as \
         the caller's may be named by one principal; drop those that have ended, and ask again in \
         {millis} ms"
    );
    Refusal::new(Reason::Limit, message)
        .with("limit", LIMIT)
        .with("max", max)
        .retry_after(Duration::from_millis(millis))
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

    /// Takes the sessions out of a keep-alive that this node does not know as the caller's, and the losses
    /// that it does not know, beyond the rates.
    pub(crate) fn leave_out_unknown(
        &self,
        who: &Who,
        account: &Account,
        keep_alive: &mut KeepAlive,
    ) -> LeftOut {
        if Self::has_no_rates(who) {
            return LeftOut::default();
        }
        let mut left_out = self.leave_out_sessions(who, account, keep_alive);
        // Behind the sessions: of one that is left out no loss is acknowledged either.
        left_out.losses = self.leave_out_losses(who, account, keep_alive, left_out.asked);
        if left_out.named() > 0 {
            self.metrics.limited(&left_out.refusal(), name(who), true);
        }
        left_out
    }

    fn leave_out_sessions(
        &self,
        who: &Who,
        account: &Account,
        keep_alive: &mut KeepAlive,
    ) -> LeftOut {
        let unknown = self.node.unknown_sessions(keep_alive);
        if unknown.is_empty() {
            return LeftOut::default();
        }
        let (asked, taken) = self.take_unknown(who, account, unknown.len());
        let mut left_out = LeftOut {
            sessions: Vec::with_capacity(unknown.len() - asked),
            losses: Vec::new(),
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
        left_out
    }

    /// As many as `paid` sessions of the message were taken for cost nothing more. What is taken for a
    /// loss is not given back if the leader has it: its answer does not say so, and there are few.
    fn leave_out_losses(
        &self,
        who: &Who,
        account: &Account,
        keep_alive: &mut KeepAlive,
        paid: usize,
    ) -> Vec<Acknowledgement> {
        if keep_alive.acknowledged.is_empty() || planted(Bug::UnknownLossesUnlimited) {
            return Vec::new();
        }
        let known = self.node.known_losses(keep_alive);
        let is_known = |one: &Acknowledgement| known.binary_search(one).is_ok();
        let all = std::mem::take(&mut keep_alive.acknowledged);
        let (known, mut unknown): (Vec<_>, Vec<_>) = all.into_iter().partition(is_known);
        let paid = paid.min(unknown.len());
        let (taken, _) = self.take_unknown(who, account, unknown.len() - paid);
        let mut beyond = unknown.split_off(paid + taken);
        keep_alive.acknowledged = known;
        keep_alive.acknowledged.append(&mut unknown);
        beyond.sort_unstable();
        beyond
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
    use ringfence_core::{Ask, Command, FencingToken, LeaseName, Request, RequestNumber, Secret};
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
        acknowledge(alone, account, sessions, Vec::new()).await
    }

    async fn acknowledge(
        alone: &Alone,
        account: &Account,
        sessions: impl Iterator<Item = v1::SessionHandle>,
        acknowledged: Vec<v1::Acknowledged>,
    ) -> (Result<v1::KeepAliveResponse, Refusal>, Duration) {
        let request = v1::KeepAliveRequest {
            id: 1,
            sessions: sessions.collect(),
            acknowledged,
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

    fn losses(session: SessionId, tokens: impl Iterator<Item = u64>) -> Vec<v1::Acknowledged> {
        let session = session.get();
        let loss = |token| v1::Acknowledged { session, token };
        tokens.map(loss).collect()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn invented_losses_are_left_out_and_make_a_connection_rest_and_true_ones_are_noticed() {
        let alone = strict().await;
        let lost = alone.lose().await;
        let flooding = flood(&alone).await;
        let living = || std::iter::once(handle(lost.session.get(), 1));
        let mut acknowledged = losses(lost.session, 1 << 40..(1 << 40) + 9_999);
        acknowledged.extend(losses(lost.session, std::iter::once(lost.token.get())));

        let (answer, rest) = acknowledge(&alone, &flooding, living(), acknowledged).await;
        assert!(rest > Duration::from_millis(900), "{rest:?}");
        let answer = answer.unwrap();
        assert!(answer.ended.is_empty() && answer.untold.is_empty());
        assert!(answer.lost.is_empty(), "it was noticed");
        let left = alone.node.read(|machine| machine.lost(lost.session).len());
        assert_eq!(left, 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn losses_of_no_session_of_the_message_beyond_the_rate_are_refused() {
        let alone = strict().await;
        let lost = alone.lose().await;
        let flooding = flood(&alone).await;
        let of_another = losses(lost.session, std::iter::repeat_n(lost.token.get(), 10_000));
        let nobody = std::iter::empty();
        let (answer, rest) = acknowledge(&alone, &flooding, nobody, of_another).await;
        assert_eq!(answer.unwrap_err().reason, Reason::Limit);
        assert!(rest > Duration::from_millis(900), "{rest:?}");
        let left = alone.node.read(|machine| machine.lost(lost.session).len());
        assert_eq!(left, 1, "its own session has not acknowledged it");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_session_whose_acknowledgement_a_lagging_node_left_out_asks_again() {
        let alone = strict().await;
        let (session, secret) = alone.open(1).await;
        let flooding = flood(&alone).await;
        let token = |n| FencingToken::new(n).unwrap();
        let mut keep_alive = KeepAlive {
            sessions: vec![(session, secret)],
            acknowledged: (1..=1_000).map(|n| (session, token(n))).collect(),
            caller: None,
        };
        let (context, who) = (&alone.context, Who::default());
        let left_out = context.leave_out_unknown(&who, &flooding, &mut keep_alive);
        assert_eq!(keep_alive.sessions.len(), 1);
        // The leader has this one, and does not know that it was acknowledged.
        let listed = |n| ringfence_core::LostGrant {
            name: LeaseName::parse("db").unwrap(),
            token: token(n),
            cause: ringfence_core::EndCause::Expired,
        };
        let kept = |n| KeptAlive {
            lost: vec![(session, vec![listed(n)])],
            ..KeptAlive::default()
        };
        let mut left_out_by_this = kept(1_000);
        left_out.add_to(&mut left_out_by_this);
        assert_eq!(left_out_by_this.untold, [session]);
        assert_eq!(left_out_by_this.lost, []);
        let mut another = kept(2_000);
        left_out.add_to(&mut another);
        assert_eq!((another.lost.len(), another.untold.len()), (1, 0));
    }
}
