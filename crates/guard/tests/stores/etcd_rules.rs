//! What the guard in etcd promises beyond the suite.

use ringfence_guard::etcd::{
    Answer, Branch, Compare, EtcdClient, EtcdError, EtcdGuard, EtcdSeal, OPERATIONS_MAX, Operation,
    Txn,
};
use ringfence_guard::{Ceiling, Fence, FencingToken, Refused, SealAnswer, Sealable as _};

use crate::servers::Disk;
use crate::servers::etcd::Etcd;
use crate::{fence, run_to_end};

/// Runs a test on an empty server.
fn on_a_server(test: impl AsyncFnOnce(EtcdClient)) {
    run_to_end(async {
        if let Some(server) = Etcd::start(Disk::Memory, &[]) {
            test(server.client()).await;
        }
    });
}

fn guard() -> EtcdGuard {
    EtcdGuard::new(fence("a#1").name)
}

/// Writes a key past the guard.
async fn write(etcd: &mut EtcdClient, key: &str, value: &str) {
    etcd.past_the_guard(Txn::new().put(key, value))
        .await
        .unwrap();
}

async fn value(etcd: &mut EtcdClient, key: &str) -> Option<String> {
    let value = etcd.get(key).await.unwrap();
    value.map(|value| String::from_utf8(value).unwrap())
}

#[test]
fn the_callers_second_branch_is_told_from_a_stale_fence() {
    on_a_server(async |mut etcd| {
        let guard = guard();
        let txn = |expected: &str| {
            Txn::new()
                .when(Compare::value("n", expected))
                .put("n", "2")
                .otherwise(Operation::get("n"))
                .otherwise(Operation::put("missed", "1"))
        };
        let first = Txn::new().when(Compare::absent("n")).put("n", "1");
        let written = guard.admit(&mut etcd, &fence("a#9"), first).await.unwrap();
        assert_eq!(written.branch, Branch::Then);
        assert_eq!(written.answers, [Answer::Put]);
        assert!(written.revision > 0);

        let missed = guard.admit(&mut etcd, &fence("a#10"), txn("7")).await;
        let missed = missed.unwrap();
        assert_eq!(missed.branch, Branch::Otherwise);
        let found = Answer::Value(Some(b"1".to_vec()));
        assert_eq!(missed.answers, [found, Answer::Put]);
        assert_eq!(guard.mark(&mut etcd).await.unwrap(), FencingToken::new(10));

        let gone = Txn::new().delete("missed");
        let gone = guard.admit(&mut etcd, &fence("a#10"), gone).await.unwrap();
        assert_eq!(gone.answers, [Answer::Deleted(1)]);

        // The stale one takes neither branch, whether its comparison holds or not.
        for expected in ["1", "7"] {
            let error = guard.admit(&mut etcd, &fence("a#9"), txn(expected)).await;
            let error = error.unwrap_err();
            assert!(
                matches!(error.refused(), Some(Refused::StaleToken { mark, .. }) if mark.get() == 10),
                "{error:?}"
            );
        }
        assert_eq!(value(&mut etcd, "n").await.as_deref(), Some("1"));
        assert_eq!(value(&mut etcd, "missed").await, None);
    });
}

#[test]
fn tokens_that_a_double_cannot_tell_apart_are_told_apart_in_etcd() {
    on_a_server(async |mut etcd| {
        let guard = guard().ceiling(Ceiling::Off);
        let at = |token: u64| fence(&format!("a#{token}"));
        let double = 1_u64 << 53;
        for mark in [double, double + 1, (1 << 60) + 1, FencingToken::MAX] {
            guard.advance(&mut etcd, &at(mark)).await.unwrap();
            guard.advance(&mut etcd, &at(mark)).await.unwrap();
            for older in [mark - 1, mark - 1_000_000_000, 1] {
                let refused = guard.advance(&mut etcd, &at(older)).await;
                assert!(refused.is_err(), "{older} passed {mark}");
            }
        }
    });
}

#[test]
fn a_token_above_the_ceiling_raises_no_mark_and_the_mark_itself_passes() {
    on_a_server(async |mut etcd| {
        let guard = guard();
        let offered = fence("a#4611686018427387904");
        let txn = || Txn::new().put("n", "1");
        let error = guard.admit(&mut etcd, &offered, txn()).await.unwrap_err();
        assert_eq!(error.refused().unwrap().reason(), "TOKEN_TOO_HIGH");
        assert_eq!(guard.mark(&mut etcd).await.unwrap(), None);
        guard.advance_to(&mut etcd, offered.token).await.unwrap();
        let written = guard.admit(&mut etcd, &offered, txn()).await.unwrap();
        assert_eq!(written.admitted.token(), offered.token);
    });
}

