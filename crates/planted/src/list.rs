//! The bugs. A new one gets a line here, and a branch where it would have been made.

macro_rules! bugs {
    ($($home:ident: $($variant:ident $name:literal $what:literal)*;)*) => {
        /// A bug that can be planted. The order is that of the crates, from the core outwards.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Bug {
            $($(#[doc = $what] $variant,)*)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Self] = &[$($(Self::$variant,)*)*];

            /// The name that switches it on.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($(Self::$variant => $name,)*)* }
            }

            /// The crate that has it, without `ringfence-`.
            #[must_use]
            pub const fn home(self) -> &'static str {
                match self { $($(Self::$variant => stringify!($home),)*)* }
            }

            /// What goes wrong, in a sentence.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $($(Self::$variant => $what,)*)* }
            }
        }
    };
}

bugs! {
    core:
        FreshTtlInEveryTerm "fresh-ttl-in-every-term"
            "Each change of leader gives a silent session one more TTL, so it may live for ever."
        TermStartIgnored "term-start-ignored"
            "A new leader counts from the last keep-alive, though none could be logged meanwhile."
        EndsAMomentEarly "ends-a-moment-early"
            "A session ends in the last millisecond of its TTL instead of after it."
        DeadlineOverflows "deadline-overflows"
            "A deadline behind the end of time comes out before its beginning."
        LateRequestFirst "late-request-first"
            "A request of a session that is due is carried out before the session is ended."
        LateRenewFirst "late-renew-first"
            "A keep-alive brings back a session whose time was over before it came."
        WallTimeDecides "wall-time-decides"
            "Deadlines are judged by the leader's wall clock."
        TimeRunsBack "time-runs-back"
            "The reading of a new leader sets cluster time back."
        GrantsWhileEnding "grants-while-ending"
            "A lease goes to a waiter that the same entry is about to end."
        TokenPerLease "token-per-lease"
            "Each lease counts its tokens by itself."
        TermDoesNotRaiseTokens "term-does-not-raise-tokens"
            "Terms do not raise the counter, so a cluster that was rolled back repeats tokens."
        FloorForgottenForGood "floor-forgotten-for-good"
            "The floor of a forgotten name is not kept with the others."
        MineIsGrantedAgain "mine-is-granted-again"
            "A second acquire of the same session gets the same grant, and both go to work."
        ReleaseByName "release-by-name"
            "A release ends whatever grant the lease has, whoever holds it."
        RevokeByName "revoke-by-name"
            "A repeated revoke hits the next holder."
        RevokeGrantsAtOnce "revoke-grants-at-once"
            "A revoked lease is granted while its old holder still believes."
        LossNotTold "loss-not-told"
            "A holder whose grant was revoked never hears of it."
        LockDelayDropped "lock-delay-dropped"
            "After an expiry nobody waits for the lock-delay."
        LockDelayWakesNobody "lock-delay-wakes-nobody"
            "When a lock-delay is over the queue is not looked at."
        QuietTimeIgnored "quiet-time-ignored"
            "A restored cluster grants before the holders of the lost one can have stopped."
        NewestServedFirst "newest-served-first"
            "The last one in the queue is served first."
        GhostWaiter "ghost-waiter"
            "The places of a session that ended stay in their queues."
        TransferIgnoresTarget "transfer-ignores-target"
            "A transfer goes to the head of the queue, whoever was named."
        OpenRepeatedOpensAgain "open-repeated-opens-again"
            "A repeated Open makes a second session."
        OpenIdForgotten "open-id-forgotten"
            "The id of an Open is forgotten with its session, so a late duplicate opens another."
        RetryDoneTwice "retry-done-twice"
            "A retry under the same number is carried out again."
        RefusalsNotRemembered "refusals-not-remembered"
            "A refused acquire that is repeated later is granted to nobody who waits for it."
        CancelBeforeItsRequest "cancel-before-its-request"
            "A cancel that overtakes its request has no effect on it."
        EndedToldAsHeld "ended-told-as-held"
            "A repeated acquire is told of a grant that has ended as if it were held."
        AnswersUnbounded "answers-unbounded"
            "A session that confirms nothing is remembered without a limit."
        WaitsNotCounted "waits-not-counted"
            "Places in queues do not count against a session's limit."
        SecretNotChecked "secret-not-checked"
            "Whoever knows a session's number may act for it."
        AnswersLostInSnapshot "answers-lost-in-snapshot"
            "A snapshot leaves out what sessions remember of their requests."
        CounterLostInSnapshot "counter-lost-in-snapshot"
            "A snapshot keeps the last token and not what terms have raised the counter to."
        QueueOrderLostInSnapshot "queue-order-lost-in-snapshot"
            "Leases that wait to be served come back from a snapshot in another order.";
    proto:
        UnknownFieldsPassedOver "unknown-fields-passed-over"
            "A command of a newer version is applied without what this version does not know."
        NoWaitIsZero "no-wait-is-zero"
            "An acquire that does not wait is written like one that waits for no time."
        LossesLostInRecord "losses-lost-in-record"
            "The record of a session leaves out the losses that its client has not heard of.";
    wal:
        AckBeforeSync "ack-before-sync"
            "What was written is acknowledged before it is on the disk."
        SyncErrorBelieved "sync-error-believed"
            "The log goes on after a sync that failed."
        DamageTakenForTornTail "damage-taken-for-torn-tail"
            "An unreadable batch ends the log, though others follow it."
        TornTailLeft "torn-tail-left"
            "What a crash left half written stays behind the end of the log."
        DirectoryNotSynced "directory-not-synced"
            "The name of a new segment is not made durable before it is written to.";
    guard:
        AnyLeaseAdmitted "any-lease-admitted"
            "A guard compares tokens and does not look at the name of the lease."
        EqualMarkNotWritten "equal-mark-not-written"
            "A transaction whose token equals the mark reads it and does not write it."
        AdvanceLeftToFirstWrite "advance-left-to-first-write"
            "A new holder reads before the old one is fenced off."
        MarkOfOneConnection "mark-of-one-connection"
            "The mark lives in a table that goes with the connection."
        FloorLowersMark "floor-lowers-mark"
            "A floor that comes late takes the mark back."
        EffectAfterTheCheck "effect-after-the-check"
            "The lock is given back between the check and the effect."
        FenceOptionalAtTheDoor "fence-optional-at-the-door"
            "A request without a fence passes a route that is guarded by a lease."
        UnknownTokenAdmitted "unknown-token-admitted"
            "A follower of floors admits a token that it was never told of.";
    raft:
        ReadingRebased "reading-rebased"
            "The leader's reading starts anew at each applied entry."
        ReadingUncapped "reading-uncapped"
            "The leader's reading runs on while nothing can commit."
        TermResumed "term-resumed"
            "A leader that starts again goes on in its old term."
        KeepAliveAckedFromMemory "keep-alive-acked-from-memory"
            "A keep-alive is acknowledged before the entry that logs it is applied."
        ReadWithoutMajority "read-without-majority"
            "A leader answers reads without asking whether it still leads."
        ReadBeforeApplied "read-before-applied"
            "A read asks how far the log is and does not wait until the node has got there."
        ReadingFromTheElection "reading-from-the-election"
            "A leader's reading begins when it is elected and not when its first entry is applied."
        ReadingOfTheOwnClock "reading-of-the-own-clock"
            "A new leader goes on at what its own clock shows and not where the cluster stands."
        WallReadInApply "wall-read-in-apply"
            "The wall time of an entry is that of whoever applies it."
        AckedWhenQueued "acked-when-queued"
            "An append is acknowledged when it is queued, before it is on the disk."
        VoteNotAwaited "vote-not-awaited"
            "A vote is given before it is on the disk."
        PurgedForgotten "purged-forgotten"
            "A node that starts again does not know up to where its log was purged."
        SnapshotOfTwoMoments "snapshot-of-two-moments"
            "The index of a snapshot is read when it is asked for, and its state when it is written."
        SnapshotNotSynced "snapshot-not-synced"
            "A snapshot gets its name before its content is on the disk."
        SnapshotNameNotSynced "snapshot-name-not-synced"
            "The name of a new snapshot is not made durable before the log is purged."
        IdentityNotSynced "identity-not-synced"
            "The identity of a node gets its name before its content is on the disk."
        AnyIncarnation "any-incarnation"
            "A node whose disk was emptied speaks and votes as the one it was."
        DiscardedIsNotDone "discarded-is-not-done"
            "An entry that may still commit is told as not done."
        WatchSkipsOne "watch-skips-one"
            "A watch that resumes loses the first event."
        WatchHidesItsGap "watch-hides-its-gap"
            "A watch that has fallen behind goes on without a word about what it missed.";
    client:
        WindowFromTheAnswer "window-from-the-answer"
            "Belief is counted from the answer and not from the request."
        WindowIsTheTtl "window-is-the-ttl"
            "Belief lasts for the whole TTL, whatever clocks do."
        LateAnswerRevives "late-answer-revives"
            "An answer that comes after the window has passed brings belief back."
        UnknownIsFinal "unknown-is-final"
            "A request whose outcome is unknown is given up instead of repeated."
        LossBeforeItsGrantForgotten "loss-before-its-grant-forgotten"
            "A loss that overtakes the answer with its grant is forgotten."
        StuckWorkRenewed "stuck-work-renewed"
            "A session is kept alive although its work has promised signs of life and gives none."
        BeliefOutlivesRelease "belief-outlives-release"
            "Belief in a grant ends when its release is answered, not before it leaves."
        CrossedGrantKept "crossed-grant-kept"
            "A grant that crosses its cancel is neither used nor released.";
}
