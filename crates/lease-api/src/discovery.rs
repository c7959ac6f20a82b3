//! What clients read before their first request: which groups, resources and verbs there are.

use serde_json::{Value, json};

use crate::openapi;
use crate::route::Document;
use crate::shown::bytes;
use crate::status::{API_VERSION, GROUP, KIND, RESOURCE};

/// The minor version of Kubernetes whose behaviour is shown: clients read it to know what they may
/// ask for.
const MINOR: &str = "36";

/// A document as JSON. `version`: that of this software, as in `0.1.0`.
#[must_use]
pub fn body(document: Document, version: &str) -> Vec<u8> {
    bytes(&match document {
        Document::Version => json!({
            "major": "1",
            "minor": MINOR,
            "gitVersion": format!("v1.{MINOR}.0+ringfence-{version}"),
            "gitCommit": "",
            "gitTreeState": "",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": "",
            "platform": "",
        }),
        Document::Api => json!({
            "kind": "APIVersions",
            "versions": [],
            "serverAddressByClientCIDRs": [],
        }),
        Document::Groups => json!({
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [group()],
        }),
        Document::Group => {
            let mut group = group();
            group["kind"] = Value::from("APIGroup");
            group["apiVersion"] = Value::from("v1");
            group
        }
        Document::Resources => json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": API_VERSION,
            "resources": [{
                "name": RESOURCE,
                "singularName": "lease",
                "namespaced": true,
                "kind": KIND,
                "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
            }],
        }),
        Document::OpenApi => json!({
            "paths": {
                "apis/coordination.k8s.io/v1": {
                    "serverRelativeURL": "/openapi/v3/apis/coordination.k8s.io/v1",
                },
            },
        }),
        Document::OpenApiOfLeases => openapi::leases(version),
    })
}

fn group() -> Value {
    let version = json!({ "groupVersion": API_VERSION, "version": "v1" });
    json!({ "name": GROUP, "versions": [version], "preferredVersion": version })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Document; 7] = [
        Document::Version,
        Document::Api,
        Document::Groups,
        Document::Group,
        Document::Resources,
        Document::OpenApi,
        Document::OpenApiOfLeases,
    ];

    fn read(document: Document) -> Value {
        serde_json::from_slice(&body(document, "0.1.0")).unwrap()
    }

    #[test]
    fn each_document_is_an_object() {
        for document in ALL {
            assert!(read(document).is_object(), "{document:?}");
        }
    }

    #[test]
    fn the_group_leads_to_leases() {
        assert_eq!(read(Document::Groups)["groups"][0]["name"], GROUP);
        let preferred = &read(Document::Group)["preferredVersion"]["groupVersion"];
        assert_eq!(preferred, API_VERSION);
        let resource = &read(Document::Resources)["resources"][0];
        assert_eq!(resource["name"], "leases");
        assert!(!resource["verbs"].to_string().contains("deletecollection"));
    }

    #[test]
    fn the_version_is_one_that_clients_parse() {
        assert_eq!(
            read(Document::Version)["gitVersion"],
            "v1.36.0+ringfence-0.1.0"
        );
    }
}