#[test]
fn a_fence_of_another_lease_is_refused() {
    on_a_server(async |mut etcd| {
        for refused in [
            guard().advance(&mut etcd, &fence("b#9")).await.map(drop),
            guard()
                .admit(&mut etcd, &fence("b#9"), Txn::new())
                .await
                .map(drop),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(error.refused().unwrap().reason(), "WRONG_LEASE");
        }
    });
}

#[test]
fn an_operation_on_the_mark_is_refused_before_it_is_sent() {
    on_a_server(async |mut etcd| {
        let guard = guard();
        guard.advance(&mut etcd, &fence("a#8")).await.unwrap();
        let key = guard.mark_key().to_owned();
        for operation in [
            Operation::put(&*key, "1"),
            Operation::delete(&*key),
            Operation::delete_range("ringfence/", "ringfence0"),
            Operation::delete_range("a", [0]),
            Operation::delete_range([0], [0]),
            // Marks of other leases.
            Operation::put("ringfence/marks/b", "1"),
            Operation::delete("ringfence/marks/b"),
            Operation::delete_range(format!("{key}\0"), "z"),
            Operation::delete_range("ringfence/", key.as_bytes()),
        ] {
            for txn in [
                Txn::new().then(operation.clone()),
                Txn::new().otherwise(operation.clone()),
            ] {
                let error = guard.admit(&mut etcd, &fence("a#8"), txn).await;
                let error = error.unwrap_err();
                assert!(matches!(error, EtcdError::MarkIsNoData), "{error:?}");
            }
        }
        // Beside them, before them and behind them.
        for operation in [
            Operation::put("ringfence/mark", "1"),
            Operation::delete_range("ringfence/", "ringfence/marks/"),
            Operation::delete_range("ringfence/marks0", "z"),
            Operation::get(&*key),
        ] {
            let txn = Txn::new().then(operation);
            let written = guard.admit(&mut etcd, &fence("a#8"), txn).await.unwrap();
            assert_eq!(written.branch, Branch::Then);
        }
        assert_eq!(guard.mark(&mut etcd).await.unwrap(), FencingToken::new(8));
    });
}

#[test]
fn a_transaction_of_the_most_operations_passes_and_one_more_is_refused() {
    on_a_server(async |mut etcd| {
        let guard = guard();
        let many = |count: usize| {
            (0..count).fold(Txn::new(), |txn, at| {
                txn.when(Compare::absent(format!("absent/{at}")))
                    .put(format!("n/{at}"), "1")
                    .otherwise(Operation::get("n"))
            })
        };
        let most = many(OPERATIONS_MAX);
        let written = guard.admit(&mut etcd, &fence("a#8"), most).await.unwrap();
        assert_eq!(written.answers.len(), OPERATIONS_MAX);
        let above = many(OPERATIONS_MAX + 1);
        let error = guard.admit(&mut etcd, &fence("a#8"), above).await;
        let error = error.unwrap_err();
        assert!(matches!(error, EtcdError::TooMany { .. }), "{error:?}");
    });
}

#[test]
fn what_etcd_refuses_has_written_nothing() {
    on_a_server(async |mut etcd| {
        let guard = guard();
        guard.advance(&mut etcd, &fence("a#8")).await.unwrap();
        for txn in [
            // The same key twice, a lease that there is not, an empty key.
            Txn::new().put("n", "1").put("n", "2"),
            Txn::new().then(Operation::put_with_lease("n", "1", 7)),
            Txn::new().put("", "1"),
        ] {
            let error = guard.admit(&mut etcd, &fence("a#9"), txn).await;
            let error = error.unwrap_err();
            assert!(matches!(error, EtcdError::Server { .. }), "{error:?}");
            assert_eq!(value(&mut etcd, "n").await, None);
            assert_eq!(guard.mark(&mut etcd).await.unwrap(), FencingToken::new(8));
        }
    });
}

