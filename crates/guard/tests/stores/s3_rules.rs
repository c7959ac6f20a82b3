//! What the guard in S3 does beyond the suite: its requests, its refusals, its limits.

use object_store::path::Path;
use object_store::{
    Attribute, Attributes, ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions, PutPayload,
    UpdateVersion,
};
use ringfence_guard::s3::{BODY_MAX, Change, KEY_MAX, S3Error, S3Guard, S3Store};
use ringfence_guard::{Fence, Refused};

use crate::servers::Disk;
use crate::servers::odd_s3::{OddS3, Oddity};
use crate::servers::s3::S3;
use crate::{fence, run_to_end};

pub(crate) const KEY: &str = "dir/object";

pub(crate) fn guard(store: &S3Store) -> S3Guard {
    S3Guard::new(store, fence("a#1").name, KEY).unwrap()
}

pub(crate) fn put(body: &'static str) -> Change {
    Change::put(body)
}

/// The line of the object's head that begins with this word.
pub(crate) fn line(server: &OddS3, word: &str) -> String {
    let object = server.object(KEY).unwrap();
    let text = String::from_utf8(object.to_vec()).unwrap();
    let mut lines = text.lines();
    lines
        .find(|line| line.starts_with(word))
        .unwrap()
        .to_owned()
}

#[test]
fn an_etag_does_not_cover_metadata() {
    run_to_end(async {
        let Some(server) = S3::start(Disk::Memory) else {
            return;
        };
        let store = server.store();
        let key = Path::from(KEY);
        let put = async |mode: PutMode, mark: &'static str| {
            let mut attributes = Attributes::new();
            attributes.insert(Attribute::Metadata("mark".into()), mark.into());
            let options = PutOptions {
                mode,
                attributes,
                ..PutOptions::default()
            };
            let put = store.client().put_opts(&key, "equal".into(), options).await;
            put.unwrap().e_tag.unwrap()
        };
        // A stale holder reads mark 8 here; a newer one raises it, and the condition holds on.
        let read = put(PutMode::Create, "8").await;
        assert_eq!(put(PutMode::Overwrite, "9").await, read);
        let condition = UpdateVersion {
            e_tag: Some(read),
            version: None,
        };
        put(PutMode::Update(condition), "8").await;
        let now = store.client().get(&key).await.unwrap();
        let mark = now.attributes.get(&Attribute::Metadata("mark".into()));
        assert_eq!(mark.unwrap().as_ref(), "8", "the mark has fallen");
    });
}

#[test]
fn a_server_that_is_gone_has_written_nothing() {
    run_to_end(async {
        let Some(server) = S3::start(Disk::Memory) else {
            return;
        };
        let store = server.store();
        let guard = guard(&store);
        guard.advance(&fence("a#8")).await.unwrap();
        drop(server);
        let error = guard.admit(&fence("a#8"), put("x")).await.unwrap_err();
        assert!(matches!(error, S3Error::Store { .. }), "{error:?}");
    });
}

#[test]
fn what_a_guard_remembers_refuses_no_holder() {
    run_to_end(async {
        let server = OddS3::start(Oddity::None).await;
        let store = server.store();
        let ours = guard(&store);
        ours.admit(&fence("a#8"), put("x")).await.unwrap();
        let backup = server.object(KEY).unwrap();
        ours.admit(&fence("a#9"), put("y")).await.unwrap();
        // A restore without a floor: the mark is 8 again.
        server.put(KEY, backup);
        ours.admit(&fence("a#8"), put("z")).await.unwrap();
        ours.advance_to(fence("a#10").token).await.unwrap();
        let error = ours.admit(&fence("a#9"), put("y")).await.unwrap_err();
        let refused = Refused::StaleToken {
            name: fence("a#9").name,
            offered: fence("a#9").token,
            mark: fence("a#10").token,
        };
        assert_eq!(error.refused(), Some(&refused));
        assert!(refused.ends_the_grant());
        // A deletion by hand takes the mark along.
        server.delete(KEY);
        assert_eq!(ours.mark().await.unwrap(), None);
        ours.admit(&fence("a#1"), put("z")).await.unwrap();
    });
}

