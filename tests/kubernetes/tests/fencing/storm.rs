//! Many writers at once, with tokens in any order.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use rand::seq::SliceRandom as _;
use rand::{SeedableRng as _, rngs::StdRng};
use ringfence_kube::TOKEN;
use ringfence_kube::policy::Carrier;

use crate::stand::{CURRENT, Form, Stand, WITHOUT_MUTATION};
use crate::verdict::Verdict;
use crate::writer::Op;

/// How many write at a time.
const WRITERS: u64 = 6;
/// How often each does.
const WRITES: u64 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn of_racing_writers_the_newest_stays_whoever_comes_last() {
    newest_stays(Carrier::Impersonate).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_mutation_the_newest_of_racing_writers_stays_too() {
    newest_stays(WITHOUT_MUTATION).await;
}

async fn newest_stays(form: impl Into<Form>) {
    // The floor is far below: the mark alone decides.
    let Some(stand) = Stand::start(form, 2).await else {
        return;
    };
    let fence = stand.fence(CURRENT);
    let first = stand.writer(Some(&fence));
    assert_eq!(
        first.write(Op::Create, "prices").await,
        Ok(Verdict::Admitted)
    );

    let writers = (0..WRITERS).map(|writer| {
        let mut rng = StdRng::seed_from_u64(writer);
        let mut tokens: Vec<u64> = (0..WRITES)
            .map(|at| CURRENT + at * WRITERS + writer)
            .collect();
        tokens.shuffle(&mut rng);
        let fences: Vec<_> = tokens
            .into_iter()
            .map(|token| (token, stand.fence(token)))
            .collect();
        let stand = &stand;
        async move {
            let mut done = Vec::new();
            for (token, fence) in fences {
                let answer = stand
                    .writer(Some(&fence))
                    .send(Op::MergePatch, "prices")
                    .await;
                match Verdict::of(&answer) {
                    Ok(Verdict::Admitted) => done.push((version(&answer.unwrap()), token)),
                    Ok(Verdict::Stale) => {}
                    other => panic!("{other:?}"),
                }
            }
            done
        }
    });
    let done = futures_util::future::join_all(writers).await;
    let mut done: Vec<(u64, u64)> = done.into_iter().flatten().collect();
    done.sort_unstable();
    let falls = done.windows(2).find(|pair| pair[0].1 > pair[1].1);
    assert_eq!(falls, None, "a token fell in the order of versions");
    let refused = WRITERS * WRITES - done.len() as u64;
    assert!(refused > 0, "nobody was late; nothing was shown");

    let objects: Api<ConfigMap> = Api::namespaced(stand.admin.clone(), &stand.namespace);
    let stored = objects.get("prices").await.unwrap();
    let newest = CURRENT + WRITERS * WRITES - 1;
    assert_eq!(
        stored.metadata.annotations.unwrap()[TOKEN],
        newest.to_string()
    );
}

fn version(object: &serde_json::Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}
