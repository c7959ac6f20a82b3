//! One act of the demo: the same story with and without a guard, step by step.

use std::time::Duration;

use rustix::process::Signal;

use super::actor::{Actor, not_told};
use super::caller::Store;
use super::stage::{LEASE, Stage};
use super::store::FIRST_BALANCE;
use super::tale::Tale;
use super::timeline::{Head, Lane, Stands, Timeline};
use crate::cli::Failure;
use crate::cli::output::Output;

/// What worker A adds.
pub(super) const A_ADDS: i64 = 30;
/// What worker B adds before and after the leader is killed.
pub(super) const B_ADDS: [i64; 2] = [50, 20];
/// How long A computes between its read and its write. It is stopped at once, and for longer.
const A_THINKS: &str = "2s";
const B_THINKS: &str = "100ms";

/// How an act ended.
pub(super) struct Ending {
    /// The balance in the store.
    pub(super) balance: i64,
    /// The tokens of A and B.
    pub(super) tokens: (i64, i64),
    pub(super) drawing: Timeline,
}

/// All on the stage, and what is reported of them.
struct Act<'a> {
    stage: &'a mut Stage,
    guarded: bool,
    tale: Tale,
    a: Actor,
    b: Actor,
}

/// Plays one act.
///
/// # Errors
/// If any step is not as announced.
pub(super) async fn play(
    stage: &mut Stage,
    number: u8,
    guarded: bool,
    output: Output,
) -> Result<Ending, Failure> {
    let (store, address) = stage.store(number, guarded).await?;
    let mut a = stage.worker("A", address, &[A_ADDS], A_THINKS)?;
    let mut b = stage.worker("B", address, &B_ADDS, B_THINKS)?;
    a.does("ready").await?;
    b.does("ready").await?;
    output.note(format!(
        "  worker A is pid {}, worker B pid {}, the store pid {}\n",
        a.pid(),
        b.pid(),
        store.pid()
    ));
    let tale = Tale::begin(number, output);
    let mut act = Act {
        stage,
        guarded,
        tale,
        a,
        b,
    };

    let token_a = act.a_is_paused().await?;
    let token_b = act.b_takes_over(token_a).await?;
    act.the_leader_dies().await?;
    act.b_goes_on().await?;
    act.a_comes_back(token_a, token_b).await?;
    act.everybody_leaves().await?;

    let balance = Store::connect(address).await?.read().await?;
    let Act { a, b, tale, .. } = act;
    for actor in [a, b, store] {
        actor.end().await;
    }
    Ok(Ending {
        balance,
        tokens: (token_a, token_b),
        drawing: tale.drawing,
    })
}