#[test]
fn a_damaged_mark_is_reported_and_a_floor_repairs_it_in_etcd() {
    on_a_server(async |mut etcd| {
        let guard = guard();
        let (name, key) = (fence("a#1").name, guard.mark_key().to_owned());
        let text = |token: &str| format!("ringfence-mark 1\nlease {name}\nmark {token}\n");
        for junk in [
            "junk".to_owned(),
            String::new(),
            "9".to_owned(),
            text("0000000000000000000"),
            text("9223372036854775808"),
            text("9"),
            text("0000000000000000009") + "more\n",
        ] {
            write(&mut etcd, &key, &junk).await;
            for failed in [
                guard.advance(&mut etcd, &fence("a#8")).await.map(drop),
                guard
                    .admit(&mut etcd, &fence("a#8"), Txn::new().put("n", "1"))
                    .await
                    .map(drop),
                guard.mark(&mut etcd).await.map(drop),
            ] {
                let error = failed.unwrap_err();
                assert!(matches!(error, EtcdError::DamagedMark { .. }), "{error:?}");
            }
        }
        assert_eq!(value(&mut etcd, "n").await, None);
        guard
            .advance_to(&mut etcd, fence("a#9").token)
            .await
            .unwrap();
        assert!(guard.advance(&mut etcd, &fence("a#8")).await.is_err());
        guard.advance(&mut etcd, &fence("a#9")).await.unwrap();
        // A floor that is lower changes nothing.
        guard
            .advance_to(&mut etcd, fence("a#3").token)
            .await
            .unwrap();
        assert_eq!(guard.mark(&mut etcd).await.unwrap(), FencingToken::new(9));
    });
}

#[test]
fn a_newer_version_and_the_mark_of_another_lease_are_left_alone() {
    on_a_server(async |mut etcd| {
        let guard = guard();
        let key = guard.mark_key().to_owned();
        for text in [
            "ringfence-mark 2\nx",
            "ringfence-mark 1\nlease b\nmark 0000000000000000003\n",
        ] {
            write(&mut etcd, &key, text).await;
            let floor = guard.advance_to(&mut etcd, fence("a#9").token).await;
            let advanced = guard.advance(&mut etcd, &fence("a#9")).await.map(drop);
            for failed in [floor, advanced] {
                let error = failed.unwrap_err();
                assert!(
                    matches!(
                        error,
                        EtcdError::OtherVersion { .. } | EtcdError::OtherLease { .. }
                    ),
                    "{error:?}"
                );
            }
            assert_eq!(value(&mut etcd, &key).await.as_deref(), Some(text));
        }
    });
}

#[test]
fn a_seal_is_durable_and_a_stale_one_is_refused() {
    on_a_server(async |etcd| {
        let seal = EtcdSeal::new(guard(), etcd.clone());
        assert_eq!(seal.label(), "etcd, ringfence/marks/a");
        assert_eq!(seal.seal(&fence("a#9")).await, SealAnswer::Durable);
        let stale = seal.seal(&fence("a#8")).await;
        let refused = matches!(stale, SealAnswer::Refused(Refused::StaleToken { .. }));
        assert!(refused, "{stale:?}");
    });
}

#[test]
fn a_server_that_is_gone_leaves_the_outcome_open() {
    run_to_end(async {
        let Some(server) = Etcd::start(Disk::Memory, &[]) else {
            return;
        };
        let mut etcd = server.client();
        guard().advance(&mut etcd, &fence("a#8")).await.unwrap();
        drop(server);
        let txn = Txn::new().put("n", "1");
        let error = guard().admit(&mut etcd, &fence("a#8"), txn).await;
        let error = error.unwrap_err();
        assert!(matches!(error, EtcdError::Unknown { .. }), "{error:?}");
        let seal = EtcdSeal::new(guard(), etcd);
        let answer = seal.seal(&fence("a#9")).await;
        assert!(matches!(answer, SealAnswer::Failed { .. }), "{answer:?}");
    });
}

#[test]
fn holders_that_raise_the_mark_at_the_same_time_all_get_an_answer() {
    on_a_server(async |etcd| {
        let tasks: Vec<_> = (1..=16_u64)
            .map(|token| {
                let (mut etcd, guard) = (etcd.clone(), guard());
                let fence = Fence::new(guard.name().clone(), FencingToken::new(token).unwrap());
                let txn = Txn::new().put("n", token.to_string());
                tokio::spawn(async move { guard.admit(&mut etcd, &fence, txn).await.map(drop) })
            })
            .collect();
        for task in tasks {
            match task.await.unwrap() {
                Ok(()) | Err(EtcdError::Refused(Refused::StaleToken { .. })) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        let mut etcd = etcd;
        assert_eq!(
            guard().mark(&mut etcd).await.unwrap(),
            FencingToken::new(16)
        );
        assert_eq!(value(&mut etcd, "n").await.as_deref(), Some("16"));
    });
}
