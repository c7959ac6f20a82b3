//! What the guard in Redis promises beyond the suite.

use redis::AsyncTypedCommands as _;
use redis::aio::MultiplexedConnection;
use ringfence_guard::redis::{ARGUMENTS_MAX, CHANGES_MAX, Changes, RedisError, RedisGuard, SCRIPT};
use ringfence_guard::{Ceiling, FencingToken, Refused};

use crate::servers::Disk;
use crate::servers::redis::Redis;
use crate::{fence, run_to_end};

/// Runs a test on an empty server.
fn on_a_server(settings: &[&str], test: impl AsyncFnOnce(MultiplexedConnection)) {
    run_to_end(async {
        if let Some(server) = Redis::start(Disk::Memory, settings) {
            test(server.connect().await).await;
        }
    });
}

fn guard() -> RedisGuard {
    RedisGuard::new(fence("a#1").name)
}

#[test]
fn the_changes_of_a_write_are_made_in_order_and_answered() {
    on_a_server(&[], async |mut redis| {
        let guard = guard();
        let binary = [0_u8, 255, 13, 10];
        let changes = Changes::new()
            .set(guard.key("n"), "41")
            .command("INCRBY", guard.key("n"), ["1"])
            .command("GET", guard.key("n"), [""; 0])
            .command("HSET", guard.key("h"), [&b"f"[..], &binary])
            .delete(guard.key("n"));
        let answers: (String, i64, Option<i64>, i64, i64) = guard
            .query(&mut redis, &fence("a#8"), changes)
            .await
            .unwrap();
        assert_eq!(answers, ("OK".to_owned(), 42, Some(42), 1, 1));
        let stored: Vec<u8> = redis::cmd("HGET")
            .arg(guard.key("h"))
            .arg("f")
            .query_async(&mut redis)
            .await
            .unwrap();
        assert_eq!(stored, binary);
        assert_eq!(redis.get(guard.key("n")).await.unwrap(), None);
    });
}

#[test]
fn a_stale_write_changes_nothing() {
    on_a_server(&[], async |mut redis| {
        let guard = guard();
        let set = |value: &str| Changes::new().set(guard.key("n"), value);
        guard
            .admit(&mut redis, &fence("a#9"), set("new"))
            .await
            .unwrap();
        let error = guard.admit(&mut redis, &fence("a#8"), set("old")).await;
        let error = error.unwrap_err();
        let mark = FencingToken::new(9).unwrap();
        assert!(
            matches!(error.refused(), Some(Refused::StaleToken { mark: told, .. }) if *told == mark),
            "{error:?}"
        );
        let value = redis.get(guard.key("n")).await.unwrap();
        assert_eq!(value.as_deref(), Some("new"));
    });
}

#[test]
fn tokens_that_a_double_cannot_tell_apart_are_told_apart() {
    on_a_server(&[], async |mut redis| {
        let guard = guard().ceiling(Ceiling::Off);
        let at = |token: u64| fence(&format!("a#{token}"));
        let double = 1_u64 << 53;
        for mark in [double, double + 1, (1 << 60) + 1, FencingToken::MAX] {
            guard.advance(&mut redis, &at(mark)).await.unwrap();
            guard.advance(&mut redis, &at(mark)).await.unwrap();
            for older in [mark - 1, mark - 1_000_000_000, 1] {
                let refused = guard.advance(&mut redis, &at(older)).await;
                assert!(refused.is_err(), "{older} passed {mark}");
            }
        }
    });
}

#[test]
fn the_script_has_a_ceiling_for_callers_that_have_none() {
    on_a_server(&[], async |mut redis| {
        let script = redis::Script::new(SCRIPT);
        let guard = guard();
        let offered = fence("a#4611686018427387904");
        let token = format!("{:019}", offered.token.get());
        let mut call = script.key(guard.mark_key());
        let told = call.arg(&token).arg("admit").invoke_async::<()>(&mut redis);
        let told = told.await.unwrap_err();
        assert_eq!(told.code(), Some("TOKEN_TOO_HIGH"));
        let message = format!("TOKEN_TOO_HIGH {}", told.detail().unwrap());
        let refused = Refused::from_message(&offered, &message).unwrap();
        let Refused::TokenTooHigh { ceiling, .. } = refused else {
            panic!("{refused}");
        };
        let ours = Ceiling::Clock.token().get();
        // The same machine, a minute at most between the two looks at its clock.
        assert!(ours.abs_diff(ceiling.get()) <= 60 << FencingToken::CLOCK_SHIFT);
        assert_eq!(guard.mark(&mut redis).await.unwrap(), None);

        let mut judged = script.key(guard.mark_key());
        judged.arg(&token).arg("judged");
        judged.invoke_async::<()>(&mut redis).await.unwrap();
        // The mark is there, so that its token is one like any other.
        call.invoke_async::<()>(&mut redis).await.unwrap();
        guard.advance(&mut redis, &offered).await.unwrap();
    });
}

