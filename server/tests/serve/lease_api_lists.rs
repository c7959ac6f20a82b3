//! Watches of the Lease endpoint that are large and read slowly: when they end.

use std::fmt::Write;
use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::lease_api::{LEASES, Secured};

/// How many objects there are, of 23 KB each as they are shown: more than sockets hold.
const OBJECTS: usize = 300;

impl Secured {
    /// Makes the objects in the name of a caller with this token.
    fn fill(&self, token: &str) {
        let large = "\u{1}".repeat(3_900);
        let folder = self.folder.path();
        let url = self.url(LEASES);
        let mut config = String::new();
        for n in 0..OBJECTS {
            let metadata = json!({ "name": format!("o{n}"), "annotations": { "x/y": large } });
            let body = folder.join(format!("o{n}.json"));
            fs::write(
                &body,
                json!({ "metadata": metadata, "spec": {} }).to_string(),
            )
            .unwrap();
            let next = if n == 0 { "" } else { "next\n" };
            write!(
                config,
                "{next}url = \"{url}\"\nsilent\nfail\noutput = \"/dev/null\"\n\
                 cacert = \"{}\"\nheader = \"Authorization: Bearer {token}\"\n\
                 header = \"Content-Type: application/json\"\ndata-binary = \"@{}\"\n",
                folder.join("servers.pem").display(),
                body.display(),
            )
            .unwrap();
        }
        let path = folder.join("fill.curl");
        fs::write(&path, config).unwrap();
        let mut curl = std::process::Command::new("curl");
        let done = curl.args(["--parallel", "-K"]).arg(&path).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }

    /// A request whose answer nothing reads until it is waited for.
    fn unread(&self, token: &str, path: &str) -> Child {
        let mut command = self.curl(Some(token), path);
        command.args(["--max-time", "30"]);
        command.stdout(Stdio::piped()).spawn().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_whose_beginning_is_read_slowly_ends_in_time_and_with_the_ban() {
    let node = Secured::start().await;
    let owner = node.principal("owner", &[("acquire", "k8s/shop/*")]);
    let banned = node.principal("banned", &[("observe", "k8s/shop/*")]);
    node.fill(&owner);
    let watch = format!("{LEASES}?watch=true");
    let timed = node.unread(&owner, &format!("{watch}&timeoutSeconds=2"));
    let barred = node.unread(&banned, &watch);
    let listed = node.unread(&banned, LEASES);
    sleep(Duration::from_secs(1)).await;
    node.operate(&["access", "ban", "token:banned"]);
    sleep(Duration::from_secs(4)).await;
    for (what, watching) in [("time", timed), ("ban", barred)] {
        let read = watching.wait_with_output().unwrap().stdout;
        let read = String::from_utf8_lossy(&read);
        let sent = read.matches("\"ADDED\"").count();
        assert!(sent > 0, "{what}: nothing was sent: {read}");
        assert!(sent < OBJECTS, "{what}: all of {sent} were sent");
    }
    // A list that its caller may not go on to read is broken off, so that no part is taken for it all.
    let listed = listed.wait_with_output().unwrap();
    assert!(!listed.status.success(), "{:?}", listed.status);
    drop(node.node);
}
