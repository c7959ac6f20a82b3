//! The cluster on the node, as the story looks at it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::cli::{Charts, Site};
use crate::kubectl::Kubectl;
use crate::plane::Plane;
use crate::program::{call, until};
use crate::volumes;

/// Long enough that nothing healthy reaches it.
pub(crate) const LONG: Duration = Duration::from_secs(120);
/// A member of the Ringfence cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) node: u64,
    pub(crate) name: String,
    pub(crate) role: String,
}

/// What the story acts on.
pub(crate) struct Cluster {
    pub(crate) kubectl: Kubectl,
    /// The process of the API server.
    pub(crate) api_server: u32,
    root: PathBuf,
    folder: PathBuf,
    /// What the story of the chart needs besides.
    pub(crate) charts: Option<Charts>,
}

impl Cluster {
    /// Before anything is deployed; volumes are there.
    pub(crate) fn of(site: &Site, plane: &Plane) -> Result<Self, String> {
        let own = Self {
            kubectl: plane.kubectl(),
            api_server: plane.api_server,
            root: site.root.clone(),
            folder: site.folder.clone(),
            charts: site.charts.clone(),
        };
        volumes::offer(&own)?;
        Ok(own)
    }

    /// Where files of the run may be put.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A folder of the manifests.
    pub(crate) fn manifests(&self, name: &str) -> String {
        let path = self.root.join("deploy/kubernetes").join(name);
        path.display().to_string()
    }

    /// Waits until so many Pods are all there are, and ready.
    pub(crate) fn await_ready(&self, pods: u64) -> Result<(), String> {
        until(&format!("{pods} nodes are ready"), LONG, || {
            let set = self
                .kubectl
                .get("statefulset ringfence --namespace=ringfence")?;
            let status = &set["status"];
            let counts = ["replicas", "readyReplicas", "updatedReplicas"];
            let all = counts.iter().all(|count| status[count] == pods);
            let seen = status["observedGeneration"] == set["metadata"]["generation"];
            let current = status["currentRevision"] == status["updateRevision"];
            (all && seen && current)
                .then_some(())
                .ok_or(status.to_string())
        })
    }

    /// Waits until a Pod that is another than `before` is ready.
    pub(crate) fn await_next(&self, pod: &str, before: &str) -> Result<(), String> {
        until(&format!("another {pod} is ready"), LONG, || {
            let found = self.pod(pod)?;
            let other = found["metadata"]["uid"] != before;
            let ready = is_ready(&found);
            (other && ready)
                .then_some(())
                .ok_or(found["status"].to_string())
        })
    }

    /// A Pod.
    pub(crate) fn pod(&self, name: &str) -> Result<Value, String> {
        self.kubectl
            .get(&format!("pod {name} --namespace=ringfence"))
    }

    /// What tells a Pod from the next one of its name.
    pub(crate) fn uid(&self, pod: &str) -> Result<String, String> {
        text(&self.pod(pod)?["metadata"]["uid"], "a Pod's UID")
    }

    /// A Pod's address.
    pub(crate) fn address(&self, pod: &str) -> Result<String, String> {
        text(&self.pod(pod)?["status"]["podIP"], "a Pod's address")
    }

    /// How often a Pod's container was started again.
    pub(crate) fn restarts(&self, pod: &str) -> Result<u64, String> {
        let found = self.pod(pod)?;
        let restarts = found["status"]["containerStatuses"][0]["restartCount"].as_u64();
        restarts.ok_or_else(|| format!("{pod} has no container"))
    }

    /// When a Pod's container ended that ran before the present one, to the second.
    pub(crate) fn last_end(&self, pod: &str) -> Result<Timestamp, String> {
        let status = &self.pod(pod)?["status"]["containerStatuses"][0];
        let end = text(&status["lastState"]["terminated"]["finishedAt"], "end")?;
        end.parse().map_err(|error| format!("{end}: {error}"))
    }

