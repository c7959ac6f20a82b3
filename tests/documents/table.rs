//! Which command or test shows each shell block.

use crate::run::Ends;

/// How a block is shown to work.
pub(crate) enum Shown {
    /// It is run, and its output contains these texts.
    Run(Ends, &'static [&'static str]),
    /// A test in this file runs the same commands, where what they need is there.
    By(&'static str, &'static str),
}

use Shown::{By, Run};

/// Document, a text that only this block of it contains, and how it is shown. A test that needs a
/// real Kubernetes stands in `tests/kubernetes`; `.ci/run` runs all of them.
pub(crate) const TABLE: &[(&str, &str, Shown)] = &[
    (
        "deploy/RECOVERY.md",
        "> cluster.digest\nringfence backup verify cluster.backup",
        Run(Ends::WithDev, &["digest ", "held by Pods 0"]),
    ),
    (
        "deploy/RECOVERY.md",
        "ringfence backup s3://backups/prod/today.backup",
        Run(Ends::WithBucket, &["digest ", "held by Pods 0"]),
    ),
    (
        "deploy/RECOVERY.md",
        "--drill &",
        Run(Ends::WithDev, &["no leases"]),
    ),
    (
        "deploy/RECOVERY.md",
        "for n in n2 n3",
        By("tests/documents/runbooks.rs", "fn the_majority_is_down()"),
    ),
    (
        "deploy/RECOVERY.md",
        "until promote=$(last)",
        By("tests/documents/runbooks.rs", "fn one_disk_is_lost()"),
    ),
    (
        "deploy/RECOVERY.md",
        "n4.toml",
        By(
            "tests/documents/runbooks.rs",
            "fn one_node_is_lost_for_good()",
        ),
    ),
    (
        "deploy/RECOVERY.md",
        "ringfence recover",
        By(
            "tests/documents/runbooks.rs",
            "fn the_majority_is_lost_for_good()",
        ),
    ),
    (
        "deploy/RECOVERY.md",
        "--restore cluster.backup --digest \"$(cat cluster.digest)\" 2>>",
        By("tests/documents/runbooks.rs", "fn all_disks_are_lost()"),
    ),
    (
        "deploy/RECOVERY.md",
        "ringfence guard sqlite store.db",
        By(
            "tests/documents/runbooks.rs",
            "fn old_holders_still_write()",
        ),
    ),
    (
        "deploy/RECOVERY.md",
        "df -h n3",
        By("tests/documents/runbooks/faults.rs", "fn a_disk_is_full()"),
    ),
    (
        "deploy/RECOVERY.md",
        "# which clocks are apart",
        By(
            "tests/documents/runbooks/faults.rs",
            "fn a_clock_is_wrong_by_a_day()",
        ),
    ),
    (
        "deploy/RECOVERY.md",
        "openssl req",
        By(
            "tests/documents/runbooks/faults.rs",
            "fn a_certificate_has_expired()",
        ),
    ),
    (
        "deploy/OPERATE.md",
        "access token create deploy --ttl 90d",
        By("server/tests/cli/access.rs", "with_token"),
    ),
    (
        "deploy/OPERATE.md",
        "access token create root",
        Run(
            Ends::WithDev,
            &[
                "granted: token:root revoke *",
                "yes, by the rule: token:root operate",
            ],
        ),
    ),
    (
        "deploy/OPERATE.md",
        "--config /etc/ringfence/ringfence.toml --data-dir /var/lib/ringfence",
        By("server/tests/cli/doctor.rs", "\"--config\""),
    ),
    (
        "client/TOKENS.md",
        "ringfence guard http --upstream",
        Run(Ends::WithDev, &["passed under site/writer#", "STALE_TOKEN"]),
    ),
    (
        "client/python/README.md",
        "pip install './client/python[sqlalchemy]'",
        By("client/python/check", "pip install"),
    ),
    (
        "client/python/README.md",
        "python generate.py",
        By("client/python/check", "-m pytest"),
    ),
    (
        "README.md",
        "cargo run --release -- demo ",
        By("server/tests/cli/demo.rs", "demo"),
    ),
    (
        "README.md",
        "for n in 1 2 3; do",
        Run(Ends::ByItself, &["leader", "token ", "released"]),
    ),
    (
        "deploy/OPERATE.md",
        "openssl req -x509",
        Run(Ends::ByItself, &["no leases"]),
    ),
    (
        "README.md",
        "--example fenced_writer",
        By("tests/documents/rust.rs", "every_rust_example_runs"),
    ),
    (
        "client/go/README.md",
        "cargo run --release -- dev",
        By("client/go/internal/testnode/testnode.go", "\"dev\""),
    ),
    (
        "client/go/README.md",
        "go run ./quickstart",
        By("client/go/tests/readme_test.go", "\"./quickstart\""),
    ),
    (
        "client/go/README.md",
        "./check ",
        By(".ci/run", "client/go/check"),
    ),
    ("README.md", "cat > pay.sh", Run(Ends::WithDev, &["110"])),
    (
        "client/HTTP.md",
        "/v1/keep-alive; echo",
        Run(
            Ends::WithDev,
            &["fence bank/x#", "valid_for_ms", "released", "CLOSED"],
        ),
    ),
    (
        "client/HTTP.md",
        "jobs/nightly",
        Run(Ends::WithDev, &["HELD", "left_ms", "released"]),
    ),
    (
        "client/HTTP.md",
        "$node/v1/revoke",
        Run(
            Ends::WithDev,
            &[
                "present token: 200",
                "another token: 409",
                "revoked",
                "REVOKED",
                "3.1.0",
            ],
        ),
    ),
    (
        "client/HTTP.md",
        "$node/v1/transfer",
        Run(Ends::WithDev, &["REMOVED", "to_session"]),
    ),
    (
        "client/HTTP.md",
        "Last-Event-ID: $last",
        Run(
            Ends::WithDev,
            &["event: present", "event: position", "event: floors"],
        ),
    ),
    (
        "README.md",
        "kubectl apply -k deploy/kubernetes/overlays/dev",
        By("tests/kubernetes/src/node/story/forming.rs", "overlays/dev"),
    ),
    (
        ".github/pictures/README.md",
        "demo --svg accident.svg",
        By("server/tests/cli/demo.rs", "--svg"),
    ),
    (
        "CONTRIBUTING.md",
        ".ci/run  ",
        By(".ci/run", "cargo xtask verify --quick"),
    ),
    (
        "crates/chaos/README.md",
        "--schedule report/schedule.json",
        By("server/tests/cli/chaos.rs", "--schedule"),
    ),
    (
        "crates/chaos/README.md",
        "--hook ./disturb.sh",
        By("server/tests/cli/chaos.rs", "--hook"),
    ),
    (
        "crates/check/README.md",
        "ringfence log dump",
        By("server/tests/cli/history.rs", "\"--log\""),
    ),
    (
        "crates/fuzz/README.md",
        "cargo +nightly fuzz run",
        By("crates/proto/tests/formats/feed.rs", "fn "),
    ),
    (
        "deploy/OPERATE.md",
        "cluster transfer-leader n4",
        Run(Ends::WithDev, &["node 64 leads", "node 64 is removed"]),
    ),
    (
        "deploy/KUBERNETES.md",
        "access grant token:deploy acquire",
        By(
            "tests/kubernetes/src/node/story/production.rs",
            "TLS and rights in production",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "create configmap kubernetes-jwks",
        By(
            "tests/kubernetes/src/node/story/production.rs",
            "Workloads and their service accounts",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "acquire 'k8s/{namespace}/*'",
        By(
            "tests/kubernetes/src/node/story/production.rs",
            "Workloads and their service accounts",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "--set image.repository=registry.example/ringfence",
        By("tests/kubernetes/tests/chart/served.rs", "\"install\""),
    ),
    (
        "deploy/KUBERNETES.md",
        "certificate clients",
        By(
            "tests/kubernetes/src/node/story/chart/two.rs",
            "Two installations with certificates",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "helm test ringfence --namespace $team",
        By(
            "tests/kubernetes/src/node/story/chart/two.rs",
            "\"helm test\"",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "--set logFormat=text",
        By(
            "tests/kubernetes/src/node/story/chart/upgraded.rs",
            "\"helm upgrade\"",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "get secret ringfence-clients-tls",
        By(
            "tests/kubernetes/src/node/story/chart/issued.rs",
            "\"helm install\"",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "renewed by hand",
        By(
            "tests/kubernetes/src/node/story/chart/issued.rs",
            "\"patch certificate\"",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "rotationPolicy: Never",
        By(
            "tests/kubernetes/src/node/story/chart/authorities.rs",
            "rotationPolicy: Never",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "--from-file=ca.crt=red-peers-ca.both",
        By(
            "tests/kubernetes/src/node/story/chart/authorities.rs",
            "--from-file=ca.crt=red-peers-ca.both",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "certificate/ringfence-peers certificate/ringfence-clients",
        By(
            "tests/kubernetes/src/node/story/chart/authorities.rs",
            "certificate/ringfence-peers certificate/ringfence-clients",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "ringfence-clients-ca-2 --output",
        By(
            "tests/kubernetes/src/node/story/chart/authorities.rs",
            "ringfence-clients-ca-2 --output",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "delete secret ringfence-peers-trust",
        By(
            "tests/kubernetes/src/node/story/chart/authorities.rs",
            "delete secret",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "ringfence backup verify green.backup",
        By(
            "tests/kubernetes/src/node/story/chart/restored.rs",
            "\"backup verify\"",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "helm uninstall ringfence --namespace green",
        By(
            "tests/kubernetes/src/node/story/chart/restored.rs",
            "\"helm uninstall\"",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "create secret generic ringfence-backup",
        By(
            "tests/kubernetes/src/node/story/chart/restored.rs",
            "\"helm install\"",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "delete secret ringfence-backup",
        By(
            "tests/kubernetes/src/node/story/chart/restored.rs",
            "\"helm upgrade\"",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "patch pvc data-ringfence-1",
        By(
            "tests/kubernetes/src/node/story/chart/stuck.rs",
            "patch pvc",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "doctor || true",
        By(
            "tests/kubernetes/src/node/story/chart/stuck.rs",
            "doctor || true",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "until kubectl --namespace blue exec ringfence-0",
        By(
            "tests/kubernetes/src/node/story/chart/stuck.rs",
            "until kubectl",
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "renew peers",
        By("tests/kubernetes/src/node/story/chart/stuck.rs", "renew()"),
    ),
    (
        "deploy/KUBERNETES.md",
        "apply -k deploy/kubernetes/overlays/dev",
        By("tests/kubernetes/src/node/story/forming.rs", "overlays/dev"),
    ),
    (
        "deploy/OPERATE.md",
        "openssl rand -hex 32",
        Run(Ends::ByItself, &["enforced"]),
    ),
    (
        "deploy/KUBERNETES.md",
        "--listen-lease-api 127.0.0.1:7425",
        Run(
            Ends::ByItself,
            &[
                "201 Created",
                "200 OK",
                "ringfence-fence: k8s/shop/web#",
                "\"code\":409",
                "web-0",
            ],
        ),
    ),
    (
        "deploy/KUBERNETES.md",
        "deploy/image/build",
        By(
            "tests/kubernetes/src/node/containers.rs",
            "deploy/image/build",
        ),
    ),
    (
        "deploy/FENCING.md",
        "--resource deployments.apps --resource configmaps",
        By("tests/kubernetes/tests/fencing/policies.rs", "policy"),
    ),
    (
        "deploy/FENCING.md",
        "kube canary --lease demo/leader --carrier impersonate",
        By("tests/kubernetes/tests/fencing/canary.rs", "canary"),
    ),
    (
        "deploy/FENCING.md",
        "rollout status deployment/ringfence-canary",
        By("tests/kubernetes/src/node/story/beside.rs", "canary"),
    ),
    (
        "deploy/FENCING.md",
        "create secret tls ringfence-webhook",
        By("tests/kubernetes/src/node/story/beside.rs", "openssl"),
    ),
    (
        "deploy/FENCING.md",
        "webhook/cert-manager",
        By("tests/kubernetes/cases/beside.rs", "webhook/cert-manager"),
    ),
];
