//! Every kind of write, with every kind of fence, by every carrier: who is admitted, and with which
//! words the others are refused. What is expected stands in `deploy/FENCING.md`, and nowhere else.

use std::fmt::Write as _;

use kube::api::{Api, DeleteParams, Patch, PatchParams};
use ringfence_kube::TOKEN;
use ringfence_kube::policy::{Carrier, STAMP};
use ringfence_kubernetes::version;
use serde_json::{Value, json};

use crate::stand::{CURRENT, Form, Stand, WITHOUT_MUTATION};
use crate::verdict::Verdict;
use crate::writer::{MANAGER, Op};

/// What a write carries, and what the API server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    Current,
    Stale,
    /// The same, while the API server's copy of the Lease is older than both.
    StaleFloorLate,
    Missing,
    Malformed,
    /// A newer fence of another lease.
    Foreign,
}

impl Offer {
    const ALL: [Self; 6] = [
        Self::Current,
        Self::Stale,
        Self::StaleFloorLate,
        Self::Missing,
        Self::Malformed,
        Self::Foreign,
    ];

    fn is_stale(self) -> bool {
        matches!(self, Self::Stale | Self::StaleFloorLate)
    }

    fn fence(self, stand: &Stand) -> Option<String> {
        match self {
            Self::Current => Some(stand.fence(CURRENT)),
            Self::Stale | Self::StaleFloorLate => Some(stand.fence(CURRENT - 1)),
            Self::Missing => None,
            Self::Malformed => Some(format!("{}#0{CURRENT}", stand.fencing.lease())),
            Self::Foreign => Some(format!("k8s/{}/other#{}", stand.namespace, CURRENT + 1)),
        }
    }
}

/// What the first line of each table says.
const HEADS: &str = "| write | current | stale | stale, floor late | none | malformed | other lease's |\n\
                     |---|---|---|---|---|---|---|\n";

/// What operators read, and what is expected here.
const DOCUMENT: &str = include_str!("../../../../deploy/FENCING.md");

/// The rows of a carrier's table.
fn expected(form: impl Into<Form>) -> String {
    let Form { carrier, mutation } = form.into();
    let how = if mutation { "" } else { " without mutation" };
    let begins = format!("Carrier `{carrier}`{how}:\n\n{HEADS}");
    let told = DOCUMENT.split_once(&begins);
    let (_, table) = told.unwrap_or_else(|| panic!("not in deploy/FENCING.md:\n{begins}"));
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    rows.map(|row| format!("{row}\n")).collect()
}

/// The object of a cell as the current holder left it; the version that the writer may know.
async fn object_of(stand: &Stand, op: Op, offer: Offer, name: &str) -> Option<String> {
    let mark = |mut object: Value| {
        object["metadata"]["annotations"][TOKEN] = json!(CURRENT.to_string());
        if stand.carrier == Carrier::Sequence {
            let stamp = format!("{}.1", stand.fence(CURRENT));
            object["metadata"]["annotations"][STAMP] = json!(stamp);
        }
        object
    };
    let metadata = json!({"name": name, "labels": {"cell": name}});
    let resources = json!({"requests": {"cpu": "100m"}});
    let containers = json!([{"name": "one", "image": "none", "resources": resources}]);
    let object = match op {
        Op::Status | Op::Scale => json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": {"cell": name}},
                "template": {
                    "metadata": {"labels": {"cell": name}},
                    "spec": {"containers": containers},
                },
            },
        }),
        Op::Evict | Op::Resize | Op::Ephemeral | Op::Exec => json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"containers": containers, "automountServiceAccountToken": false},
        }),
        _ => json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
            "data": {"written": "0"},
        }),
    };
    match op {
        Op::Create => None,
        Op::Status | Op::Scale | Op::Evict | Op::Resize | Op::Ephemeral | Op::Exec => {
            stand.put(mark(object)).await;
            None
        }
        Op::CreateAgain => {
            stand.put(mark(object)).await;
            config_maps(stand)
                .delete(name, &DeleteParams::default())
                .await
                .unwrap();
            None
        }
        _ => {
            let before = stand.put(object.clone()).await;
            // As the holder's own apply would have, it owns what it wrote.
            let manager = match stand.carrier {
                Carrier::FieldManager => stand.fence(CURRENT),
                Carrier::Impersonate | Carrier::Sequence => MANAGER.to_owned(),
            };
            let params = PatchParams::apply(&manager).force();
            let object = Patch::Apply(mark(object));
            let after = config_maps(stand).patch(name, &params, &object).await;
            let after = after.unwrap().metadata.resource_version;
            match offer.is_stale() {
                true => before.metadata.resource_version,
                false => after,
            }
        }
    }
}

