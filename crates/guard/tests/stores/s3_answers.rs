//! What the guard in S3 makes of answers that are odd, late or missing, and how many requests it sends.

use ringfence_guard::s3::S3Error;

use crate::s3_rules::{KEY, guard, line, put};
use crate::servers::odd_s3::{OddS3, Oddity};
use crate::{fence, run_to_end};

#[test]
fn a_call_makes_as_many_requests_as_the_table_says() {
    run_to_end(async {
        let server = OddS3::start(Oddity::None).await;
        let store = server.store();
        let (get, put_) = (format!("GET {KEY}"), format!("PUT {KEY}"));
        let (get, put_) = (get.as_str(), put_.as_str());
        let ours = guard(&store);
        let theirs = guard(&store);

        ours.advance(&fence("a#8")).await.unwrap();
        assert_eq!(server.requests(), [get, put_], "a new holder");
        ours.advance(&fence("a#8")).await.unwrap();
        assert_eq!(server.requests(), [get], "again");
        ours.admit(&fence("a#8"), put("1")).await.unwrap();
        ours.admit(&fence("a#8"), put("2")).await.unwrap();
        assert_eq!(server.requests(), [put_, put_], "the last writer");
        ours.mark().await.unwrap();
        ours.read().await.unwrap();
        assert_eq!(server.requests(), [get, get]);
        let same = |_| Ok::<_, S3Error>(put("3"));
        ours.write(&fence("a#8"), same).await.unwrap();
        assert_eq!(server.requests(), [get, put_], "made of the body");
        theirs.admit(&fence("a#9"), put("4")).await.unwrap();
        assert_eq!(server.requests(), [get, put_], "another writer");
        ours.admit(&fence("a#9"), put("5")).await.unwrap();
        assert_eq!(server.requests(), [put_, get, put_], "behind another");
        theirs.admit(&fence("a#8"), put("6")).await.unwrap_err();
        assert_eq!(server.requests(), [get], "a stale one");
    });
}

#[test]
fn a_server_that_ignores_conditions_is_refused_and_nothing_is_written() {
    run_to_end(async {
        for oddity in [Oddity::IgnoresIfNoneMatch, Oddity::IgnoresIfMatch] {
            let server = OddS3::start(oddity).await;
            let store = server.store();
            let fence = fence("a#9");
            for error in [
                store.check().await.unwrap_err(),
                guard(&store).admit(&fence, put("x")).await.unwrap_err(),
                guard(&store).advance(&fence).await.unwrap_err(),
                guard(&store).advance_to(fence.token).await.unwrap_err(),
            ] {
                assert!(
                    matches!(error, S3Error::Unfit { .. }),
                    "{oddity:?}: {error}"
                );
                assert!(error.to_string().starts_with("unfit store: "), "{error}");
            }
            assert_eq!(server.object(KEY), None);
        }
    });
}

#[test]
fn a_server_is_tried_once_and_a_probe_that_failed_is_repeated() {
    run_to_end(async {
        let server = OddS3::start(Oddity::None).await;
        let store = server.store().probe_key("dir/probe").unwrap();
        store.check().await.unwrap();
        let put = "PUT dir/probe";
        assert_eq!(server.requests(), [put, put, put], "with what is made");
        store.clone().check().await.unwrap();
        assert_eq!(server.requests(), [""; 0]);
        let store = server.store().probe_key("dir/probe").unwrap();
        server.turn(Oddity::Denies);
        let error = store.check().await.unwrap_err();
        assert!(matches!(error, S3Error::Store { .. }), "{error}");
        server.turn(Oddity::None);
        server.requests();
        store.check().await.unwrap();
        assert_eq!(server.requests(), [put, put], "with what is there");
    });
}

#[test]
fn without_strong_etags_no_object_is_written_over_and_none_that_was_written_is_denied() {
    run_to_end(async {
        for oddity in [Oddity::WeakEtags, Oddity::NoEtags] {
            let server = OddS3::start(Oddity::None).await;
            let store = server.store();
            store.check().await.unwrap();
            server.turn(oddity);
            // There is nothing yet, and the condition for that needs no ETag.
            guard(&store).admit(&fence("a#8"), put("x")).await.unwrap();
            let before = server.object(KEY);
            let error = guard(&store).admit(&fence("a#9"), put("y")).await;
            let error = error.unwrap_err();
            assert!(
                matches!(error, S3Error::Unfit { .. }),
                "{oddity:?}: {error}"
            );
            assert_eq!(server.object(KEY), before);
        }
        let server = OddS3::start(Oddity::None).await;
        let store = server.store();
        store.check().await.unwrap();
        server.turn(Oddity::NoEtagOfWrites);
        for body in ["x", "y"] {
            guard(&store).admit(&fence("a#8"), put(body)).await.unwrap();
            let read = guard(&store).read().await.unwrap().unwrap();
            assert_eq!(read, body);
        }
        assert_eq!(line(&server, "revision"), "revision 0000000000000000002");
    });
}

#[test]
fn a_conflict_is_repeated_and_says_nothing_against_the_server() {
    run_to_end(async {
        let server = OddS3::start(Oddity::Conflicts(3)).await;
        let store = server.store();
        let guard = guard(&store);
        guard.admit(&fence("a#8"), put("x")).await.unwrap();
        assert_eq!(line(&server, "revision"), "revision 0000000000000000001");

        server.turn(Oddity::Conflicts(u64::MAX));
        let error = guard.admit(&fence("a#8"), put("y")).await.unwrap_err();
        assert!(matches!(error, S3Error::Contended { .. }), "{error}");
        server.turn(Oddity::None);
        assert_eq!(guard.read().await.unwrap().unwrap(), "x");
        guard.admit(&fence("a#8"), put("z")).await.unwrap();
    });
}

#[test]
fn a_write_that_was_made_and_answered_with_an_error_is_made_once() {
    run_to_end(async {
        let server = OddS3::start(Oddity::None).await;
        let store = server.store();
        let guard = guard(&store);
        store.check().await.unwrap();
        for (oddity, revision) in [
            (Oddity::FailsAfterwards(1), 1),
            (Oddity::FailsAfterwards(u64::MAX), 2),
            (Oddity::WritesTwice, 3),
            (Oddity::FailsBefore(1), 4),
            (Oddity::FailsBefore(3), 5),
        ] {
            server.turn(oddity);
            guard.admit(&fence("a#8"), put("x")).await.unwrap();
            let expected = format!("revision {revision:019}");
            assert_eq!(line(&server, "revision"), expected, "{oddity:?}");
        }
    });
}

#[test]
fn a_write_without_an_answer_that_is_not_found_is_unknown_and_a_refused_one_is_not() {
    run_to_end(async {
        let server = OddS3::start(Oddity::None).await;
        let store = server.store();
        let guard = guard(&store);
        guard.advance(&fence("a#8")).await.unwrap();
        server.turn(Oddity::FailsBefore(u64::MAX));
        let error = guard.admit(&fence("a#8"), put("x")).await.unwrap_err();
        assert!(matches!(error, S3Error::Unknown { .. }), "{error}");
        server.turn(Oddity::Denies);
        let error = guard.admit(&fence("a#8"), put("x")).await.unwrap_err();
        assert!(matches!(error, S3Error::Store { .. }), "{error}");
        server.turn(Oddity::None);
        guard.admit(&fence("a#8"), put("y")).await.unwrap();
        assert_eq!(line(&server, "revision"), "revision 0000000000000000002");
    });
}