#[test]
fn objects_of_others_and_damaged_ones_are_refused_and_stay() {
    run_to_end(async {
        let server = OddS3::start(Oddity::None).await;
        let store = server.store();
        let guard = guard(&store);
        guard.admit(&fence("a#8"), put("body")).await.unwrap();
        let whole = String::from_utf8(server.object(KEY).unwrap().to_vec()).unwrap();
        let is = |wanted: fn(&S3Error) -> bool| wanted;
        let not_guarded = is(|error| matches!(error, S3Error::NotGuarded { .. }));
        let damaged = is(|error| matches!(error, S3Error::Damaged { .. }));
        let other = is(|error| matches!(error, S3Error::OtherLease { .. }));
        for (object, wanted) in [
            (String::new(), not_guarded),
            ("{\"some\": \"object\"}".to_owned(), not_guarded),
            (whole.clone() + "more", damaged),
            (whole[..whole.len() - 1].to_owned(), damaged),
            (whole.replace("mark 0", "mark x"), damaged),
            (whole.replace("lease a", "lease b"), other),
        ] {
            server.put(KEY, object.clone());
            let fence = fence("a#9");
            for error in [
                guard.admit(&fence, put("y")).await.unwrap_err(),
                guard.advance(&fence).await.unwrap_err(),
                guard.advance_to(fence.token).await.unwrap_err(),
                guard.mark().await.unwrap_err(),
                guard.read().await.unwrap_err(),
            ] {
                assert!(wanted(&error), "{object}: {error}");
            }
            assert_eq!(server.object(KEY).unwrap(), object);
        }
    });
}

#[test]
fn bodies_end_at_their_limit_and_the_longest_survives_an_advance() {
    run_to_end(async {
        let Some(server) = S3::start(Disk::Memory) else {
            return;
        };
        let store = server.store();
        let guard = guard(&store);
        let longest = vec![7; usize::try_from(BODY_MAX).unwrap()];
        let put = Change::put(longest.clone());
        guard.admit(&fence("a#8"), put).await.unwrap();
        guard.advance(&fence("a#9")).await.unwrap();
        assert_eq!(guard.read().await.unwrap().unwrap(), longest);
        let longer = Change::put([longest, vec![7]].concat());
        let error = guard.admit(&fence("a#9"), longer).await.unwrap_err();
        let offered = BODY_MAX + 1;
        assert!(
            matches!(error, S3Error::TooLarge { offered: got, max: BODY_MAX } if got == offered),
            "{error}"
        );
        // One that something else has written is not read into memory.
        let huge = vec![7; usize::try_from(BODY_MAX).unwrap() + 4_096];
        let payload = PutPayload::from(huge);
        store.client().put(&Path::from(KEY), payload).await.unwrap();
        let error = guard.advance(&fence("a#9")).await.unwrap_err();
        assert!(matches!(error, S3Error::TooLarge { .. }), "{error}");
    });
}

#[test]
fn keys_that_no_object_can_have_are_refused_with_a_reason() {
    run_to_end(async {
        let server = OddS3::start(Oddity::None).await;
        let store = server.store();
        let longest = "k".repeat(KEY_MAX);
        for key in ["a", "a/b.json", "a b/ü", longest.as_str()] {
            let guard = S3Guard::new(&store, fence("a#1").name, key).unwrap();
            guard.admit(&fence("a#8"), put("x")).await.unwrap();
            assert!(server.object(key).is_some(), "{key}");
            assert_eq!(guard.read().await.unwrap().unwrap(), "x");
        }
        let too_long = "k".repeat(KEY_MAX + 1);
        for key in ["", "/a", "a/", "a//b", "a/../b", "./a", too_long.as_str()] {
            let made = S3Guard::new(&store, fence("a#1").name, key);
            let error = made.unwrap_err();
            assert!(
                matches!(error, S3Error::InvalidKey { .. }),
                "{key}: {error}"
            );
            assert!(error.to_string().len() < KEY_MAX + 200, "{error}");
            assert!(store.clone().probe_key(key).is_err(), "{key}");
        }
    });
}

/// An error of a program's own.
#[derive(Debug)]
enum Ours {
    Guard(S3Error),
    NoMoney,
}

impl From<S3Error> for Ours {
    fn from(error: S3Error) -> Self {
        Self::Guard(error)
    }
}

#[test]
fn a_change_is_made_again_behind_another_writer_and_its_error_writes_nothing() {
    run_to_end(async {
        let server = OddS3::start(Oddity::None).await;
        let store = server.store();
        let ours = guard(&store);
        let same = fence("a#8");
        let mut objects = Vec::new();
        for body in ["1", "2"] {
            ours.admit(&same, put(body)).await.unwrap();
            objects.push(server.object(KEY).unwrap());
        }
        server.put(KEY, objects[0].clone());
        let mut made = Vec::new();
        let add = |body: Option<bytes::Bytes>| {
            if made.is_empty() {
                // Another writer, in between.
                server.put(KEY, objects[1].clone());
            }
            let body = String::from_utf8(body.unwrap().to_vec()).unwrap();
            made.push(body.clone());
            Ok::<_, S3Error>(Change::put(body + "+1"))
        };
        ours.write(&same, add).await.unwrap();
        assert_eq!(made, ["1", "2"]);
        assert_eq!(ours.read().await.unwrap().unwrap(), "2+1");

        let fails = |_| Err(Ours::NoMoney);
        let error = ours.write(&fence("a#9"), fails).await.unwrap_err();
        assert!(matches!(error, Ours::NoMoney), "{error:?}");
        assert_eq!(ours.mark().await.unwrap(), Some(same.token));
        let stale = |_| Ok::<_, Ours>(Change::Delete);
        let error = ours.write(&fence("a#7"), stale).await.unwrap_err();
        assert!(
            matches!(&error, Ours::Guard(error) if error.refused().is_some()),
            "{error:?}"
        );
    });
}