fn config_maps(stand: &Stand) -> Api<k8s_openapi::api::core::v1::ConfigMap> {
    Api::namespaced(stand.admin.clone(), &stand.namespace)
}

/// What becomes of one write; in words if it is nothing that was thought of.
async fn cell(stand: &Stand, op: Op, offer: Offer) -> String {
    let name = format!("{op:?}-{offer:?}").to_lowercase();
    let known = object_of(stand, op, offer, &name).await;
    let fence = offer.fence(stand);
    let writer = stand.writer(fence.as_deref()).knows(known);
    match writer.write(op, &name).await {
        Ok(verdict) => verdict.shown().to_owned(),
        Err(words) => words,
    }
}

/// The table of a carrier, as it is; `None` if there is no Kubernetes.
async fn measured(form: Form) -> Option<String> {
    // The Lease of the second stands where the copy of an API server would that has not heard of
    // anything for long.
    let late = tokio::spawn(Stand::start(form, 2));
    let stand = Stand::start(form, CURRENT).await?;
    let late = late.await.unwrap()?;
    let mut table = String::new();
    for op in served() {
        write!(table, "| {} |", op.shown()).unwrap();
        for offer in Offer::ALL {
            let stand = match offer {
                Offer::StaleFloorLate => &late,
                _ => &stand,
            };
            write!(table, " {} |", cell(stand, op, offer).await).unwrap();
        }
        table.push('\n');
    }
    Some(table)
}

async fn is_as_expected(form: impl Into<Form>) {
    let form = form.into();
    let Some(measured) = measured(form).await else {
        return;
    };
    println!("{form:?} with {}\n\n{HEADS}{measured}", version());
    let expected = expected(form);
    assert_eq!(expected.lines().count(), Op::ALL.len());
    let of = |op: Op| {
        let begins = format!("| {} |", op.shown());
        let mut rows = expected.lines();
        rows.find(|row| row.starts_with(&begins)).unwrap()
    };
    for (op, row) in served().into_iter().zip(measured.lines()) {
        assert_eq!(row, of(op));
    }
}

/// The rows that there are with this version of Kubernetes: a Pod is resized by a subresource since
/// 1.33.
fn served() -> Vec<Op> {
    let minor = version().split('.').nth(1).unwrap();
    let resizes = minor.parse::<u32>().unwrap() >= 33;
    let all = Op::ALL.into_iter();
    all.filter(|op| resizes || *op != Op::Resize).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn fences_by_impersonation_are_judged_as_the_table_says() {
    is_as_expected(Carrier::Impersonate).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fences_by_field_manager_are_judged_as_the_table_says() {
    is_as_expected(Carrier::FieldManager).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fences_by_sequence_are_judged_as_the_table_says() {
    is_as_expected(Carrier::Sequence).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fences_by_sequence_without_mutation_are_judged_as_the_table_says() {
    is_as_expected(WITHOUT_MUTATION).await;
}

/// A row of what is promised, not only of what happens: with the mark, or a floor that is in time.
#[test]
fn no_stale_write_is_admitted_but_where_it_is_said() {
    let stale_and_admitted = |form: Form, column: usize| -> Vec<String> {
        let table = expected(form);
        let rows = table.lines().map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            (cells[1].to_owned(), cells[column])
        });
        rows.filter(|(_, cell)| *cell == Verdict::Admitted.shown())
            .map(|(op, _)| op)
            .collect()
    };
    let impersonate = Form::from(Carrier::Impersonate);
    assert!(stale_and_admitted(impersonate, 3).is_empty());
    for form in [
        Carrier::FieldManager.into(),
        Carrier::Sequence.into(),
        WITHOUT_MUTATION,
    ] {
        assert_eq!(stale_and_admitted(form, 3), ["delete what it read"]);
    }
    let late = ["create", "scale", "eviction", "exec", "delete, then create"];
    assert_eq!(stale_and_admitted(impersonate, 4), late);
}