#[test]
fn a_server_that_has_forgotten_the_script_is_given_it_again() {
    on_a_server(&[], async |mut redis| {
        let guard = guard();
        for token in ["a#8", "a#9"] {
            let flush = redis::cmd("SCRIPT").arg("FLUSH").to_owned();
            flush.query_async::<()>(&mut redis).await.unwrap();
            guard.advance(&mut redis, &fence(token)).await.unwrap();
        }
        assert_eq!(guard.mark(&mut redis).await.unwrap(), FencingToken::new(9));
    });
}

#[test]
fn a_key_of_another_slot_is_refused_before_it_is_sent() {
    on_a_server(&[], async |mut redis| {
        let guard = guard();
        for key in ["n", "{b}:n", "{a}n{b}x", "x{ab}"] {
            let error = guard
                .admit(&mut redis, &fence("a#8"), Changes::new().set(key, "1"))
                .await;
            match (key, error) {
                ("{a}n{b}x", Ok(_)) => {}
                (_, Err(error)) => {
                    assert!(matches!(error, RedisError::OtherTag { .. }), "{error:?}");
                    assert!(error.to_string().contains("`{a}:…`"), "{error}");
                }
                (_, Ok(_)) => panic!("{key} was sent"),
            }
        }
        let own = Changes::new().set(guard.mark_key(), "1");
        let error = guard
            .admit(&mut redis, &fence("a#8"), own)
            .await
            .unwrap_err();
        assert!(
            matches!(error, RedisError::MarkIsNoData { .. }),
            "{error:?}"
        );
        assert!(RedisGuard::with_tag(fence("a#1").name, "").is_err());
        assert!(RedisGuard::with_tag(fence("a#1").name, "x}y").is_err());
    });
}

#[test]
fn a_write_that_is_too_large_is_refused_before_it_is_sent() {
    on_a_server(&[], async |mut redis| {
        let guard = guard();
        let key = guard.key("n");
        let many = |count| (0..count).fold(Changes::new(), |all, _| all.set(&key, "1"));
        let push = |count| Changes::new().command("RPUSH", guard.key("l"), vec!["1"; count]);
        let fence = fence("a#8");
        for within in [many(CHANGES_MAX), push(ARGUMENTS_MAX)] {
            guard.admit(&mut redis, &fence, within).await.unwrap();
        }
        for beyond in [many(CHANGES_MAX + 1), push(ARGUMENTS_MAX + 1)] {
            let error = guard.admit(&mut redis, &fence, beyond).await.unwrap_err();
            assert!(matches!(error, RedisError::TooMany { .. }), "{error:?}");
        }
    });
}

#[test]
fn keys_that_exist_are_guarded_under_their_own_tag() {
    on_a_server(&[], async |mut redis| {
        let guard = RedisGuard::with_tag(fence("a#1").name, "balance").unwrap();
        let changes = Changes::new().set("balance", "1").set("{balance}:log", "2");
        guard
            .admit(&mut redis, &fence("a#8"), changes)
            .await
            .unwrap();
        assert_eq!(guard.mark_key(), "{balance}:ringfence-mark:a");
        // Another lease for the same keys has a mark of its own.
        let other = RedisGuard::with_tag(fence("b#1").name, "balance").unwrap();
        other.advance(&mut redis, &fence("b#3")).await.unwrap();
        assert_eq!(guard.mark(&mut redis).await.unwrap(), FencingToken::new(8));
    });
}

#[test]
fn mark_and_data_share_a_slot_of_a_cluster() {
    on_a_server(&["--cluster-enabled", "yes"], async |mut redis| {
        let mut own = redis::cmd("CLUSTER");
        own.arg("ADDSLOTS").arg((0..16_384).collect::<Vec<u16>>());
        own.query_async::<()>(&mut redis).await.unwrap();
        // It serves once it has looked at itself.
        while !redis::cmd("CLUSTER")
            .arg("INFO")
            .query_async::<String>(&mut redis)
            .await
            .unwrap()
            .contains("cluster_state:ok")
        {
            tokio::task::yield_now().await;
        }
        for guard in [
            guard(),
            RedisGuard::with_tag(fence("a#1").name, "x{y").unwrap(),
        ] {
            let changes = Changes::new()
                .set(guard.key("n"), "1")
                .set(guard.key("m"), "2");
            guard
                .admit(&mut redis, &fence("a#8"), changes)
                .await
                .unwrap();
        }
    });
}