#[test]
fn a_deletion_leaves_the_mark_and_no_body() {
    run_to_end(async {
        let server = OddS3::start(Oddity::None).await;
        let store = server.store();
        let guard = guard(&store);
        guard.admit(&fence("a#9"), put("x")).await.unwrap();
        guard.admit(&fence("a#9"), Change::Delete).await.unwrap();
        assert_eq!(guard.read().await.unwrap(), None);
        assert_eq!(line(&server, "deleted"), "deleted");
        guard.admit(&fence("a#8"), put("x")).await.unwrap_err();
        guard.advance(&fence("a#10")).await.unwrap();
        assert_eq!(guard.read().await.unwrap(), None);
        // An empty body is one.
        guard.admit(&fence("a#10"), put("")).await.unwrap();
        guard.advance(&fence("a#11")).await.unwrap();
        assert_eq!(guard.read().await.unwrap().unwrap(), "");
    });
}

#[test]
fn in_a_bucket_with_versions_the_current_one_has_the_mark() {
    run_to_end(async {
        let Some(server) = S3::start(Disk::Memory) else {
            return;
        };
        server.keep_versions();
        let store = server.store();
        let guard = guard(&store);
        guard.admit(&fence("a#8"), put("x")).await.unwrap();
        let old = store.client().get(&Path::from(KEY)).await.unwrap();
        let old = old.bytes().await.unwrap();
        guard.advance(&fence("a#9")).await.unwrap();
        guard.admit(&fence("a#9"), put("y")).await.unwrap();
        guard.admit(&fence("a#9"), Change::Delete).await.unwrap();
        assert_eq!(server.versions(), 3);
        let stale = guard.admit(&fence("a#8"), put("x")).await.unwrap_err();
        assert!(stale.refused().is_some(), "{stale}");

        // An old version that is put back is a restore.
        let key = Path::from(KEY);
        store.client().put(&key, old.into()).await.unwrap();
        assert_eq!(guard.mark().await.unwrap(), Some(fence("a#8").token));
        guard.advance_to(fence("a#9").token).await.unwrap();
        let stale = guard.admit(&fence("a#8"), Change::Delete).await;
        assert!(stale.unwrap_err().refused().is_some());
        // A deletion past the guard hides the mark.
        store.client().delete(&key).await.unwrap();
        assert_eq!(guard.mark().await.unwrap(), None);
    });
}

/// Appends its token to the body, `times` times.
async fn append(guard: S3Guard, fence: Fence, times: u32) -> (u32, Fence) {
    let mut done = 0;
    for _ in 0..times {
        let token = fence.token;
        let append = |body: Option<bytes::Bytes>| {
            let body = body.unwrap_or_default();
            Ok::<_, S3Error>(Change::put(
                [&body[..], format!("{token} ").as_bytes()].concat(),
            ))
        };
        match guard.write(&fence, append).await {
            Ok(_) => done += 1,
            Err(error) => {
                assert!(error.refused().is_some(), "{error:?}");
                break;
            }
        }
    }
    (done, fence)
}

#[test]
fn two_clients_race_and_no_acknowledged_write_is_lost() {
    run_to_end(async {
        let Some(server) = S3::start(Disk::Memory) else {
            return;
        };
        let mut done = 0;
        for round in 0..10_u64 {
            let racers = [2 * round + 1, 2 * round + 2].map(|token| {
                let store = server.store();
                tokio::spawn(append(guard(&store), fence(&format!("a#{token}")), 8))
            });
            for racer in racers {
                let (wrote, fence) = racer.await.unwrap();
                // Only the older one can have been refused.
                assert!(wrote == 8 || fence.token.get() % 2 == 1, "{fence}: {wrote}");
                done += wrote;
            }
        }
        let body = guard(&server.store()).read().await.unwrap().unwrap();
        let tokens = str::from_utf8(&body).unwrap().split_whitespace();
        let tokens: Vec<u64> = tokens.map(|token| token.parse().unwrap()).collect();
        assert!(tokens.is_sorted(), "{tokens:?}");
        assert_eq!(tokens.len(), done as usize, "{tokens:?}");
    });
}