impl Act<'_> {
    /// A gets the lease, reads, and is stopped before it writes.
    async fn a_is_paused(&mut self) -> Result<i64, Failure> {
        self.a.cue().await?;
        let token = self.a.tells("granted").await?;
        let now = self.tale.now();
        self.tale.drawing.stands(Lane::A, Stands::Believes);
        let to = (Lane::A, format!("token {token}"));
        self.tale
            .drawing
            .message(now, (Lane::Leader, "grants"), Head::Arrives, to);
        self.tale.tell(
            "worker A",
            format!("holds the lease {LEASE}, token {token}"),
        )?;
        self.advances(Lane::A, token).await?;
        self.b.cue().await?;

        let read = self.a.tells("read").await?;
        self.a.signal(Signal::STOP);
        let now = self.tale.now();
        expect("worker A reads", FIRST_BALANCE, read)?;
        self.draw_read(Lane::A, now, read);
        self.tale.tell(
            "worker A",
            format!("reads a balance of {read}, and wants to add {A_ADDS}"),
        )?;
        self.tale.drawing.stands(Lane::A, Stands::Stopped);
        self.tale.drawing.note(now, Lane::A, "SIGSTOP");
        self.tale
            .tell("worker A", "is stopped with SIGSTOP, before it writes")?;
        Ok(token)
    }

    /// The lease expires, and B, which waited for it, works.
    async fn b_takes_over(&mut self, token_a: i64) -> Result<i64, Failure> {
        self.stage.lease_expires(token_a).await?;
        let now = self.tale.now();
        self.tale.drawing.note(now, Lane::Leader, "A has expired");
        self.tale.tell(
            "cluster",
            format!("the lease of A expires: no client kept token {token_a} alive"),
        )?;

        let token = self.b.tells("granted").await?;
        if token <= token_a {
            return Err(not_told(
                "the cluster",
                "a token greater than A's",
                &token.to_string(),
            ));
        }
        let now = self.tale.now();
        self.tale.drawing.stands(Lane::B, Stands::Believes);
        let to = (Lane::B, format!("token {token}"));
        self.tale
            .drawing
            .message(now, (Lane::Leader, "grants"), Head::Arrives, to);
        self.tale
            .tell("worker B", format!("holds the lease, token {token}"))?;
        self.advances(Lane::B, token).await?;
        self.b_adds(B_ADDS[0], FIRST_BALANCE).await?;
        Ok(token)
    }

    /// The Raft leader is killed, and another node leads.
    async fn the_leader_dies(&mut self) -> Result<(), Failure> {
        let dead = self.stage.kill_leader().await?;
        let now = self.tale.now();
        self.tale.drawing.stands(Lane::Leader, Stands::Killed);
        self.tale
            .drawing
            .note(now, Lane::Leader, format!("{dead}: SIGKILL"));
        self.tale.drawing.stands(Lane::Leader, Stands::Absent);
        self.tale.tell(
            "cluster",
            format!("{dead}, the Raft leader, is killed with SIGKILL"),
        )?;

        let leads = self.stage.new_leader().await?;
        let now = self.tale.now();
        self.tale.drawing.stands(Lane::Leader, Stands::Believes);
        self.tale
            .drawing
            .note(now, Lane::Leader, format!("{leads} leads"));
        self.tale
            .tell("cluster", format!("{leads} leads now; B's lease goes on"))
    }

    /// B does its second round under the same token.
    async fn b_goes_on(&mut self) -> Result<(), Failure> {
        self.b.cue().await?;
        self.b_adds(B_ADDS[1], FIRST_BALANCE + B_ADDS[0]).await
    }

    /// A is continued, and writes what it had computed from what it read long ago.
    async fn a_comes_back(&mut self, token_a: i64, token_b: i64) -> Result<(), Failure> {
        self.a.signal(Signal::CONT);
        let now = self.tale.now();
        self.tale.drawing.stands(Lane::A, Stands::Believes);
        self.tale.drawing.note(now, Lane::A, "SIGCONT");
        self.tale.tell(
            "worker A",
            "is continued with SIGCONT; it does not check its lease",
        )?;

        let wanted = FIRST_BALANCE + A_ADDS;
        let writes = (Lane::A, format!("writes {wanted}"));
        if self.guarded {
            let refused = self.a.does("refused STALE_TOKEN").await?;
            let now = self.tale.now();
            if refused[..] != [token_a, token_b] {
                return Err(not_told(
                    "worker A",
                    "refused with its token",
                    &format!("{refused:?}"),
                ));
            }
            let why = (Lane::Store, format!("STALE_TOKEN {token_a}<{token_b}"));
            self.tale.drawing.message(now, writes, Head::Refused, why);
            self.tale.tell(
                "store",
                format!(
                    "refuses A's write of {wanted}: STALE_TOKEN, offered {token_a}, mark {token_b}"
                ),
            )?;
            self.tale.drawing.stands(Lane::A, Stands::Runs);
            self.tale.drawing.note(now, Lane::A, "stops its work");
            return Ok(());
        }
        let wrote = self.a.tells("wrote").await?;
        let now = self.tale.now();
        expect("worker A writes", wanted, wrote)?;
        let there = (Lane::Store, format!("{wrote}, B's lost"));
        self.tale
            .drawing
            .message(now, writes, Head::Overwrites, there);
        self.tale.drawing.stands(Lane::A, Stands::Runs);
        let lost: i64 = B_ADDS.iter().sum();
        self.tale.tell(
            "store",
            format!("takes A's write of {wrote}: the {lost} that B added are gone"),
        )
    }

    /// A finds out what its client knew all along; B gives the lease back.
    async fn everybody_leaves(&mut self) -> Result<(), Failure> {
        self.a.cue().await?;
        self.a.does("lost").await?;
        self.tale
            .tell("worker A", "asks its client at last: the lease is lost")?;
        self.b.cue().await?;
        self.b.does("released").await?;
        let now = self.tale.now();
        self.tale.drawing.stands(Lane::B, Stands::Runs);
        self.tale.drawing.note(now, Lane::B, "releases");
        self.tale
            .tell("worker B", "releases the lease to the new leader")
    }

    /// A holder tells the guard that it is there, before its first read.
    async fn advances(&mut self, lane: Lane, token: i64) -> Result<(), Failure> {
        let (actor, who) = match lane {
            Lane::A => (&mut self.a, "worker A"),
            _ => (&mut self.b, "worker B"),
        };
        if !self.guarded {
            actor.does("unguarded").await?;
            return Ok(());
        }
        let mark = actor.tells("advanced").await?;
        expect("the guard's mark", token, mark)?;
        let now = self.tale.now();
        let to = (Lane::Store, format!("mark {mark}"));
        self.tale.drawing.message(
            now,
            (lane, format!("advances to {token}")),
            Head::Arrives,
            to,
        );
        self.tale.tell(
            who,
            format!("advances the guard to {mark} before its first read"),
        )
    }

    async fn b_adds(&mut self, add: i64, before: i64) -> Result<(), Failure> {
        let read = self.b.tells("read").await?;
        expect("worker B reads", before, read)?;
        let now = self.tale.now();
        self.draw_read(Lane::B, now, read);
        let wrote = self.b.tells("wrote").await?;
        expect("worker B writes", before + add, wrote)?;
        let now = self.tale.now();
        let writes = (Lane::B, format!("writes {wrote}"));
        self.tale
            .drawing
            .message(now, writes, Head::Arrives, (Lane::Store, wrote.to_string()));
        self.tale.tell(
            "worker B",
            format!("reads {read}, adds {add}, writes {wrote}"),
        )
    }

    fn draw_read(&mut self, lane: Lane, at: Duration, read: i64) {
        let to = (Lane::Store, read.to_string());
        self.tale
            .drawing
            .message(at, (lane, "reads"), Head::Returns, to);
    }
}

fn expect(what: &str, expected: i64, seen: i64) -> Result<(), Failure> {
    if expected == seen {
        return Ok(());
    }
    Err(not_told(what, &expected.to_string(), &seen.to_string()))
}