#[test]
fn a_damaged_mark_is_told_and_stops_everybody() {
    on_a_server(&[], async |mut redis| {
        let guard = guard();
        for junk in [
            "",
            "9",
            "000000000000000000x",
            "0000000000000000000",
            "9223372036854775808",
            "00000000000000000009",
        ] {
            redis.set(guard.mark_key(), junk).await.unwrap();
            let change = Changes::new().set(guard.key("n"), "1");
            let error = guard.admit(&mut redis, &fence("a#8"), change).await;
            let error = error.unwrap_err();
            assert!(matches!(error, RedisError::DamagedMark { .. }), "{error:?}");
            let error = guard.mark(&mut redis).await.unwrap_err();
            assert!(matches!(error, RedisError::DamagedMark { .. }), "{error:?}");
        }
        assert_eq!(redis.get(guard.key("n")).await.unwrap(), None);
        redis.del(guard.mark_key()).await.unwrap();
        guard
            .advance_to(&mut redis, fence("a#9").token)
            .await
            .unwrap();
        assert!(guard.advance(&mut redis, &fence("a#8")).await.is_err());
    });
}

#[test]
fn a_change_that_fails_leaves_the_ones_before_it_as_documented() {
    on_a_server(&[], async |mut redis| {
        let guard = guard();
        let changes = Changes::new()
            .set(guard.key("n"), "text")
            .command("INCR", guard.key("n"), [""; 0])
            .set(guard.key("m"), "never");
        let error = guard.admit(&mut redis, &fence("a#8"), changes).await;
        let error = error.unwrap_err();
        assert!(matches!(error, RedisError::Server { .. }), "{error:?}");
        let value = redis.get(guard.key("n")).await.unwrap();
        assert_eq!(value.as_deref(), Some("text"));
        assert_eq!(redis.get(guard.key("m")).await.unwrap(), None);
        assert_eq!(guard.mark(&mut redis).await.unwrap(), FencingToken::new(8));
    });
}

#[test]
fn the_script_refuses_what_is_no_token() {
    on_a_server(&[], async |mut redis| {
        let script = redis::Script::new(ringfence_guard::redis::SCRIPT);
        for token in [
            "",
            "8",
            "0000000000000000000",
            "9223372036854775808",
            "-000000000000000008",
            "000000000000000008x",
        ] {
            let mut call = script.key("{a}:ringfence-mark:a");
            let call = call.arg(token).arg("admit");
            let error = call.invoke_async::<()>(&mut redis).await.unwrap_err();
            assert_eq!(error.code(), Some("MALFORMED_FENCE"), "{token}");
        }
    });
}

/// As a service in another language may send it.
#[test]
fn a_floor_makes_no_changes_of_a_stale_token() {
    on_a_server(&[], async |mut redis| {
        let guard = guard();
        guard.advance(&mut redis, &fence("a#9")).await.unwrap();
        let script = redis::Script::new(ringfence_guard::redis::SCRIPT);
        for (mode, token) in [("floor", 8), ("floor", 9), ("floor", 10), ("", 9), ("x", 8)] {
            let mut call = script.key(guard.mark_key());
            let call = call.key(guard.key("n")).arg(format!("{token:019}"));
            let call = call.arg(mode).arg("SET").arg(1).arg("stale");
            let error = call.invoke_async::<()>(&mut redis).await.unwrap_err();
            assert_eq!(error.code(), Some("MALFORMED_CALL"), "{mode} {token}");
            assert_eq!(redis.get(guard.key("n")).await.unwrap(), None);
        }
        assert_eq!(guard.mark(&mut redis).await.unwrap(), FencingToken::new(9));
    });
}

/// Neither as a key nor behind one, and also not with the script alone.
#[test]
fn a_change_cannot_take_the_mark_away() {
    on_a_server(&[], async |mut redis| {
        let guard = guard();
        guard.advance(&mut redis, &fence("a#9")).await.unwrap();
        let (mark, key) = (guard.mark_key(), guard.key("x"));
        let key = key.as_str();
        for (command, key, arguments) in [
            ("DEL", key, vec![mark]),
            ("UNLINK", key, vec![key, mark]),
            ("RENAME", key, vec![mark]),
            ("MSET", key, vec!["1", mark, "1"]),
            ("DEL", mark, vec![]),
        ] {
            let changes = Changes::new().set(guard.key("n"), "1");
            let changes = changes.command(command, key, &arguments);
            let refused = guard.admit(&mut redis, &fence("a#9"), changes).await;
            let refused = refused.unwrap_err();
            assert!(
                matches!(refused, RedisError::MarkIsNoData { .. }),
                "{command}: {refused:?}"
            );

            let script = redis::Script::new(ringfence_guard::redis::SCRIPT);
            let mut call = script.key(mark);
            let call = call.key(key).arg(format!("{:019}", 9)).arg("admit");
            let call = call.arg(command).arg(arguments.len()).arg(&arguments);
            let error = call.invoke_async::<()>(&mut redis).await.unwrap_err();
            assert_eq!(error.code(), Some("MARK_IS_NO_DATA"), "{command}");

            assert_eq!(redis.get(guard.key("n")).await.unwrap(), None);
            assert_eq!(guard.mark(&mut redis).await.unwrap(), FencingToken::new(9));
        }
    });
}
