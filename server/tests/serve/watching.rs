//! Watches.

use ringfence_proto::v1;
use ringfence_proto::v1::watch_event::Kind;
use tokio::time::timeout;
use tonic::Streaming;

use crate::api::{Api, refusal};
use crate::process::{PATIENCE, Ports, Process, single};

async fn next<M>(stream: &mut Streaming<M>) -> M {
    let message = timeout(PATIENCE, stream.message())
        .await
        .expect("a message in time");
    message.unwrap().expect("the watch goes on")
}

/// The next message that tells something.
async fn told(stream: &mut Streaming<v1::WatchResponse>) -> v1::WatchResponse {
    loop {
        let message = next(stream).await;
        if !message.events.is_empty() {
            return message;
        }
    }
}

fn request(prefix: &str, from: Option<v1::Position>) -> v1::WatchRequest {
    v1::WatchRequest {
        prefix: prefix.to_owned(),
        from,
    }
}

/// A watch that begins.
async fn watch(
    api: &mut Api,
    prefix: &str,
    from: Option<v1::Position>,
) -> Streaming<v1::WatchResponse> {
    let begun = api.leases.watch(request(prefix, from)).await;
    begun.unwrap().into_inner()
}

#[tokio::test]
async fn a_watch_begins_with_the_present_and_goes_on_with_every_change() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;
    let first = api.acquire(&alice, 1, "a/1").await.unwrap();
    api.acquire(&alice, 2, "b").await.unwrap();

    let mut events = watch(&mut api, "a/", None).await;
    let present = next(&mut events).await;
    let [
        v1::WatchEvent {
            kind: Some(Kind::Present(lease)),
            ..
        },
    ] = &present.events[..]
    else {
        panic!("{present:?}");
    };
    assert_eq!(lease.holder.as_ref().unwrap().token, first.token);
    assert!(present.position.is_some());

    api.release(&alice, 3, &first).await.unwrap();
    let second = api.acquire(&alice, 4, "a/1").await.unwrap();
    let mut changes = Vec::new();
    while changes.len() < 2 {
        changes.extend(told(&mut events).await.events);
    }
    let [Some(Kind::Ended(ended)), Some(Kind::Granted(granted))] =
        [changes[0].kind.clone(), changes[1].kind.clone()]
    else {
        panic!("{changes:?}");
    };
    assert_eq!((ended.token, granted.token), (first.token, second.token));
    assert_eq!(ended.cause.unwrap().kind(), v1::end_cause::Kind::Released);
}

#[tokio::test]
async fn a_watch_goes_on_behind_the_position_it_had_reached() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;
    let mut events = watch(&mut api, "", None).await;
    let position = next(&mut events).await.position.unwrap();
    drop(events);
    let one = api.acquire(&alice, 1, "one").await.unwrap();
    let two = api.acquire(&alice, 2, "two").await.unwrap();

    let mut events = watch(&mut api, "", Some(position)).await;
    let mut granted = Vec::new();
    while granted.len() < 2 {
        granted.extend(told(&mut events).await.events);
    }
    let tokens = granted.iter().map(|event| match &event.kind {
        Some(Kind::Granted(grant)) => grant.token,
        other => panic!("{other:?}"),
    });
    assert_eq!(tokens.collect::<Vec<_>>(), [one.token, two.token]);

    // From within: behind the first of the two.
    let mut events = watch(&mut api, "", granted[0].position.clone()).await;
    assert_eq!(told(&mut events).await.events, granted[1..]);
}

#[tokio::test]
async fn the_position_moves_on_without_events() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let _alice = api.open("alice").await;
    let mut events = watch(&mut api, "", None).await;

    let mut indices = Vec::new();
    while indices.len() < 3 {
        indices.push(next(&mut events).await.position.unwrap().index);
    }

    assert!(
        indices.is_sorted() && indices[0] < indices[2],
        "{indices:?}"
    );
}

