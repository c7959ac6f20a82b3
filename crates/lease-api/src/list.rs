//! Lists, written piece by piece: a list of all leases may be larger than a server wants to have in
//! memory. What the list says of itself comes last, when it is known.

use serde_json::json;

use crate::lease::Lease;
use crate::shown::{Page, bytes};
use crate::status::API_VERSION;
use crate::table::{Rows, columns};

/// A `LeaseList`, whose items have no kind of their own, as those of kube-apiserver; or a `Table`.
#[derive(Clone, Debug)]
pub struct ListWriter {
    rows: Option<Rows>,
    is_begun: bool,
    has_items: bool,
}

impl ListWriter {
    /// A list; with `rows` a Table of them.
    #[must_use]
    pub fn new(rows: Option<Rows>) -> Self {
        Self {
            rows,
            is_begun: false,
            has_items: false,
        }
    }

    /// The next leases. Nothing for none of them, once the list has begun.
    #[must_use]
    pub fn items<'a>(&mut self, leases: impl IntoIterator<Item = &'a Lease>) -> Vec<u8> {
        let mut piece = self.beginning();
        for lease in leases {
            if self.has_items {
                piece.push(b',');
            }
            self.has_items = true;
            piece.extend(match &self.rows {
                None => bytes(lease),
                Some(rows) => bytes(&rows.row(lease)),
            });
        }
        piece
    }

    /// The end.
    #[must_use]
    pub fn end(mut self, page: &Page) -> Vec<u8> {
        let mut piece = self.beginning();
        piece.extend(b"],\"metadata\":");
        piece.extend(bytes(&page.metadata()));
        piece.push(b'}');
        piece
    }

    fn beginning(&mut self) -> Vec<u8> {
        if self.is_begun {
            return Vec::new();
        }
        self.is_begun = true;
        let (head, items) = match &self.rows {
            None => (
                json!({ "kind": "LeaseList", "apiVersion": API_VERSION }),
                "items",
            ),
            Some(_) => {
                let head = json!({
                    "kind": "Table",
                    "apiVersion": "meta.k8s.io/v1",
                    "columnDefinitions": columns(),
                });
                (head, "rows")
            }
        };
        let mut piece = bytes(&head);
        // The object goes on.
        piece.pop();
        piece.extend(format!(",\"{items}\":[").bytes());
        piece
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::lease::fixtures::held;
    use crate::options::Include;
    use crate::time::MicroTime;

    /// The list of these pieces, each of so many leases.
    fn list(rows: Option<Rows>, pieces: &[usize], page: &Page) -> Value {
        let mut writer = ListWriter::new(rows);
        let mut text = Vec::new();
        for count in pieces {
            text.extend(writer.items(&vec![held(); *count]));
        }
        text.extend(writer.end(page));
        serde_json::from_slice(&text).unwrap()
    }

    #[test]
    fn a_list_has_its_version_and_items_without_kind() {
        let page = Page {
            resource_version: 42,
            continue_at: Some("next".to_owned()),
            remaining: Some(3),
        };
        let shown = list(None, &[1], &page);
        assert_eq!(shown["kind"], "LeaseList");
        assert_eq!(shown["apiVersion"], API_VERSION);
        let metadata = json!({
            "resourceVersion": "42", "continue": "next", "remainingItemCount": 3,
        });
        assert_eq!(shown["metadata"], metadata);
        assert_eq!(shown["items"][0]["metadata"]["name"], "leader");
        assert_eq!(shown["items"][0]["kind"], Value::Null);
        let none = list(None, &[], &Page::default());
        assert_eq!(none["items"], json!([]));
        assert_eq!(none["metadata"], json!({ "resourceVersion": "0" }));
    }

    #[test]
    fn a_table_has_the_columns_of_kubectl() {
        let page = Page {
            resource_version: 42,
            ..Page::default()
        };
        let rows = Rows {
            now: MicroTime::from_micros(1_700_000_090_000_000),
            include: Include::Metadata,
        };
        let table = list(Some(rows), &[1], &page);
        let columns = table["columnDefinitions"].as_array().unwrap();
        let names: Vec<&str> = columns
            .iter()
            .filter_map(|column| column["name"].as_str())
            .collect();
        assert_eq!(names, ["Name", "Holder", "Age"]);
        assert_eq!(table["metadata"]["resourceVersion"], "42");
        let row = &table["rows"][0];
        assert_eq!(row["cells"], json!(["leader", "pod-1_a", "90s"]));
        assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(row["object"]["metadata"]["namespace"], "shop");
    }

    #[test]
    fn a_list_is_the_same_in_whatever_pieces_it_is_written() {
        let rows = Rows {
            now: MicroTime::from_micros(1_700_000_090_000_000),
            include: Include::None,
        };
        for rows in [None, Some(rows)] {
            let whole = list(rows, &[5], &Page::default());
            for pieces in [&[1, 1, 1, 1, 1][..], &[0, 2, 0, 3], &[5, 0], &[0, 0, 5]] {
                assert_eq!(list(rows, pieces, &Page::default()), whole, "{pieces:?}");
            }
        }
    }
}