    /// A command of ours in a Pod.
    pub(crate) fn ringfence(&self, pod: &str, line: &str) -> Result<String, String> {
        let line = format!("exec --namespace=ringfence {pod} -- /ringfence {line}");
        self.kubectl.run(&line)
    }

    /// The members, as the node in a Pod knows them.
    pub(crate) fn members(&self, pod: &str) -> Result<Vec<Member>, String> {
        let told = self.ringfence(pod, "cluster members --json")?;
        let values: Vec<Value> = serde_json::Deserializer::from_str(&told)
            .into_iter::<Value>()
            .collect::<Result<_, _>>()
            .map_err(|error| format!("{error} in {told}"))?;
        // One array, or one object for each.
        let members = values.iter().flat_map(|value| match value.as_array() {
            Some(members) => members.clone(),
            None => vec![value.clone()],
        });
        let members = members.map(|member| {
            Ok(Member {
                node: member["node"].as_u64().ok_or("a member without a number")?,
                name: text(&member["name"], "a member's name")?,
                role: text(&member["role"], "a member's role")?,
            })
        });
        members.collect()
    }

    /// Waits until these and no others are voters, and says who leads.
    pub(crate) fn await_voters(&self, pod: &str, names: &[String]) -> Result<Vec<Member>, String> {
        until(
            &format!("the voters are {}", names.join(", ")),
            LONG,
            || {
                let members = self.members(pod)?;
                let mut found: Vec<&String> = members.iter().map(|member| &member.name).collect();
                found.sort();
                let votes = members.iter().all(|member| member.role != "learner");
                let alike = found.iter().copied().eq(names);
                (votes && alike)
                    .then(|| members.clone())
                    .ok_or(format!("{members:?}"))
            },
        )
    }

    /// What a node's HTTP port says: status and text.
    pub(crate) fn http(&self, pod: &str, path: &str) -> Result<(u16, String), String> {
        let url = format!("http://{}:7422{path}", self.address(pod)?);
        let told = call(
            "curl",
            &[
                "--silent",
                "--max-time",
                "5",
                "--write-out",
                "\n%{http_code}",
                &url,
            ],
        )?;
        let (text, status) = told.rsplit_once('\n').ok_or("no answer")?;
        let status = status.parse().map_err(|_| format!("no status: {told}"))?;
        Ok((status, text.to_owned()))
    }

    /// Asks for a Pod to go, as draining its machine does.
    pub(crate) fn evict(&self, pod: &str) -> Result<(), String> {
        let body = serde_json::json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": "ringfence"},
        });
        let file = self.folder.join("eviction.json");
        fs::write(&file, body.to_string()).map_err(|error| error.to_string())?;
        let path = format!("/api/v1/namespaces/ringfence/pods/{pod}/eviction");
        let line = format!("create --raw {path} --filename {}", file.display());
        self.kubectl.run(&line).map(drop)
    }

    /// Takes a Pod's volume away, and the Pod with it: the next one begins with an empty one.
    pub(crate) fn lose_volume(&self, pod: &str) -> Result<(), String> {
        let lines = [
            format!("delete pvc data-{pod} --namespace=ringfence --wait=false"),
            format!("delete pod {pod} --namespace=ringfence --wait=false --grace-period=0 --force"),
        ];
        for line in lines {
            self.kubectl.run(&line)?;
        }
        Ok(())
    }
}

/// Whether a Pod is ready.
pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|conditions| {
        let ready = |found: &Value| found["type"] == "Ready" && found["status"] == "True";
        conditions.iter().any(ready)
    })
}

/// The names of so many nodes.
pub(crate) fn names(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("ringfence-{number}"))
        .collect()
}

fn text(value: &Value, what: &str) -> Result<String, String> {
    let text = value.as_str().map(str::to_owned);
    text.ok_or_else(|| format!("no {what}"))
}
