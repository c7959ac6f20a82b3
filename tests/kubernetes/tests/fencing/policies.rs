//! The manifests: applied by kubectl, again and again.

use ringfence_kube::policy::{Carrier, Fencing, FencingSpec};

use crate::stand::{CURRENT, Form, Stand, WITHOUT_MUTATION, wish, with_every_carrier};
use crate::verdict::Verdict;
use crate::writer::Op;

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_write_is_refused_and_a_current_one_is_done() {
    with_every_carrier(async |carrier| {
        let Some(stand) = Stand::start(carrier, CURRENT).await else {
            return;
        };
        let (current, stale) = (stand.fence(CURRENT), stand.fence(CURRENT - 1));
        let (current, stale) = (stand.writer(Some(&current)), stand.writer(Some(&stale)));
        assert_eq!(
            current.write(Op::Create, "prices").await,
            Ok(Verdict::Admitted)
        );
        assert_eq!(
            stale.write(Op::MergePatch, "prices").await,
            Ok(Verdict::Stale)
        );
        assert_eq!(
            current.write(Op::MergePatch, "prices").await,
            Ok(Verdict::Admitted)
        );
        assert_eq!(
            stale.write(Op::MergePatch, "prices").await,
            Ok(Verdict::Stale)
        );
    })
    .await;
}

/// Kind, name and version of everything that the manifests made.
fn versions(stand: &Stand) -> String {
    let columns = "KIND:.kind,NAME:.metadata.name,VERSION:.metadata.resourceVersion,\
                   GENERATION:.metadata.generation";
    let output = format!("custom-columns={columns}");
    let arguments = ["get", "--filename", "-", "--output", &output];
    stand.plane.kubectl(&arguments, &stand.fencing.manifests())
}

#[tokio::test(flavor = "multi_thread")]
async fn applying_the_manifests_again_changes_nothing() {
    with_every_carrier(|carrier| stay_as_they_are(carrier.into())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_mutation_applying_them_again_changes_nothing() {
    stay_as_they_are(WITHOUT_MUTATION).await;
}

async fn stay_as_they_are(form: Form) {
    let Some(stand) = Stand::start(form, CURRENT).await else {
        return;
    };
    let before = versions(&stand);
    assert!(before.lines().count() > 15, "{before}");
    let again = stand.strictly();
    let changed = again.lines().find(|line| !line.ends_with(" unchanged"));
    assert_eq!(changed, None);
    assert_eq!(versions(&stand), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn applying_them_again_on_the_server_side_changes_nothing_either() {
    let Some(mut stand) = Stand::start(Carrier::Impersonate, CURRENT).await else {
        return;
    };
    // Without the keeper, which other tests apply at the same time in the other way.
    let own = FencingSpec {
        keeper: false,
        ..wish(&stand.namespace, stand.carrier)
    };
    stand.fencing = Fencing::new(own).unwrap();
    let manifests = stand.fencing.manifests();
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--filename",
        "-",
    ];
    stand.plane.kubectl(&apply, &manifests);
    let before = versions(&stand);
    stand.plane.kubectl(&apply, &manifests);
    assert_eq!(versions(&stand), before);
}

/// After an upgrade of Kubernetes, as `deploy/FENCING.md` says it: the clients stay as they are.
#[tokio::test(flavor = "multi_thread")]
async fn policies_with_mutation_take_the_place_of_those_without_it() {
    let Some(mut stand) = Stand::start(WITHOUT_MUTATION, CURRENT).await else {
        return;
    };
    let (current, stale) = (stand.fence(CURRENT), stand.fence(CURRENT - 1));
    let marking = stand.writer(Some(&current));
    let made = marking.write(Op::Create, "prices").await;
    assert_eq!(made, Ok(Verdict::Admitted));

    stand.fencing = Fencing::new(wish(&stand.namespace, stand.carrier)).unwrap();
    stand.kubectl("apply", &stand.fencing.manifests());
    stand.until_in_force(CURRENT).await;
    let left = format!("keep.leader.{}.ringfence.io", stand.namespace);
    let kinds = "validatingadmissionpolicy,validatingadmissionpolicybinding";
    let plain = stand.writer(Some(&current));
    for removed in [false, true] {
        if removed {
            stand.plane.kubectl(&["delete", kinds, &left], "");
        }
        for writer in [&marking, &plain] {
            let done = writer.write(Op::MergePatch, "prices").await;
            assert_eq!(done, Ok(Verdict::Admitted), "{removed}");
        }
        let late = stand.writer(Some(&stale));
        let late = late.write(Op::MergePatch, "prices").await;
        assert_eq!(late, Ok(Verdict::Stale), "{removed}");
    }
}
