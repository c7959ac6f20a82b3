//! What leases, grants, sessions and their ends look like, as JSON and to people.

use ringfence_proto::v1::{EndCause, Grant, Lease, Pod, PodSeen, Position, Session, end_cause};
use ringfence_proto::wire::position_to_wire;
use serde_json::{Map, Value, json};

use crate::cli::duration;

/// The value, or a dash in a table.
pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A number with what it counts, of which `one` is the name: `1 lease`, `2 leases`.
pub(crate) fn counted(count: u64, one: &str) -> String {
    let stem = one.strip_suffix('y');
    let stem = stem.filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    match (count, stem) {
        (1, _) => format!("1 {one}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        (_, None) => format!("{count} {one}s"),
    }
}

/// The milliseconds of a TTL that stand for none: the session lasts as long as a Pod.
pub(crate) const FOR_LIFE: u64 = u64::MAX;

/// A TTL, or what is left of it, for people.
pub(crate) fn lasting(millis: u64) -> String {
    match millis {
        FOR_LIFE => "for life".to_owned(),
        millis => duration::show(millis),
    }
}

/// A TTL, or what is left of it, as JSON; `null` for life.
fn lasting_ms(millis: u64) -> Value {
    (millis != FOR_LIFE).then_some(millis).into()
}

/// A Pod for people: `NAMESPACE/NAME (UID)`, and its container if that is named.
pub(crate) fn pod(pod: &Pod) -> String {
    let container = match pod.container.as_str() {
        "" => String::new(),
        container => format!(" {container}"),
    };
    format!("{}/{}{container} ({})", pod.namespace, pod.name, pod.uid)
}

/// A grant's own fields.
pub(crate) fn grant(grant: &Grant) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("name".into(), grant.name.clone().into());
    object.insert("token".into(), grant.token.into());
    object.insert("holder".into(), grant.identity.clone().into());
    object.insert("session_number".into(), grant.session.into());
    if !grant.data.is_empty() {
        object.insert("data".into(), String::from_utf8_lossy(&grant.data).into());
    }
    object.insert("index".into(), grant.index.into());
    object.insert("since_unix_ms".into(), grant.since_unix_ms.into());
    object
}

/// A lease as a reader sees it.
pub(crate) fn lease(lease: &Lease) -> Map<String, Value> {
    let mut object = match &lease.holder {
        Some(holder) => grant(holder),
        None => Map::from_iter([
            ("token".to_owned(), Value::Null),
            ("holder".into(), Value::Null),
        ]),
    };
    object.insert("name".into(), lease.name.clone().into());
    if lease.holder.is_some() {
        object.insert("ttl_ms".into(), lasting_ms(lease.ttl_ms));
        object.insert("remaining_ms".into(), lasting_ms(lease.remaining_ms));
    }
    object.insert("waiters".into(), lease.waiters.into());
    object.insert(
        "floor".into(),
        (lease.floor != 0).then_some(lease.floor).into(),
    );
    object.insert("blocked_ms".into(), lease.blocked_ms.into());
    object
}

/// A session as a reader sees it.
pub(crate) fn session(session: &Session) -> Map<String, Value> {
    let leases = session.leases.iter();
    let leases: Vec<Value> = leases
        .map(|held| json!({ "name": held.name, "token": held.token }))
        .collect();
    let pod = session.pod.as_ref().map(|pod| {
        json!({
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "container": pod.container,
        })
    });
    Map::from_iter([
        ("session_number".to_owned(), session.session.into()),
        ("holder".into(), session.identity.clone().into()),
        ("ttl_ms".into(), lasting_ms(session.ttl_ms)),
        ("remaining_ms".into(), lasting_ms(session.remaining_ms)),
        ("pod".into(), pod.into()),
        ("leases".into(), leases.into()),
        ("waits".into(), session.waits.into()),
    ])
}

/// Adds why a grant ended.
pub(crate) fn insert_cause(object: &mut Map<String, Value>, cause: &EndCause) {
    object.insert("cause".into(), cause.kind().as_str_name().into());
    for (key, text) in [("operator", &cause.operator), ("reason", &cause.reason)] {
        if !text.is_empty() {
            object.insert(key.into(), text.clone().into());
        }
    }
    if !cause.pod_uid.is_empty() {
        object.insert("pod_uid".into(), cause.pod_uid.clone().into());
        object.insert("pod_seen".into(), cause.pod_seen().as_str_name().into());
    }
    if cause.to_session != 0 {
        object.insert("to_session".into(), cause.to_session.into());
    }
}

