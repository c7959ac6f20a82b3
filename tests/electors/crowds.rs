//! One process with more campaigns than a connection has streams.

use ringfence_client::{Successor, unstable};
use ringfence_proto::v1::ListSessionsRequest;
use ringfence_proto::v1::sessions_client::SessionsClient;

use crate::raw_lock::revoke;
use crate::support::{Story, client, elector, eventually, long, one_node, within};

/// A node lets a connection have 1,024 calls and streams at a time.
const CAMPAIGNS: u64 = 1_100;

#[tokio::test]
async fn a_client_with_more_campaigns_than_streams_still_asks_and_is_told() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let elector = elector(&client, "alice", long());
    let story = Story::new();
    let mut handles = Vec::new();
    for number in 0..CAMPAIGNS {
        let told = story.clone();
        let campaign = elector.campaign(format!("jobs/{number}"));
        let campaign = campaign.on_stopped(move |stopped| {
            told.tell(format!("{number} {:?}", stopped.cause));
        });
        handles.push(campaign.handle());
        tokio::spawn(campaign.run_callbacks());
    }
    eventually("each leads", || handles.iter().all(|h| h.is_leading())).await;
    let mine = || handles.iter().all(|h| h.leader().borrow().is_some());
    eventually("each is told who leads", mine).await;

    // A call of its own has room beside them.
    let list = unstable::unary(&client, |channel| async move {
        let mut sessions = SessionsClient::new(channel);
        sessions.list(ListSessionsRequest::default()).await
    });
    assert_eq!(within("an answer", list).await.unwrap().sessions.len(), 1);

    // The last one has joined a watch of many: it is notified as soon as the first.
    for number in [0, CAMPAIGNS - 1] {
        let place = usize::try_from(number).unwrap();
        let token = handles[place]
            .leader()
            .borrow()
            .as_ref()
            .map(|leader| leader.token);
        let began = client.now();
        revoke(&client, &format!("jobs/{number}"), token.unwrap().get()).await;
        story.until(1, &format!("{number} ")).await;
        let took = client.now().saturating_since(began);
        assert!(
            took < crate::support::LEASE,
            "{number}: told after {took:?}"
        );
    }
    handles
        .iter()
        .for_each(|handle| handle.leave(Successor::Next));
}
