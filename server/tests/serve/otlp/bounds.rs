//! How much callers can make a node record.

use std::time::Duration;

use ringfence_proto::v1;
use ringfence_proto::v1::client_frame::Body as Ask;
use tokio::time::timeout;

use super::collector::Collector;
use super::{exporting, traceparent};
use crate::api::Api;
use crate::process::{PATIENCE, Process};
use crate::stream::Wire;

/// As `SPANS_PER_SECOND_MAX` of the server.
const SPANS_PER_SECOND_MAX: u64 = 2_000;

pub(super) fn dropped(node: &Process, reason: &str) -> u64 {
    let series = format!("ringfence_otlp_spans_dropped_total{{reason=\"{reason}\"}} ");
    let (_, page) = node.http("/metrics").unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(&series));
    line.unwrap_or_else(|| panic!("no {series} in {page}"))
        .parse()
        .unwrap()
}

/// So many reads of one lease by frames, each in a caller's trace or in none.
pub(super) async fn read(api: &mut Api, count: u64, traceparent: &str) {
    let mut wire = Wire::open(api).await.unwrap();
    wire.next().await.unwrap();
    for first in (1..=count).step_by(500) {
        let frames = (first..first + 500).map(|id| v1::ClientFrame {
            id,
            body: Some(Ask::Get(v1::GetRequest {
                name: "db".to_owned(),
                read: None,
            })),
            traceparent: traceparent.to_owned().into(),
        });
        wire.send(frames.collect());
        for _ in 0..500 {
            wire.next().await.unwrap().expect("an open stream");
        }
    }
}

#[tokio::test]
async fn a_callers_flag_counts_within_the_limit_of_spans() {
    let collector = Collector::start().await;
    let (node, _dir) = exporting(&collector.flag(), &[], &["--trace-sample=0"]).await;
    let mut api = Api::of(&node).await;
    read(&mut api, 500, &traceparent(false)).await;
    read(&mut api, 500, "").await;
    assert_eq!(dropped(&node, "rate"), 0);

    #[expect(clippy::disallowed_methods, reason = "says how long the flood took")]
    let begun = std::time::Instant::now();
    let asked = 4 * SPANS_PER_SECOND_MAX;
    let flood = async {
        let mut asked_in_all = 0;
        while dropped(&node, "rate") == 0 {
            read(&mut api, asked, &traceparent(true)).await;
            asked_in_all += asked;
        }
        asked_in_all
    };
    let asked = timeout(PATIENCE, flood).await.expect("a limit");
    let most = SPANS_PER_SECOND_MAX * (begun.elapsed().as_secs() + 2);
    // Each was recorded and sent, or is counted.
    let counted = async {
        loop {
            let sent = collector.spans().len() as u64;
            let lost = ["rate", "queue", "collector"].map(|why| dropped(&node, why));
            if sent + lost.iter().sum::<u64>() == asked {
                return sent;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let sent = timeout(PATIENCE, counted).await.expect("each is counted");
    assert!(sent <= most, "{sent} of {asked}, at most {most}");
    let spans = collector.spans();
    assert!(spans.iter().all(|span| span.parent == super::CALLER));
}
