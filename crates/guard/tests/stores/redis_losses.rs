//! What Redis itself can lose, and what a guard can do about it.

use redis::aio::MultiplexedConnection;
use ringfence_guard::redis::{Changes, Hazard, RedisError, RedisGuard};

use crate::servers::Disk;
use crate::servers::redis::Redis;
use crate::{fence, run_to_end};

fn guard() -> RedisGuard {
    RedisGuard::new(fence("a#1").name)
}

async fn set(redis: &mut MultiplexedConnection, name: &str, value: &str) {
    let mut set = redis::cmd("CONFIG");
    let set = set.arg("SET").arg(name).arg(value);
    set.query_async::<()>(redis).await.unwrap();
}

#[test]
fn a_server_that_syncs_each_write_keeps_the_mark_when_it_is_killed() {
    run_to_end(async {
        let Some(mut server) = Redis::start(Disk::Memory, &[]) else {
            return;
        };
        let mut redis = server.connect().await;
        let hazards = RedisGuard::hazards(&mut redis).await.unwrap();
        assert_eq!(hazards, []);
        guard().advance(&mut redis, &fence("a#9")).await.unwrap();
        server.crash();
        let mut redis = server.connect().await;
        assert!(guard().advance(&mut redis, &fence("a#8")).await.is_err());
    });
}

#[test]
fn a_server_without_a_file_forgets_the_mark_and_a_floor_puts_it_back() {
    run_to_end(async {
        let Some(mut server) = Redis::start(Disk::Memory, &["--appendonly", "no"]) else {
            return;
        };
        let mut redis = server.connect().await;
        let hazards = RedisGuard::hazards(&mut redis).await.unwrap();
        assert_eq!(hazards, [Hazard::NoAppendOnlyFile]);
        guard().advance(&mut redis, &fence("a#9")).await.unwrap();
        server.crash();

        // The stale holder is welcome again: nothing in the server knows better.
        let mut redis = server.connect().await;
        guard().advance(&mut redis, &fence("a#8")).await.unwrap();

        guard()
            .advance_to(&mut redis, fence("a#9").token)
            .await
            .unwrap();
        assert!(guard().advance(&mut redis, &fence("a#8")).await.is_err());
    });
}

#[test]
fn each_hazard_is_found() {
    run_to_end(async {
        let Some(server) = Redis::start(Disk::Memory, &[]) else {
            return;
        };
        let mut redis = server.connect().await;
        set(&mut redis, "maxmemory-policy", "allkeys-lru").await;
        // Without a limit nothing is ever evicted.
        assert_eq!(RedisGuard::hazards(&mut redis).await.unwrap(), []);
        set(&mut redis, "no-appendfsync-on-rewrite", "yes").await;
        assert_eq!(
            RedisGuard::hazards(&mut redis).await.unwrap(),
            [Hazard::SyncsLaterOnRewrite]
        );
        set(&mut redis, "no-appendfsync-on-rewrite", "no").await;
        set(&mut redis, "maxmemory", "1gb").await;
        set(&mut redis, "appendfsync", "everysec").await;
        let policy = |policy: &str| policy.to_owned();
        assert_eq!(
            RedisGuard::hazards(&mut redis).await.unwrap(),
            [
                Hazard::Evicts {
                    policy: policy("allkeys-lru")
                },
                Hazard::SyncsLater {
                    policy: policy("everysec")
                },
            ]
        );
    });
}

#[test]
fn a_full_server_evicts_the_mark_under_allkeys_and_not_under_volatile() {
    run_to_end(async {
        let Some(server) = Redis::start(Disk::Memory, &[]) else {
            return;
        };
        for (policy, kept) in [("allkeys-random", false), ("volatile-random", true)] {
            let mut redis = server.connect().await;
            redis::cmd("FLUSHALL")
                .query_async::<()>(&mut redis)
                .await
                .unwrap();
            set(&mut redis, "maxmemory", "0").await;
            guard().advance(&mut redis, &fence("a#9")).await.unwrap();
            for filler in 0..2_000 {
                let mut fill = redis::cmd("SET");
                fill.arg(format!("filler:{filler}")).arg("x".repeat(512));
                fill.arg("EX").arg(10_000);
                fill.query_async::<()>(&mut redis).await.unwrap();
            }
            set(&mut redis, "maxmemory-policy", policy).await;
            // Full at once; the server evicts until it fits, or has nothing left that it may.
            set(&mut redis, "maxmemory", "1").await;
            loop {
                let size = redis::cmd("DBSIZE").query_async::<u64>(&mut redis).await;
                let left = size.unwrap();
                if left <= u64::from(kept) {
                    break;
                }
                // An eviction is part of a command that may need memory.
                let touch: redis::RedisResult<()> = redis::cmd("SET")
                    .arg("y")
                    .arg("y")
                    .query_async(&mut redis)
                    .await;
                drop(touch);
            }
            set(&mut redis, "maxmemory", "0").await;
            let stale = guard().advance(&mut redis, &fence("a#8")).await;
            assert_eq!(stale.is_err(), kept, "{policy}");
        }
    });
}

#[test]
fn a_full_server_that_evicts_nothing_refuses_and_changes_nothing() {
    run_to_end(async {
        let Some(server) = Redis::start(Disk::Memory, &[]) else {
            return;
        };
        let mut redis = server.connect().await;
        guard().advance(&mut redis, &fence("a#8")).await.unwrap();
        set(&mut redis, "maxmemory", "1").await;
        let change = Changes::new().set(guard().key("n"), "1");
        let error = guard().admit(&mut redis, &fence("a#9"), change).await;
        let error = error.unwrap_err();
        assert!(matches!(error, RedisError::Server { .. }), "{error:?}");
        let mark = guard().mark(&mut redis).await.unwrap();
        assert_eq!(mark, Some(fence("a#8").token));
    });
}

#[test]
fn a_replica_admits_no_write() {
    run_to_end(async {
        let Some(server) = Redis::start(Disk::Memory, &[]) else {
            return;
        };
        let mut redis = server.connect().await;
        // Of a primary that does not answer.
        let follow = redis::cmd("REPLICAOF").arg("127.0.0.1").arg(1).to_owned();
        follow.query_async::<()>(&mut redis).await.unwrap();
        let error = guard()
            .advance(&mut redis, &fence("a#9"))
            .await
            .unwrap_err();
        assert!(matches!(error, RedisError::Server { .. }), "{error:?}");
        let hazards = RedisGuard::hazards(&mut redis).await.unwrap();
        assert_eq!(hazards, [Hazard::IsReplica]);
    });
}

#[test]
fn a_server_that_is_gone_leaves_the_outcome_unknown() {
    run_to_end(async {
        let Some(server) = Redis::start(Disk::Memory, &[]) else {
            return;
        };
        let mut redis = server.connect().await;
        drop(server);
        let error = guard()
            .advance(&mut redis, &fence("a#9"))
            .await
            .unwrap_err();
        assert!(matches!(error, RedisError::Unknown { .. }), "{error:?}");
    });
}
