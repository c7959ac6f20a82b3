use super::*;

fn wish(carrier: Carrier) -> FencingSpec {
    FencingSpec {
        resources: vec![
            "deployments.apps".parse().unwrap(),
            "configmaps".parse().unwrap(),
            "deployments.apps".parse().unwrap(),
        ],
        ..FencingSpec::new("demo/leader", carrier)
    }
}

fn printed(carrier: Carrier) -> String {
    Fencing::new(wish(carrier)).unwrap().manifests()
}

/// What Kubernetes below 1.36 takes.
fn without_mutation() -> FencingSpec {
    FencingSpec {
        mutation: false,
        ..wish(Carrier::Sequence)
    }
}

fn refused(change: impl FnOnce(&mut FencingSpec)) -> String {
    let mut wish = wish(Carrier::FieldManager);
    change(&mut wish);
    Fencing::new(wish).unwrap_err().to_string()
}

#[test]
fn the_account_is_called_like_the_lease_unless_said() {
    let printed = printed(Carrier::Impersonate);
    assert!(printed.contains("'system:serviceaccount:demo:leader'"));
}

#[test]
fn the_mark_and_what_mutates_have_no_parameters() {
    for carrier in Carrier::ALL {
        let printed = printed(carrier);
        let manifests = printed.split("---\n");
        let with_params = manifests.filter(|yaml| yaml.contains("paramKind:"));
        let names: Vec<&str> = with_params
            .filter_map(|yaml| yaml.lines().find_map(|line| line.strip_prefix("  name: ")))
            .collect();
        assert_eq!(
            names,
            [
                "keep-lease-informer.ringfence.io",
                "floor.leader.demo.ringfence.io",
            ]
        );
    }
}

#[test]
fn only_impersonation_needs_rights_of_its_own_and_only_over_itself() {
    let impersonates = |carrier| printed(carrier).contains("verbs: [impersonate]");
    assert!(impersonates(Carrier::Impersonate));
    assert!(!impersonates(Carrier::FieldManager));
    assert!(!impersonates(Carrier::Sequence));
    let printed = printed(Carrier::Impersonate);
    let manifests = printed.split("---\n");
    let itself = manifests.filter(|yaml| yaml.contains("[serviceaccounts]"));
    for yaml in itself {
        // In a ClusterRole it would name accounts of all namespaces.
        assert!(yaml.contains("kind: Role\n") && yaml.contains("resourceNames: [\"leader\"]"));
    }
}

/// Whatever a name looks like: `1`, `true` and `42` are names in Kubernetes, and no texts in YAML.
#[test]
fn names_that_look_like_something_else_stay_texts() {
    fn others(value: &serde_json::Value, at: &str, found: &mut Vec<String>) {
        match value {
            serde_json::Value::String(_) => {}
            serde_json::Value::Array(items) => {
                items.iter().for_each(|item| others(item, at, found));
            }
            serde_json::Value::Object(fields) => {
                for (name, field) in fields {
                    others(field, &format!("{at}.{name}"), found);
                }
            }
            other => found.push(format!("{at}: {other}")),
        }
    }
    for lease in ["shards/1", "demo/true", "42/x", "1e3/0x10", "demo/null"] {
        for carrier in Carrier::ALL {
            let wish = FencingSpec {
                lease: lease.to_owned(),
                ..wish(carrier)
            };
            let printed = Fencing::new(wish).unwrap().manifests();
            for yaml in printed.split("---\n").skip(1) {
                let manifest: serde_json::Value = serde_saphyr::from_str(yaml).unwrap();
                let mut found = Vec::new();
                others(&manifest, "", &mut found);
                assert!(found.is_empty(), "{found:?} in\n{yaml}");
            }
        }
    }
}

