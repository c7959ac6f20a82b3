//! The canary as a process: it tells when the policies let a stale write pass.

use ringfence_kube::policy::Carrier;
use ringfence_kubernetes::User;

use crate::process::{Running, run, text};
use crate::stand::{CURRENT, Form, Stand, WITHOUT_MUTATION, with_every_carrier};

const OPEN: [&str; 2] = [
    "ringfence_kube_canary_open{rule=\"floor\"}",
    "ringfence_kube_canary_open{rule=\"mark\"}",
];
const BLIND: &str = "ringfence_kube_canary_blind{rule=\"floor\"}";

/// What wakes people up.
const ALARMS: &str = include_str!("../../../../deploy/prometheus/canary.yaml");

/// How the canary learns of a stand.
pub(crate) fn arguments(stand: &Stand, user: User) -> Vec<String> {
    let kubeconfig = stand.plane.kubeconfig(user, &stand.plane.address());
    let lease = format!("{}/leader", stand.namespace);
    let carrier = stand.carrier.to_string();
    let arguments = [
        "canary",
        "--lease",
        &lease,
        "--carrier",
        &carrier,
        "--service-account",
        "default/default",
        "--kubeconfig",
        text(&kubeconfig),
    ];
    arguments.map(str::to_owned).to_vec()
}

async fn running(stand: &Stand) -> Running {
    let arguments = arguments(stand, User::Default);
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    arguments.extend(["--every", "100ms"]);
    Running::start(&arguments).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_that_is_gone_shows_in_the_figures_and_its_return_too() {
    let Some(stand) = Stand::start(Carrier::Impersonate, CURRENT).await else {
        return;
    };
    let canary = running(&stand).await;
    for open in OPEN {
        canary.until_figure(open, |open| open == 0.0).await;
    }
    let figure = |line: &'static str| {
        let figure = line.trim().strip_prefix("expr: ")?.split(' ').next()?;
        // Of one that is absent nothing could be shown.
        (!figure.starts_with("absent(")).then_some(figure)
    };
    let shown = canary.figures().await;
    for figure in ALARMS.lines().filter_map(figure) {
        assert!(
            shown.contains(&format!("\n{figure}{{")),
            "{figure}: {shown}"
        );
    }
    for (rule, open) in ["floor", "mark"].into_iter().zip(OPEN) {
        let name = format!("{rule}.leader.{}.ringfence.io", stand.namespace);
        stand.remove("validatingadmissionpolicybinding", &name);
        canary.until_figure(open, |open| open == 1.0).await;
        stand.kubectl("apply", &stand.fencing.manifests());
        canary.until_figure(open, |open| open == 0.0).await;
    }
    assert!(
        canary.log().contains("no policy refuses a stale write"),
        "{}",
        canary.log()
    );
    assert_eq!(canary.figure(BLIND).await, Some(0.0));

    // A right that is gone: it is unknown, and no output says that all is well.
    let name = format!("canary.leader.{}.ringfence.io", stand.namespace);
    let arguments = [
        "delete",
        "rolebinding",
        &name,
        "writer",
        "--namespace",
        &stand.namespace,
    ];
    stand.plane.kubectl(&arguments, "");
    canary.until_figure(BLIND, |blind| blind == 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn asked_once_it_answers_with_its_exit_code() {
    with_every_carrier(|carrier| answers_with_its_exit_code(carrier.into())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_mutation_it_answers_in_the_same_way() {
    answers_with_its_exit_code(WITHOUT_MUTATION).await;
}

async fn answers_with_its_exit_code(form: Form) {
    let Some(stand) = Stand::start(form, CURRENT).await else {
        return;
    };
    // The fenced account itself, and an account that may impersonate it.
    for user in [User::Default, User::Admin] {
        let mut arguments = arguments(&stand, user);
        arguments.push("--once".to_owned());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = run(&arguments).await;
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{form:?} {user:?}: {told}");
        assert_eq!(told.lines().count(), 2, "{told}");
    }
    let name = format!("mark.leader.{}.ringfence.io", stand.namespace);
    stand.remove("validatingadmissionpolicybinding", &name);
    let arguments = arguments(&stand, User::Default);
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    arguments.push("--once");
    crate::stand::until("the mark is seen to be gone", || async {
        let output = run(&arguments).await;
        output.status.code() == Some(1)
    })
    .await;
}