/// What was seen of a Pod, for people.
fn pod_seen(seen: PodSeen) -> &'static str {
    match seen {
        PodSeen::Unspecified => "is over",
        PodSeen::Gone => "is gone",
        PodSeen::Succeeded => "has succeeded",
        PodSeen::Failed => "has failed",
        PodSeen::NodeOutOfService => "was on a node out of service",
        PodSeen::Restarted => "has started its container again",
    }
}

/// Why a grant ended, for people.
pub(crate) fn cause(cause: &EndCause) -> String {
    use end_cause::Kind;
    let mut text = match cause.kind() {
        Kind::Unspecified => "ended".to_owned(),
        Kind::Released => "released".to_owned(),
        Kind::Expired => "expired".to_owned(),
        Kind::Closed => "session closed".to_owned(),
        Kind::Revoked => "revoked".to_owned(),
        Kind::Evicted => "session evicted".to_owned(),
        Kind::Transferred => format!("handed to session {}", cause.to_session),
        Kind::PodEnded => format!("Pod {} {}", cause.pod_uid, pod_seen(cause.pod_seen())),
    };
    if !cause.operator.is_empty() {
        text.push_str(&format!(" by {}", cause.operator));
    }
    if !cause.reason.is_empty() {
        text.push_str(&format!(": {}", cause.reason));
    }
    text
}

/// Reads a position, as a request carries it.
///
/// # Errors
/// A text for the user.
pub(crate) fn parse_position(raw: &str) -> Result<Position, String> {
    raw.parse().map(position_to_wire)
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sixteen bytes written in hexadecimal.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = (0..16).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok());
    pairs.collect()
}

/// A wall time for people, in UTC: `2026-03-01 12:00:00Z`.
pub(crate) fn wall(unix_ms: u64) -> String {
    let seconds = unix_ms / 1_000;
    let (days, in_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (in_day / 3_600, in_day / 60 % 60, in_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    // 400 years always have this many days, so only the rest has to be counted.
    const DAYS_400: u64 = 146_097;
    let (mut year, mut left) = (1970 + 400 * (days / DAYS_400), days % DAYS_400);
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_for_a_pod_names_it_and_has_no_times() {
        let bound_to = Pod {
            namespace: "shop".into(),
            name: "controller-0".into(),
            uid: "0a1b".into(),
            container: "main".into(),
        };
        let shown = session(&Session {
            ttl_ms: u64::MAX,
            remaining_ms: u64::MAX,
            pod: Some(bound_to.clone()),
            ..Session::default()
        });
        assert_eq!(shown["pod"]["uid"], "0a1b");
        assert_eq!(
            (&shown["ttl_ms"], &shown["remaining_ms"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(lasting(u64::MAX), "for life");
        assert_eq!(pod(&bound_to), "shop/controller-0 main (0a1b)");

        let shown = session(&Session {
            ttl_ms: 15_000,
            ..Session::default()
        });
        assert_eq!(
            (&shown["pod"], &shown["ttl_ms"]),
            (&Value::Null, &15_000.into())
        );
    }

    #[test]
    fn one_is_no_plural() {
        let shown = [0, 1, 2].map(|count| counted(count, "lease"));
        assert_eq!(shown, ["0 leases", "1 lease", "2 leases"]);
        let shown = [1, 2].map(|count| counted(count, "entry"));
        assert_eq!(shown, ["1 entry", "2 entries"]);
        assert_eq!(counted(2, "day"), "2 days");
    }

    #[test]
    fn wall_times_are_those_of_the_calendar() {
        let shown = [0, 951_782_400_000, 1_709_210_096_000, 4_102_444_799_000].map(wall);
        let expected = [
            "1970-01-01 00:00:00Z",
            "2000-02-29 00:00:00Z",
            "2024-02-29 12:34:56Z",
            "2099-12-31 23:59:59Z",
        ];
        assert_eq!(shown, expected);
    }
}