#[tokio::test]
async fn a_position_of_another_cluster_is_refused() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let elsewhere = v1::Position {
        cluster_id: vec![9; 16].into(),
        index: 1,
        n: 0,
        term: 0,
    };

    let refused = api
        .leases
        .watch(request("", Some(elsewhere)))
        .await
        .unwrap_err();

    assert_eq!(refusal(&refused).reason, v1::Reason::ClusterChanged);
}

/// What a watch from `from` is refused with.
async fn refused_from(api: &mut Api, from: v1::Position) -> v1::Reason {
    let mut events = watch(api, "", Some(from)).await;
    let message = timeout(PATIENCE, events.message()).await;
    let status = message.expect("an answer in time").unwrap_err();
    refusal(&status).reason
}

#[tokio::test]
async fn a_position_that_the_log_never_had_is_refused() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;
    let mut events = watch(&mut api, "", None).await;
    let position = next(&mut events).await.position.unwrap();
    assert!(position.term > 0, "{position:?}");
    api.acquire(&alice, 1, "one").await.unwrap();

    let far = v1::Position {
        index: 1_000_000_000_000,
        term: 0,
        ..position.clone()
    };
    let other_term = v1::Position {
        term: position.term + 1,
        ..position.clone()
    };
    for position in [far, other_term] {
        let reason = refused_from(&mut api, position.clone()).await;
        assert_eq!(reason, v1::Reason::PositionUnknown, "{position:?}");
    }
    let without_term = v1::Position {
        term: 0,
        ..position
    };
    let mut events = watch(&mut api, "", Some(without_term)).await;
    assert_eq!(told(&mut events).await.events.len(), 1);
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (entry, to) = (
            entry.as_ref().unwrap(),
            to.join(entry.as_ref().unwrap().file_name()),
        );
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

#[tokio::test]
async fn a_watch_does_not_go_on_in_silence_when_the_disks_were_rolled_back() {
    let (mut node, dir) = single().await;
    node.signal("TERM");
    node.ended_within(PATIENCE).await.expect("it ends in time");
    let older = tempfile::tempdir().unwrap();
    copy(&dir.path().join("n1"), &older.path().join("n1"));

    let node = Process::start(&dir.path().join("n1"), Ports::free(), &[])
        .ready()
        .await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;
    for number in 1..=40 {
        let name = format!("lost/{number}");
        api.acquire(&alice, number, &name).await.unwrap();
    }
    let mut events = watch(&mut api, "", None).await;
    let position = loop {
        if let Some(position) = next(&mut events).await.position {
            break position;
        }
    };
    drop((events, api, node));

    let node = Process::start(&older.path().join("n1"), Ports::free(), &[])
        .ready()
        .await;
    let mut api = Api::of(&node).await;
    let bob = api.open("bob").await;
    api.acquire(&bob, 1, "new").await.unwrap();
    let reason = refused_from(&mut api, position).await;
    assert_eq!(reason, v1::Reason::PositionUnknown);
}

#[tokio::test]
async fn floors_are_told_all_at_first_and_then_as_they_rise() {
    let (node, _dir) = single().await;
    let mut api = Api::of(&node).await;
    let alice = api.open("alice").await;
    let one = api.acquire(&alice, 1, "one").await.unwrap();
    api.release(&alice, 2, &one).await.unwrap();

    let request = v1::WatchFloorsRequest {
        prefix: String::new(),
    };
    let mut floors = api.leases.watch_floors(request).await.unwrap().into_inner();
    let first = next(&mut floors).await;
    assert!(first.complete);
    assert_eq!(
        first.floors,
        [v1::Floor {
            name: "one".to_owned(),
            token: one.token
        }]
    );

    let two = api.acquire(&alice, 3, "two").await.unwrap();
    let raised = loop {
        let message = next(&mut floors).await;
        if !message.floors.is_empty() {
            break message;
        }
    };
    assert_eq!(
        raised.floors,
        [v1::Floor {
            name: "two".to_owned(),
            token: two.token
        }]
    );
    assert!(raised.position.unwrap().index >= two.index);
}
