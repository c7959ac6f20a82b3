//! Answers for people: the `Table` of `meta.k8s.io/v1` that kubectl asks for and prints.

use serde_json::{Map, Value, json};

use crate::lease::Lease;
use crate::options::Include;
use crate::shown::{Change, Page, bookmarked, bytes, line};
use crate::time::MicroTime;

/// How rows are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The present time, from which ages are counted.
    pub now: MicroTime,
    /// What stands in a row beside its cells.
    pub include: Include,
}

impl Rows {
    /// One lease.
    #[must_use]
    pub fn object(&self, lease: &Lease) -> Vec<u8> {
        bytes(&table(vec![self.row(lease)], version(lease), true))
    }

    /// A line of a watch. `first`: the columns are named in the first line of a watch only.
    #[must_use]
    pub fn change(&self, change: Change, lease: &Lease, first: bool) -> Vec<u8> {
        line(
            change.word(),
            &table(vec![self.row(lease)], version(lease), first),
        )
    }

    /// A line of a watch: everything up to this version was sent. `initial`: this ends the initial
    /// events. `first` as of [`Rows::change`].
    #[must_use]
    pub fn bookmark(&self, resource_version: u64, initial: bool, first: bool) -> Vec<u8> {
        let page = Page {
            resource_version,
            ..Page::default()
        };
        let object = bookmarked(resource_version, initial);
        let row = json!({ "cells": ["", "", UNKNOWN], "object": object });
        line("BOOKMARK", &table(vec![row], page.metadata(), first))
    }

    pub(crate) fn row(&self, lease: &Lease) -> Value {
        let created = lease.metadata.creation_timestamp;
        let age = created.map_or_else(
            || UNKNOWN.to_owned(),
            |created| age(self.now.seconds().saturating_sub(created.seconds())),
        );
        let holder = lease.spec.holder().unwrap_or_default();
        let mut row = json!({ "cells": [lease.metadata.name, holder, age] });
        let object = match self.include {
            Include::None => return row,
            Include::Object => serde_json::to_value(lease.shown()),
            Include::Metadata => serde_json::to_value(&lease.metadata).map(|metadata| {
                json!({
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": metadata,
                })
            }),
        };
        row["object"] = object.unwrap_or_default();
        row
    }
}

const UNKNOWN: &str = "<unknown>";

fn version(lease: &Lease) -> Map<String, Value> {
    let version = lease.metadata.resource_version.clone().unwrap_or_default();
    Map::from_iter([("resourceVersion".to_owned(), Value::from(version))])
}

fn table(rows: Vec<Value>, metadata: Map<String, Value>, columns: bool) -> Value {
    let columns = if columns { self::columns() } else { json!([]) };
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

pub(crate) fn columns() -> Value {
    json!([
        {
            "name": "Name", "type": "string", "format": "name", "priority": 0,
            "description": "Name must be unique within a namespace.",
        },
        {
            "name": "Holder", "type": "string", "format": "", "priority": 0,
            "description": "holderIdentity contains the identity of the holder of a current lease.",
        },
        {
            "name": "Age", "type": "string", "format": "", "priority": 0,
            "description": "The time since the object was created.",
        },
    ])
}

/// Seconds as kubectl shows ages: two units at most.
fn age(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |large: i64, letter: char, small: i64, other: char| match seconds % large / small {
        0 => format!("{}{letter}", seconds / large),
        rest => format!("{}{letter}{rest}{other}", seconds / large),
    };
    match seconds {
        // A clock may be a second ahead of another.
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(MINUTE, 'm', 1, 's'),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(HOUR, 'h', MINUTE, 'm'),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(DAY, 'd', HOUR, 'h'),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => two(YEAR, 'y', DAY, 'd'),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::fixtures::held;

    fn rows(include: Include) -> Rows {
        Rows {
            now: MicroTime::from_micros(1_700_000_090_000_000),
            include,
        }
    }

    fn read(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn a_row_has_what_is_asked_for() {
        let of = |include| read(&rows(include).object(&held()))["rows"][0]["object"].clone();
        assert_eq!(of(Include::None), Value::Null);
        assert_eq!(of(Include::Object)["spec"]["leaseTransitions"], 3);
    }

    #[test]
    fn a_watch_names_its_columns_once() {
        let rows = rows(Include::Metadata);
        let first = read(&rows.change(Change::Added, &held(), true));
        assert_eq!(
            first["object"]["columnDefinitions"]
                .as_array()
                .unwrap()
                .len(),
            3
        );
        let later = read(&rows.bookmark(7, true, false));
        assert_eq!(later["object"]["columnDefinitions"], json!([]));
        assert_eq!(later["object"]["metadata"]["resourceVersion"], "7");
    }

    #[test]
    fn ages_are_shown_as_kubectl_shows_them() {
        for (seconds, shown) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (3_600, "60m"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
            (63_072_000 + 86_400, "2y1d"),
            (i64::MAX, "292471208677y"),
        ] {
            assert_eq!(age(seconds), shown);
        }
    }
}
