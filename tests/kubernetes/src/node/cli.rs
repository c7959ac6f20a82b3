//! The words behind `test-node`: for people, and from the outside to the inside.

use std::path::PathBuf;

/// What this process is to do.
pub(crate) enum Mode {
    /// Make the namespaces, start the other half in them, and compare the machine.
    Outside(Request),
    /// Be the node, in namespaces that are there.
    Inside(Site),
    /// Hold a lease, until this process is killed.
    Hold {
        /// Where the cluster is found.
        endpoint: String,
        /// The lease.
        lease: String,
    },
}

/// What is deployed on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Story {
    /// The overlays of kustomize.
    Overlays,
    /// The Helm chart.
    Chart,
}

/// What is tested.
pub(crate) struct Request {
    pub(crate) story: Story,
    /// The folder with the archives of the images.
    pub(crate) images: PathBuf,
    /// The repository.
    pub(crate) root: PathBuf,
    /// The folder of the run; made, and removed unless the run fails.
    pub(crate) folder: PathBuf,
}

/// Where everything of a run is.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// The folder of the run.
    pub(crate) folder: PathBuf,
    /// The components of Kubernetes.
    pub(crate) components: PathBuf,
    /// The folder with the archives of the images.
    pub(crate) images: PathBuf,
    /// The repository.
    pub(crate) root: PathBuf,
    /// What the story of the chart needs besides.
    pub(crate) charts: Option<Charts>,
}

/// What the story of the chart needs besides.
#[derive(Clone, Debug)]
pub(crate) struct Charts {
    /// The program `helm`.
    pub(crate) helm: PathBuf,
    /// The folder with the programs of cert-manager.
    pub(crate) issuers: PathBuf,
    /// cert-manager's own chart.
    pub(crate) issuers_chart: PathBuf,
}

const USAGE: &str =
    "usage: cargo xtask test-node [--chart]; it builds what is needed and calls this program";

/// Parses them.
pub(crate) fn parse(words: &[String]) -> Result<Mode, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [
            "outside",
            images,
            root,
            folder,
            story @ ("overlays" | "chart"),
        ] => Ok(Mode::Outside(Request {
            story: if *story == "chart" {
                Story::Chart
            } else {
                Story::Overlays
            },
            images: images.into(),
            root: root.into(),
            folder: folder.into(),
        })),
        ["inside", folder, components, images, root, charts @ ..] => {
            let charts = match charts {
                [] => None,
                [helm, issuers, issuers_chart] => Some(Charts {
                    helm: helm.into(),
                    issuers: issuers.into(),
                    issuers_chart: issuers_chart.into(),
                }),
                _ => return Err(USAGE.to_owned()),
            };
            Ok(Mode::Inside(Site {
                folder: folder.into(),
                components: components.into(),
                images: images.into(),
                root: root.into(),
                charts,
            }))
        }
        ["hold", endpoint, lease] => Ok(Mode::Hold {
            endpoint: (*endpoint).to_owned(),
            lease: (*lease).to_owned(),
        }),
        _ => Err(USAGE.to_owned()),
    }
}
