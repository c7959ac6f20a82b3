//! Values that the chart refuses, and what it says.

use crate::helm::Helm;

/// What stands for `DIGEST` in the values below.
const DIGEST: &str = "d1e5d1e5d1e5d1e5d1e5d1e5d1e5d1e5d1e5d1e5d1e5d1e5d1e5d1e5d1e5d1e5";

/// Values, and what the refusal has to contain.
const REFUSED: &[(&str, &[&str])] = &[
    ("replicas=three", &["/replicas", "got string, want integer"]),
    ("replica=3", &["'replica' not allowed"]),
    (
        "tls.peers.mode=mtls",
        &[
            "/tls/peers/mode",
            "'clusterSecret', 'secret', 'certManager', 'off'",
        ],
    ),
    (
        "storage.size=50gigabytes",
        &["/storage/size", "'50gigabytes'"],
    ),
    (
        "listenAddress=[::]:7420",
        &["/listenAddress", "'[::]:7420'"],
    ),
    (
        "access.rules[0].principals=token:a,access.rules[0].verb=acquire",
        &["/access/rules/0", "missing property 'names'"],
    ),
    (
        "tls.peers.mode=off",
        &["any Pod could join", "set tls.peers.mode to clusterSecret"],
    ),
    (
        "tls.peers.enforcement=permissive",
        &["access.mode is enforced", "set access.mode to permissive"],
    ),
    (
        "tls.peers.trustedSecretName=nodes-ca",
        &[
            "tls.peers.mode is clusterSecret",
            "set tls.peers.mode to secret or certManager",
        ],
    ),
    (
        "leaseApi.enabled=true",
        &[
            "over TLS only",
            "set tls.clients.mode to secret or certManager",
        ],
    ),
    (
        "tls.http=true",
        &["tls.http is true", "set tls.clients.mode"],
    ),
    (
        "tls.clients.mode=secret,tls.clients.required=true",
        &["trustedSecretName is empty", "name the Secret"],
    ),
    (
        "mirror.namespace=ringfence",
        &["could lower floors", "set mirror.floorsNamespace"],
    ),
    (
        "metrics.prometheusRule.enabled=true",
        &["would never fire", "set metrics.podMonitor.enabled"],
    ),
    (
        "restore.backup=a.backup",
        &["restore.digest is empty", "`ringfence backup` printed"],
    ),
    ("restore.digest=d1e5", &["/restore/digest", "'d1e5'"]),
    (
        "restore.digest=DIGEST",
        &["restore.backup is empty", "name the backup"],
    ),
    (
        "restore.backup=a.backup,restore.digest=DIGEST",
        &["restore.volume is empty", "name the volume"],
    ),
    (
        "restore.backup=s3://b/a,restore.volume.secret.secretName=b,restore.digest=DIGEST",
        &["an object of a bucket", "leave restore.volume empty"],
    ),
    (
        "restore.backup=s3://b/a,restore.rules=true,restore.digest=DIGEST",
        &["access.rules is empty", "set restore.rules to false"],
    ),
    (
        "fullnameOverride=a-name-that-leaves-no-room-for-the-names-of-its-pods",
        &["has 52 characters, at most 48", "set fullnameOverride"],
    ),
];

#[test]
fn values_that_cannot_work_are_refused_with_what_to_do() {
    let Some(helm) = Helm::found() else { return };
    for (values, texts) in REFUSED {
        let values = values.replace("DIGEST", DIGEST);
        let rendered = helm.template("ringfence", "ringfence", &["--set", &values]);
        let Err(why) = rendered else {
            panic!("{values} is taken")
        };
        for text in *texts {
            assert!(why.contains(text), "{values}: {why}");
        }
    }
}
