//! Events: what people see with `kubectl describe lease`.

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, PostParams};
use tracing::debug;

use crate::lease_object::MANAGER;
use crate::name::ObjectName;
use crate::sync_error::in_full;

/// How much of an object's name stands in that of its event.
const NAME_CHARS_MAX: usize = 200;

/// The reason of events about what was undone.
pub const UNDONE: &str = "MirrorRestored";

/// Tells that what another writer did to an object was undone. Nothing depends on its arrival.
pub(crate) async fn undone(client: &Client, object: &ObjectName, uid: &str, what: &str) {
    let message = format!(
        "Ringfence restored this Lease, which only shows one of its own: {what}. Acquire, release \
         or revoke the lease at Ringfence instead"
    );
    tracing::warn!(%object, what, "a mirrored Lease was meddled with; restored");
    let api: Api<Event> = Api::namespaced(client.clone(), &object.namespace);
    let event = event(object, uid, message);
    if let Err(error) = api.create(&PostParams::default(), &event).await {
        debug!(%object, error = in_full(&error), "the event was not taken");
    }
}

fn event(object: &ObjectName, uid: &str, message: String) -> Event {
    let name: String = object.name.chars().take(NAME_CHARS_MAX).collect();
    // For people; what counts is the time at which the API server takes it.
    let now = Time(Timestamp::now());
    Event {
        metadata: ObjectMeta {
            namespace: Some(object.namespace.to_string()),
            generate_name: Some(format!("{name}.")),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            namespace: Some(object.namespace.to_string()),
            name: Some(object.name.to_string()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        },
        reason: Some(UNDONE.to_owned()),
        message: Some(message),
        type_: Some("Warning".to_owned()),
        count: Some(1),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        source: Some(EventSource {
            component: Some(MANAGER.to_owned()),
            ..EventSource::default()
        }),
        reporting_component: Some(MANAGER.to_owned()),
        ..Event::default()
    }
}
