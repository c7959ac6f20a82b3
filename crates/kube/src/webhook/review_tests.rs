use super::*;

fn review(request: &Value) -> Review {
    let text = json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": request});
    Review::parse(text.to_string().as_bytes()).unwrap()
}

fn write(extra: &Value) -> Value {
    json!({
        "uid": "u1", "operation": "UPDATE", "namespace": "demo",
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "userInfo": {"username": "a", "extra": {"ringfence.io/fence": extra}},
        "object": {"metadata": {"labels": {"ringfence.io/lease": "leader"}}},
        "oldObject": {"metadata": {}},
    })
}

fn refusal(offer: Offer) -> String {
    match offer {
        Offer::Settled(Answer::Refused(words)) => words,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_fence_of_the_lease_that_the_object_names_is_looked_up() {
    let offer = review(&write(&json!(["k8s/demo/leader#42"]))).offer(Carrier::Impersonate, "k8s");
    let lease = LeaseName::parse("k8s/demo/leader").unwrap();
    let token = FencingToken::new(42).unwrap();
    assert_eq!(offer, Offer::Fence { lease, token });
}

#[test]
fn another_leases_fence_is_refused_before_the_cluster_is_asked() {
    let offered = |request: &Value| refusal(review(request).offer(Carrier::Impersonate, "k8s"));
    let words = offered(&write(&json!(["k8s/demo/other#42"])));
    assert!(
        words.contains("of another lease; k8s/demo/leader"),
        "{words}"
    );

    let mut relabelled = write(&json!(["k8s/demo/leader#42"]));
    relabelled["oldObject"]["metadata"]["annotations"]["ringfence.io/lease"] = json!("shards/7");
    let words = offered(&relabelled);
    assert!(words.contains("shards/7 guards this object"), "{words}");

    let mut nowhere = write(&json!(["k8s/demo/leader#42"]));
    nowhere["namespace"] = json!("");
    assert!(offered(&nowhere).contains("by the annotation"));
}

#[test]
fn an_object_that_names_no_lease_takes_a_fence_of_any() {
    let mut request = write(&json!(["shards/7#42"]));
    request["object"] = json!(null);
    let offer = review(&request).offer(Carrier::Impersonate, "k8s");
    assert!(matches!(offer, Offer::Fence { .. }), "{offer:?}");
}

#[test]
fn what_is_no_single_fence_is_refused() {
    for (extra, words) in [
        (json!(null), "UPDATE carries no fence"),
        (json!([]), "carries no fence"),
        (json!([""]), "carries no fence"),
        (json!(["a#1", "a#1"]), "carries 2 fences"),
        (json!(["k8s/demo/leader"]), "malformed fence"),
        (json!(["k8s/demo/leader#0"]), "malformed fence"),
        (json!(["k8s/demo/leader#+7"]), "malformed fence"),
        (json!(["k8s/demo/leader#07"]), "malformed fence"),
        (
            json!(["k8s/demo/leader#9223372036854775808"]),
            "malformed fence",
        ),
    ] {
        let refused = refusal(review(&write(&extra)).offer(Carrier::Impersonate, "k8s"));
        assert!(refused.starts_with("ringfence: "), "{refused}");
        assert!(refused.contains(words), "{extra}: {refused}");
    }
}

#[test]
fn the_other_carriers_are_read_where_they_stand() {
    let mut request = write(&json!(null));
    let offered = |request: &Value, carrier| review(request).offer(carrier, "k8s");
    request["options"] = json!({"fieldManager": "kubectl-edit"});
    let words = refusal(offered(&request, Carrier::FieldManager));
    assert!(words.contains("field manager"), "{words}");
    request["options"] = json!({"fieldManager": "k8s/demo/leader#42"});
    let by_manager = offered(&request, Carrier::FieldManager);
    assert!(matches!(by_manager, Offer::Fence { .. }), "{by_manager:?}");

    let stamped = |stamp: &str| {
        let mut request = write(&json!(null));
        request["object"]["metadata"]["annotations"] = json!({ STAMP: stamp });
        offered(&request, Carrier::Sequence)
    };
    assert_eq!(stamped("k8s/demo/leader#42.7"), by_manager);
    for wrong in [
        "k8s/demo/leader#42",
        "k8s/demo/leader#42.0",
        "k8s/demo/leader#42.x",
    ] {
        assert!(refusal(stamped(wrong)).contains("malformed"), "{wrong}");
    }
}

#[test]
fn a_deletion_that_cannot_carry_a_fence_is_left_to_the_policies() {
    let mut request = write(&json!(null));
    request["operation"] = json!("DELETE");
    for carrier in Carrier::ALL {
        let offer = review(&request).offer(carrier, "k8s");
        let admitted = offer == Offer::Settled(Answer::Admitted);
        assert_eq!(admitted, carrier != Carrier::Impersonate, "{carrier}");
    }
}

#[test]
fn an_election_is_never_in_the_way() {
    let mut request = write(&json!(null));
    request["resource"]["group"] = json!("coordination.k8s.io");
    let offer = review(&request).offer(Carrier::Impersonate, "k8s");
    assert_eq!(offer, Offer::Settled(Answer::Admitted));
}

#[test]
fn only_a_grant_in_force_is_admitted() {
    let lease = LeaseName::parse("a/b").unwrap();
    let judged = |standing| judge(&lease, FencingToken::new(7).unwrap(), standing);
    assert_eq!(judged(Standing::Current), Answer::Admitted);
    for (standing, words) in [
        (
            Standing::Superseded(8),
            "stale fence a/b#7: the lease is at token 8",
        ),
        (Standing::Ended, "stale fence a/b#7: its grant has ended"),
        (Standing::Unknown, "forged fence a/b#7"),
    ] {
        let Answer::Refused(said) = judged(standing) else {
            panic!("{standing:?} was admitted");
        };
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn the_answer_names_the_question() {
    let review = review(&write(&json!(null)));
    let admitted = review.answer(&Answer::Admitted);
    assert_eq!(admitted["response"], json!({"uid": "u1", "allowed": true}));
    let refused = review.answer(&Answer::Refused("ringfence: no".into()));
    assert_eq!(refused["response"]["status"]["code"], 403);
    assert_eq!(refused["response"]["allowed"], false);
}

#[test]
fn what_is_no_review_is_refused() {
    for text in [
        "",
        "{}",
        "[]",
        r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
    ] {
        assert!(Review::parse(text.as_bytes()).is_err(), "{text:?}");
    }
}
