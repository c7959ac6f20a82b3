//! A stamp that did not take is reported: where no policy stamps, nothing would be fenced.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use ringfence_kube::TOKEN;
use ringfence_kube::fenced::{Carrier, StampError, stamp};
use ringfence_kube::policy;
use ringfence_kubernetes::ControlPlane;
use serde_json::json;

use crate::layer::{TTL, fenced, hold, one_node};
use crate::stand::{Stand, WITHOUT_MUTATION, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_stamp_that_no_policy_puts_on_the_object_is_an_error() {
    let (Some(plane), Some(_)) = (
        ControlPlane::shared().await,
        ringfence_kubernetes::kubectl(),
    ) else {
        return;
    };
    let (told, carrier) = (policy::Carrier::FieldManager, Carrier::FieldManager);
    let stand = Stand::without_policies(Arc::clone(&plane), told, 1).await;
    for (name, annotations) in [("prices", json!({})), ("marked", json!({TOKEN: "1"}))] {
        let metadata = json!({"name": name, "annotations": annotations});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        stand.put(map).await;
    }
    let cluster = one_node().await;
    let held = hold(&cluster, &stand.namespace, TTL).await;
    let (client, _) = fenced(&plane, &held, carrier).await;
    let maps: Api<ConfigMap> = Api::namespaced(client, &stand.namespace);

    for (name, expected) in [("prices", None), ("marked", Some("1"))] {
        let error = stamp(&maps, &held, [name]).await.unwrap_err();
        let words = error.to_string();
        let StampError::NotStamped { fence, found, .. } = error else {
            panic!("{words}");
        };
        assert_eq!(
            (fence, found.as_deref()),
            (held.fence().to_string(), expected)
        );
        for part in [name, TOKEN, "`ringfence kube policy`"] {
            assert!(words.contains(part), "{words}");
        }
    }

    // Once they are there it is stamped, without another word.
    stand.raise(held.token().get()).await;
    stand.kubectl("apply", &stand.fencing.manifests());
    stand.until_in_force(held.token().get()).await;
    let stamped = stamp(&maps, &held, ["prices", "marked", "absent"]).await;
    assert_eq!(stamped.unwrap().absent, ["absent"]);

    // A policy that refuses for another reason than a stale token says nothing about the lease.
    let name = format!("stamp.leader.{}.ringfence.io", stand.namespace);
    stand.remove("mutatingadmissionpolicybinding", &name);
    let refused = within("the stamp is gone", async {
        // The API server may not have heard yet, and stamps some.
        for number in 0.. {
            let name = format!("pears-{number}");
            let metadata = json!({"name": name});
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            stand.put(map).await;
            if let Err(error) = stamp(&maps, &held, [&name]).await {
                return error;
            }
        }
        unreachable!("it goes on until the time is over")
    });
    let refused = refused.await;
    assert!(
        matches!(&refused, StampError::Refused { why, .. } if why.contains(" is not stamped")),
        "{refused:?}"
    );
    assert_eq!(held.loss(), None);
}

/// The client writes the mark there, so that its presence shows nothing.
#[tokio::test(flavor = "multi_thread")]
async fn without_mutation_a_mark_that_no_policy_judges_is_an_error() {
    let (Some(plane), Some(_)) = (
        ControlPlane::shared().await,
        ringfence_kubernetes::kubectl(),
    ) else {
        return;
    };
    let stand = Stand::without_policies(Arc::clone(&plane), WITHOUT_MUTATION, 1).await;
    for name in ["prices", "pears"] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        stand.put(map).await;
    }
    let cluster = one_node().await;
    let held = hold(&cluster, &stand.namespace, TTL).await;
    let (client, _) = fenced(&plane, &held, Carrier::SequenceWithMark).await;
    let maps: Api<ConfigMap> = Api::namespaced(client, &stand.namespace);
    // The second time its token is there before.
    for _ in 0..2 {
        let error = stamp(&maps, &held, ["prices"]).await.unwrap_err();
        let words = error.to_string();
        let StampError::Unguarded { fence, .. } = error else {
            panic!("{words}");
        };
        assert_eq!(fence, held.fence().to_string());
        assert!(words.contains("`ringfence kube policy`"), "{words}");
    }

    let token = held.token().get();
    stand.raise(token).await;
    stand.kubectl("apply", &stand.fencing.manifests());
    stand.until_in_force(token).await;
    for _ in 0..2 {
        let stamped = stamp(&maps, &held, ["prices", "absent"]).await.unwrap();
        let annotations = stamped.objects[0].metadata.annotations.as_ref().unwrap();
        assert_eq!(annotations[TOKEN], held.token().to_string());
        assert_eq!(stamped.absent, ["absent"]);
    }

    // A client that leaves the mark to a policy learns that there is none.
    let (client, _) = fenced(&plane, &held, Carrier::Sequence).await;
    let maps: Api<ConfigMap> = Api::namespaced(client, &stand.namespace);
    let refused = stamp(&maps, &held, ["pears"]).await.unwrap_err();
    let expected = "the client has to write it itself";
    assert!(
        matches!(&refused, StampError::Refused { why, .. } if why.contains(expected)),
        "{refused:?}"
    );
    assert_eq!(held.loss(), None);
}
