//! Deletes at the Lease endpoint: who may end the grant of another one, and what it learns by that.

use serde_json::{Value, json};

use crate::lease_api::{LEASES, Secured, WEB, web};

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_without_its_right_renews_and_who_may_revoke_deletes() {
    let node = Secured::start().await;
    let rule = ("acquire", "k8s/shop/*");
    let elector = node.principal("elector", &[rule]);
    let revoker = node.principal("revoker", &[("revoke", "k8s/shop/*")]);
    let mut held = node.ask(Some(&elector), "POST", LEASES, Some(&web("one")));
    assert_eq!(held.status, 201, "{}", held.body);
    node.operate(&["access", "revoke", "token:elector", rule.0, rule.1]);

    for method in ["PUT", "PATCH"] {
        let mut renewal = web("one");
        renewal["metadata"]["resourceVersion"] = held.body["metadata"]["resourceVersion"].clone();
        renewal["spec"]["renewTime"] = json!("2026-11-25T08:00:00.000000Z");
        held = node.ask(Some(&elector), method, WEB, Some(&renewal));
        assert_eq!(held.status, 200, "{method}: {}", held.body);
        let fence = "ringfence-fence: k8s/shop/web#";
        assert!(held.headers.contains(fence), "{}", held.headers);
    }
    let read = node.ask(Some(&elector), "GET", WEB, None);
    assert_eq!(read.status, 403, "{}", read.body);
    let read = node.ask(Some(&revoker), "GET", WEB, None);
    assert_eq!(read.status, 403, "{}", read.body);
    let deleted = node.ask(Some(&revoker), "DELETE", WEB, None);
    assert_eq!(deleted.status, 200, "{}", deleted.body);
    // It holds nothing now, and has no right.
    let refused = node.ask(Some(&elector), "PATCH", WEB, Some(&web("one")));
    assert_eq!(refused.status, 403, "{}", refused.body);
    drop(node.node);
}

/// It ends grants, and no answer that changes nothing shows it whether there are any.
#[tokio::test(flavor = "multi_thread")]
async fn who_may_revoke_and_not_read_learns_nothing_without_an_act() {
    let node = Secured::start().await;
    let may = |verb| (verb, "k8s/shop/*");
    let elector = node.principal("elector", &[may("acquire")]);
    let revoker = node.principal("revoker", &[may("revoke")]);
    let operator = node.principal("operator", &[may("revoke"), may("observe")]);
    let made = |name: &str, holder: &str| {
        let mut lease = web(holder);
        lease["metadata"]["name"] = json!(name);
        // It outlasts the calls below on a machine that is busy.
        lease["spec"]["leaseDurationSeconds"] = json!(60);
        let made = node.ask(Some(&elector), "POST", LEASES, Some(&lease));
        assert_eq!(made.status, 201, "{}", made.body);
    };
    made("held", "one");
    made("free", "");
    let names = ["held", "free", "gone"];

    let answered = |token: &str, name: &str, query: &str, body: Option<&Value>| {
        let path = format!("{LEASES}/{name}{query}");
        let answer = node.ask(Some(token), "DELETE", &path, body);
        let text = answer.body.to_string().replace(name, "NAME");
        (answer.status, text)
    };
    let given = |name: &str, value: &str| json!({ "preconditions": { name: value } });
    let (version, uid) = (given("resourceVersion", "1"), given("uid", "none"));
    for (query, body) in [
        ("?dryRun=All", None),
        ("", Some(&version)),
        ("", Some(&uid)),
    ] {
        let hidden = names.map(|name| answered(&revoker, name, query, body));
        assert_eq!(hidden[0].0, 403, "{}", hidden[0].1);
        assert!(hidden.iter().all(|it| *it == hidden[0]), "{hidden:#?}");
    }
    let nothing_held = ["free", "gone"].map(|name| answered(&revoker, name, "", None));
    assert_eq!(nothing_held[0].0, 403, "{}", nothing_held[0].1);
    assert_eq!(nothing_held[0], nothing_held[1]);
    // Who may read learns it.
    let shown = names.map(|name| answered(&operator, name, "?dryRun=All", None).0);
    assert_eq!(shown, [200, 403, 404]);
    assert_eq!(answered(&operator, "held", "", Some(&version)).0, 409);
    assert_eq!(answered(&revoker, "held", "", None).0, 200);
    drop(node.node);
}
