//! Who held what.

use ringfence_core::{Ask, EndCause, FencingToken, Millis};
use ringfence_raft::HistoryQuery;

use crate::harness::{Cluster, acquired, name, open, propose, request, within};

#[tokio::test(flavor = "multi_thread")]
async fn history_tells_who_held_a_token_and_why_it_ended_also_after_a_restart() {
    let mut cluster = Cluster::formed(&["n1"]).await;
    let node = cluster.nodes["n1"].clone();
    let session = open(&node, 1, Millis::from_secs(30)).await;
    let token = FencingToken::new(acquired(&node, session, 1, "lease").await).unwrap();
    let release = Ask::Release {
        name: name("lease"),
        token,
        close: false,
    };
    propose(&node, request(session, 2, release)).await;
    let second = acquired(&node, session, 3, "lease").await;
    node.shutdown().await;

    let node = cluster.start("n1").await;
    cluster.serving("n1").await;
    let answer = within("both grants in the history", async {
        loop {
            let query = HistoryQuery::Name {
                name: name("lease"),
                limit: 10,
            };
            let answer = node.history(query).await.unwrap();
            if answer.records.len() == 2 {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let [newer, older] = &answer.records[..] else {
        panic!("{answer:?}")
    };
    assert_eq!((newer.token.get(), older.token), (second, token));
    assert_eq!(newer.ended, None);
    let ended = older.ended.as_ref().unwrap();
    assert_eq!(
        (ended.session, &ended.cause),
        (session.id, &EndCause::Released)
    );
    let first = answer.covered.first().unwrap();
    assert!(first.0 <= 1 && first.1 >= ended.index, "{first:?}");
    let by_token = node.history(HistoryQuery::Token(token)).await.unwrap();
    assert_eq!(by_token.records, std::slice::from_ref(older));
}