#[test]
fn every_manifest_has_a_name_of_its_own() {
    for carrier in Carrier::ALL {
        let printed = printed(carrier);
        let mut names: Vec<String> = printed
            .split("---\n")
            .skip(1)
            .map(|yaml| {
                let field = |name: &str| yaml.lines().find_map(|line| line.strip_prefix(name));
                let (kind, name) = (field("kind: ").unwrap(), field("  name: ").unwrap());
                format!("{kind} {name}")
            })
            .collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}

#[test]
fn the_keeper_comes_first_and_can_be_left_out() {
    assert!(printed(Carrier::Sequence).contains("keep-lease-informer"));
    let without = FencingSpec {
        keeper: false,
        ..wish(Carrier::Sequence)
    };
    let without = Fencing::new(without).unwrap().manifests();
    assert!(!without.contains("keep-lease-informer"), "{without}");
}

#[test]
fn what_cannot_be_fenced_is_refused_in_words() {
    let long = "x".repeat(120);
    for (refusal, words) in [
        (
            refused(|wish| wish.lease = "leader".into()),
            "NAMESPACE/NAME",
        ),
        (
            refused(|wish| wish.lease = "demo/".into()),
            "NAMESPACE/NAME",
        ),
        (
            refused(|wish| wish.lease = "Demo/leader".into()),
            "no namespace",
        ),
        (
            refused(|wish| wish.lease = "kube-system/a".into()),
            "belong to Kubernetes",
        ),
        (
            refused(|wish| wish.lease = "a/b/c".into()),
            "PREFIX/NAMESPACE/NAME",
        ),
        (
            refused(|wish| wish.lease = "demo/a'b".into()),
            "not allowed",
        ),
        (refused(|wish| wish.prefix = "a//b".into()), "cannot begin"),
        (refused(|wish| wish.resources.clear()), "deployments.apps"),
        (
            refused(|wish| wish.namespaces = vec!["A".into()]),
            "no namespace",
        ),
        (
            refused(|wish| wish.lease = format!("demo/{long}")),
            "field manager",
        ),
        (
            refused(|wish| wish.lease = format!("demo/{long}{long}")),
            "at most 2",
        ),
        (
            refused(|wish| wish.namespaces = vec!["a".into(); NAMESPACES_MAX + 1]),
            "at most 64",
        ),
    ] {
        assert!(refusal.contains(words), "{refusal}");
    }
}

#[test]
fn the_command_that_is_named_prints_the_same() {
    let other = FencingSpec {
        namespaces: vec!["a".into(), "b".into()],
        account: Some("demo/writer".parse().unwrap()),
        without_lease: WithoutLease::Deny,
        floors: "locks".into(),
        cluster: Some("0123456789abcdef".repeat(2)),
        keeper: false,
        ..wish(Carrier::FieldManager)
    };
    let printed = Fencing::new(other).unwrap().manifests();
    let command = "ringfence kube policy --lease demo/leader --resource configmaps --resource \
                   deployments.apps --carrier field-manager --service-account demo/writer \
                   --namespace a --namespace b --without-lease deny --floors locks --cluster-id \
                   0123456789abcdef0123456789abcdef --without-keeper";
    assert!(printed.contains(&format!("#   {command}\n")), "{printed}");
}

/// Without its account the canary would try that of another lease, or as an admin none.
#[test]
fn the_canary_that_is_named_tries_what_is_judged_here() {
    let other = FencingSpec {
        prefix: "locks".into(),
        namespaces: vec!["a".into(), "b".into()],
        account: Some("demo/writer".parse().unwrap()),
        ..wish(Carrier::Sequence)
    };
    for (wish, words) in [
        (
            wish(Carrier::Impersonate),
            "impersonate --service-account demo/leader",
        ),
        (
            other,
            "sequence --service-account demo/writer --kube-prefix locks --namespace a --namespace b",
        ),
    ] {
        let printed = Fencing::new(wish).unwrap().manifests();
        let line = format!("#   ringfence kube canary --lease demo/leader --carrier {words}\n");
        assert!(printed.contains(&line), "{printed}");
    }
}

/// One of the manifests, by the beginning of its name.
fn manifest(carrier: Carrier, kind: &str) -> String {
    let printed = printed(carrier);
    let name = format!("\n  name: {kind}.leader.demo.ringfence.io\n");
    let mut manifests = printed.split("---\n");
    let found = manifests.find(|yaml| yaml.contains(&name) && yaml.contains("matchConstraints"));
    found.unwrap().to_owned()
}

/// A text as it was before it was folded to the width of a page.
fn unfolded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Parameters are looked for before the subject is: `Deny` would refuse the namespace controller's
/// deletions, kubelet's statuses and all other writes.
#[test]
fn no_binding_refuses_everybody_while_something_is_missing() {
    for without_lease in [WithoutLease::Allow, WithoutLease::Deny] {
        for carrier in Carrier::ALL {
            let wish = FencingSpec {
                without_lease,
                ..wish(carrier)
            };
            let printed = Fencing::new(wish).unwrap().manifests();
            let actions = printed.matches("parameterNotFoundAction: ").count();
            let allowing = printed.matches("parameterNotFoundAction: Allow\n").count();
            assert_eq!((actions, allowing), (2, 2), "the keeper's and the floor's");
            let refuses = unfolded(&printed).contains("carries no token: acquire the lease");
            assert_eq!(refuses, without_lease == WithoutLease::Deny);
        }
    }
}

/// Where the lease is shown, tenants may write Leases.
#[test]
fn the_floor_stands_in_a_namespace_of_its_own_and_has_the_mirrors_label() {
    let printed = printed(Carrier::Impersonate);
    let mut manifests = printed.split("---\n");
    let object = manifests.find(|yaml| yaml.contains("\nkind: Lease\n"));
    let object = object.unwrap();
    for line in [
        "  name: \"floor.demo.leader\"",
        "  namespace: \"ringfence\"",
        "    app.kubernetes.io/managed-by: ringfence",
    ] {
        assert!(object.lines().any(|shown| shown == line), "{object}");
    }
    assert!(
        !object.contains(crate::TOKEN),
        "the mirror's alone: {object}"
    );
    let params = "  paramRef:\n    name: \"floor.demo.leader\"\n    namespace: \"ringfence\"\n";
    assert!(printed.contains(params), "{printed}");
    let floor = unfolded(&manifest(Carrier::Impersonate, "floor"));
    let labelled = "managed-by'].orValue('') == 'ringfence' ?";
    assert!(floor.contains(labelled), "{floor}");
}

/// `pods/resize` and `pods/ephemeralcontainers` carry the Pod, and their names say nothing about it.
#[test]
fn the_stamp_is_demanded_of_every_write_that_carries_the_object() {
    for carrier in Carrier::ALL {
        let mark = manifest(carrier, "mark");
        assert!(!mark.contains("subResource"), "{mark}");
        let exempt = "!(request.kind.group + '/' + request.kind.kind in ['autoscaling/Scale', \
                      'policy/Eviction', '/Binding', 'authentication.k8s.io/TokenRequest'])";
        assert!(unfolded(&mark).contains(exempt), "{mark}");
        for kind in ["stamp", "keep", "mark", "floor"] {
            let policy = manifest(carrier, kind);
            let all = "[\"deployments\", \"deployments/*\"]";
            assert!(policy.contains(all), "{kind}: {policy}");
        }
    }
}

/// The older path is a resource of its own, and what is written there comes onto the Pod.
#[test]
fn who_guards_pods_guards_their_bindings() {
    let guarding = |resource: &str| {
        let resources = vec![resource.parse().unwrap()];
        let spec = FencingSpec {
            resources,
            ..wish(Carrier::Impersonate)
        };
        Fencing::new(spec).unwrap().manifests()
    };
    let pods = guarding("pods");
    assert!(
        pods.contains("[\"pods\", \"pods/*\", \"bindings\"]"),
        "{pods}"
    );
    assert!(
        pods.contains("name: bind.leader.demo.ringfence.io"),
        "{pods}"
    );
    for other in ["configmaps", "pods.metrics.k8s.io"] {
        let printed = guarding(other);
        assert!(!printed.contains("\"bindings\""), "{printed}");
    }
}

#[test]
fn connections_are_judged_like_writes() {
    for carrier in Carrier::ALL {
        for kind in ["mark", "floor"] {
            let policy = manifest(carrier, kind);
            let rules = policy.matches("operations: [CREATE, UPDATE, DELETE, CONNECT]");
            assert_eq!(rules.count(), 2, "one for each group: {policy}");
        }
    }
}

#[test]
fn a_mark_falls_by_the_one_way_that_is_judged() {
    for carrier in Carrier::ALL {
        let (keep, lower) = (manifest(carrier, "keep"), manifest(carrier, "lower"));
        for policy in [&keep, &lower] {
            assert!(policy.contains(LOWER), "{policy}");
            assert!(policy.contains(".check('lower').allowed()"), "{policy}");
        }
        assert!(lower.contains("auditAnnotations:"), "{lower}");
        assert!(!lower.contains("request.userInfo.username =="), "{lower}");
    }
}

#[test]
fn only_marks_of_the_named_cluster_count() {
    let id = "0123456789abcdef".repeat(2);
    let of = |cluster: Option<&str>| {
        let wish = FencingSpec {
            cluster: cluster.map(str::to_owned),
            ..wish(Carrier::Impersonate)
        };
        Fencing::new(wish)
    };
    let printed = of(Some(&id)).unwrap().manifests();
    let counted = format!("[?'ringfence.io/cluster-id'].orValue('{id}') == '{id}'");
    assert!(unfolded(&printed).contains(&counted), "{printed}");
    let unnamed = of(None).unwrap().manifests();
    assert!(!unnamed.contains("ringfence.io/cluster-id"), "{unnamed}");
    for wrong in ["", "ab", &"X".repeat(32), "0'; drop --"] {
        let refused = of(Some(wrong)).unwrap_err().to_string();
        assert!(refused.contains("32 hexadecimal digits"), "{refused}");
    }
}

#[test]
fn without_mutation_no_policy_changes_a_write_and_the_same_names_are_used() {
    let kinds = |wish: FencingSpec| -> Vec<(String, String)> {
        let printed = Fencing::new(wish).unwrap().manifests();
        let manifests = printed.split("---\n").skip(1);
        manifests
            .map(|yaml| {
                let manifest: serde_json::Value = serde_saphyr::from_str(yaml).unwrap();
                let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
                (text(&manifest["kind"]), text(&manifest["metadata"]["name"]))
            })
            .collect()
    };
    let with: Vec<_> = kinds(wish(Carrier::Sequence));
    let with = with
        .into_iter()
        .filter(|(_, name)| !name.starts_with("stamp."));
    let expected: Vec<_> = with
        .map(|(kind, name)| (kind.replace("Mutating", "Validating"), name))
        .collect();
    assert_eq!(kinds(without_mutation()), expected);
    let printed = Fencing::new(without_mutation()).unwrap().manifests();
    assert!(!printed.contains("Mutating"), "{printed}");
    assert!(!printed.contains("1.36"), "{printed}");
    assert!(
        printed.contains("--carrier sequence --service-account demo/leader --without-mutation\n"),
        "{printed}"
    );
}

#[test]
fn without_mutation_is_refused_where_no_client_would_write_the_mark() {
    for carrier in [Carrier::Impersonate, Carrier::FieldManager] {
        let wish = FencingSpec {
            mutation: false,
            ..wish(carrier)
        };
        let refused = Fencing::new(wish).unwrap_err().to_string();
        let words = format!("with the carrier {carrier} a policy writes the mark");
        assert!(refused.contains(&words), "{refused}");
    }
    let cluster = FencingSpec {
        cluster: Some("ab".repeat(16)),
        ..without_mutation()
    };
    let refused = Fencing::new(cluster).unwrap_err().to_string();
    assert!(refused.contains("leave the id out"), "{refused}");
}

/// What operators read in `deploy/kubernetes/fencing`. With `RINGFENCE_REWRITE` set it is written
/// again, to be looked at in the diff.
#[test]
fn the_examples_are_as_printed() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = folder.join("../../deploy/kubernetes/fencing");
    let examples = Carrier::ALL.map(|carrier| (carrier.name().to_owned(), wish(carrier)));
    let unmutated = ("sequence-without-mutation".to_owned(), without_mutation());
    for (name, wish) in examples.into_iter().chain([unmutated]) {
        let example = FencingSpec {
            account: Some("demo/controller".parse().unwrap()),
            ..wish
        };
        let printed = Fencing::new(example).unwrap().manifests();
        let path = folder.join(format!("{name}.yaml"));
        if std::env::var_os("RINGFENCE_REWRITE").is_some() {
            std::fs::write(&path, &printed).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap();
        assert!(kept == printed, "{} is not as printed", path.display());
    }
}
