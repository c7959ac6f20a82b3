//! `kube policy` and `kube webhook manifest`: what is printed, and what is refused.

use crate::harness::run;

/// A command line that prints policies, with something else in it.
fn policy<'a>(changed: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["kube", "policy"];
    for (flag, value) in [
        ("--lease", "demo/leader"),
        ("--resource", "configmaps"),
        ("--carrier", "sequence"),
    ] {
        if !changed.contains(&flag) {
            arguments.extend([flag, value]);
        }
    }
    arguments.extend(changed);
    arguments
}

#[test]
fn policies_are_printed_with_what_they_are_for() {
    let said = run(&policy(&[]));
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.err, "");
    for line in [
        "# Writes of system:serviceaccount:demo:leader are judged by the lease k8s/demo/leader.",
        "  name: keep-lease-informer.ringfence.io",
        "  name: mark.leader.demo.ringfence.io",
        "  name: floor.leader.demo.ringfence.io",
    ] {
        assert!(said.out.lines().any(|shown| shown == line), "{}", said.out);
    }
    assert_eq!(run(&policy(&[])).out, said.out, "the same every time");
    let older = run(&policy(&["--without-mutation"])).out;
    assert!(
        said.out.contains("MutatingAdmissionPolicy\n"),
        "{}",
        said.out
    );
    assert!(!older.contains("MutatingAdmissionPolicy\n"), "{older}");
    let without = run(&policy(&["--without-keeper"])).out;
    assert!(
        !without.contains("keep-lease-informer.ringfence.io\n"),
        "{without}"
    );
}

#[test]
fn what_cannot_be_fenced_ends_with_2_and_the_way_out() {
    for (changed, words) in [
        (&["--lease", "leader"][..], "NAMESPACE/NAME"),
        (&["--lease", "kube-system/leader"], "belong to Kubernetes"),
        (&["--resource", "deployments/scale"], "with their resource"),
        (
            &["--resource", "leases.coordination.k8s.io"],
            "stop elections",
        ),
        (&["--resource", "*"], "kubectl api-resources"),
        (
            &["--carrier", "annotation"],
            "impersonate, field-manager and sequence",
        ),
        (&["--service-account", "leader"], "NAMESPACE/NAME"),
        (&["--namespace", "Demo"], "no namespace"),
        (&["--kube-prefix", "a//b"], "cannot begin"),
        (
            &["--carrier", "impersonate", "--without-mutation"],
            "with the carrier sequence alone",
        ),
        (
            &[
                "--without-mutation",
                "--cluster-id",
                "0123456789abcdef0123456789abcdef",
            ],
            "leave the id out",
        ),
    ] {
        let said = run(&policy(changed));
        assert_eq!(said.code, Some(2), "{changed:?}: {said:?}");
        assert_eq!(said.out, "");
        assert!(said.err.starts_with("error: "), "{}", said.err);
        assert!(said.err.contains(words), "{changed:?}: {}", said.err);
    }
}

#[test]
fn a_webhook_is_printed_only_with_a_stated_failure_policy_and_a_ca() {
    let of = [
        "kube",
        "webhook",
        "manifest",
        "--resource",
        "configmaps",
        "--service-account",
        "demo/a",
        "--url",
        "https://127.0.0.1:7443",
    ];
    let unstated = run(&[&of[..], &["--ca-file", "/dev/null"]].concat());
    assert_eq!(unstated.code, Some(2), "{unstated:?}");
    assert!(
        unstated.err.contains("--failure-policy"),
        "{}",
        unstated.err
    );
    for (file, words) in [("/dev/null", "no PEM"), ("/no/such/file", "/no/such/file")] {
        let said = run(&[&of[..], &["--failure-policy", "fail", "--ca-file", file]].concat());
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains(words), "{}", said.err);
    }
}

#[test]
fn a_canary_without_a_way_to_kubernetes_says_what_is_missing() {
    let said = run(&[
        "kube",
        "canary",
        "--lease",
        "demo/leader",
        "--carrier",
        "sequence",
        "--once",
        "--kubeconfig",
        "/no/such/kubeconfig",
    ]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("/no/such/kubeconfig"), "{}", said.err);
}
