//! Wall-clock ranges, failing open, and the two gauges.

use std::ops::RangeInclusive;
use std::time::Duration;

use ringfence_client::{BootClock, Client, Clock, Gauges, HeldLease, Range, Successor, Timings};
use ringfence_tests::{Cluster, Options, Signal};
use rustix::time::{ClockId, clock_gettime};

use crate::support::{
    LEASE, LONG, Proxy, Story, client, elector, eventually, long, one_node, short, within,
};

/// For how long a request or a keep-alive lets the holder of a [`LEASE`] believe, counted from when it
/// was sent: the duration less 1 % and the greater one of 50 ms and a fiftieth.
const BELIEF: Duration = Duration::from_millis(3_000 - 30 - 60);

/// Times whose deadline for renewals is no shorter than belief is anyway.
fn full() -> Timings {
    let (renew, retry) = (
        LEASE - Duration::from_millis(50),
        Duration::from_millis(100),
    );
    Timings::new(Some(LEASE), Some(renew), Some(retry)).unwrap()
}

/// How long before the end of belief its holder is notified, at most.
const TOLD_BEFORE: Duration = Duration::from_millis(20);
/// Ranges are in whole milliseconds.
const ROUNDED: u64 = 1;

fn wall_ms() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

/// A look at a range, between two looks at the clocks: however long this machine takes for it, what
/// it has to be is known to within that time.
struct Look {
    range: Range,
    /// The earliest and the latest end that it may have.
    end: RangeInclusive<u64>,
    /// The wall clock behind it.
    at: u64,
}

impl Look {
    /// `None` if there is no range any more.
    fn at(lease: &HeldLease) -> Option<Self> {
        let (wall, boot, until) = (wall_ms(), BootClock.now(), lease.valid_until());
        let range = lease.range()?;
        // A renewal may have come in between.
        let (until_now, boot_now, wall_now) = (lease.valid_until(), BootClock.now(), wall_ms());
        let took = millis(boot_now.saturating_since(boot)) + ROUNDED;
        Some(Self {
            range,
            end: wall + millis(until.saturating_since(boot_now)) - took - ROUNDED
                ..=wall_now + millis(until_now.saturating_since(boot)) + ROUNDED,
            at: wall_now,
        })
    }
}

#[tokio::test]
async fn s2_4_the_range_goes_from_the_grant_to_the_end_of_what_was_renewed() {
    let mut cluster = one_node().await;
    let client = client(&cluster).await;
    let asked = wall_ms();
    let lease = elector(&client, "alice", full()).campaign("db").lead();
    let lease = lease.await.unwrap();
    let first = Look::at(&lease).unwrap();
    let look_took = first.end.end() - first.end.start();
    let (start, end) = (first.range.start_unix_ms, first.range.end_unix_ms);
    assert_eq!(start, lease.granted_unix_ms());
    assert!(
        (asked..=first.at).contains(&start),
        "{asked} {start} {}",
        first.at
    );
    // What the grant stands on was sent in between.
    let belief = millis(BELIEF);
    let ends = asked + belief - look_took..=first.at + belief + ROUNDED;
    assert!(ends.contains(&end), "{end} is not within {ends:?}");

    // Each renewal moves its end, to where belief ends and no further, and nothing moves its start.
    let (mut renewals, mut newest) = (0, lease.valid_until());
    while renewals < 3 {
        let look = Look::at(&lease).expect("it is renewed");
        let Range {
            start_unix_ms,
            end_unix_ms,
            failing_open,
        } = look.range;
        assert!((start_unix_ms, failing_open) == (start, false));
        assert!(
            look.end.contains(&end_unix_ms),
            "{end_unix_ms} {:?}",
            look.end
        );
        assert!(end_unix_ms <= look.at + belief + ROUNDED, "{end_unix_ms}");
        renewals += u32::from(lease.valid_until() > newest);
        newest = lease.valid_until();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    // Renewals that fail leave it where it is; what is left of it runs out, and then it is gone.
    cluster.signal(0, Signal::Kill);
    // Acknowledgements that were under way have come long before half of it has passed.
    eventually("half of it has passed", || lease.remaining() < BELIEF / 2).await;
    let until = lease.valid_until();
    let mut looks = 0;
    while let Some(look) = Look::at(&lease) {
        let end = look.range.end_unix_ms;
        assert_eq!(
            (look.range.start_unix_ms, lease.valid_until()),
            (start, until)
        );
        assert!(look.end.contains(&end), "{end} {:?}", look.end);
        looks += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let gone = BootClock.now();
    assert!(gone + TOLD_BEFORE >= until, "{gone:?} {until:?}");
    assert!(looks > 0, "it was never seen to stand");
    within("the loss", lease.lost()).await;
}

#[tokio::test]
async fn s2_5_the_last_holder_fails_open_until_another_one_is_seen() {
    let proxy = Proxy::start().await;
    // All clients are configured to connect through the proxy, so that cutting it cuts alice off.
    let options = Options {
        nodes: 1,
        flags: vec!["--advertise-client".into(), proxy.address.clone()],
        ..Options::default()
    };
    let cluster = Cluster::start(options).await;
    let real = cluster.endpoints().remove(0);
    proxy.point_to(&real);
    let near = connect(&proxy.address).await;
    let gauges = Gauges::new();
    let campaign = elector(&near, "alice", short())
        .campaign("db")
        .fail_open(true)
        .gauges(&gauges)
        .unwrap();
    let (handle, running) = (campaign.handle(), campaign.run_callbacks());
    let running = tokio::spawn(running);
    let candidate = elector(&near, "carol", short())
        .campaign("db")
        .fail_open(true);
    let (never_held, candidate) = (candidate.handle(), tokio::spawn(candidate.run_callbacks()));
    eventually("one leads", || {
        handle.is_leading() || never_held.is_leading()
    })
    .await;
    let (last, other) = if handle.is_leading() {
        (handle, never_held)
    } else {
        (never_held, handle)
    };
    assert_eq!(other.range(), None, "not the holder's");
    let held = last.range().unwrap();

    proxy.cut();
    eventually("the loss", || !last.is_leading()).await;
    let open = last.range().unwrap();
    assert!(open.failing_open && !last.is_leading());
    assert_eq!(open.start_unix_ms, held.start_unix_ms);
    assert_eq!(other.range(), None, "a non-holder never fails open");
    assert_eq!(gauges.text().matches("failing_open{key=\"db\"}").count(), 1);

    // Another client leads meanwhile; as soon as that is seen, failing open is over.
    let far = connect(&real).await;
    let _bob = within(
        "bob leads",
        elector(&far, "bob", long()).campaign("db").lead(),
    )
    .await
    .unwrap();
    assert!(
        last.range().unwrap().failing_open,
        "it cannot know yet: the risk"
    );
    proxy.mend();
    eventually("it sees bob", || last.range().is_none()).await;
    running.abort();
    candidate.abort();
}

#[tokio::test]
async fn s2_6_the_gauges_follow_the_lease() {
    let mut cluster = one_node().await;
    let client = client(&cluster).await;
    let gauges = Gauges::new();
    let elector = elector(&client, "alice", short());
    let campaign = elector
        .campaign("db")
        .fail_open(true)
        .gauges(&gauges)
        .unwrap();
    let say = |held: bool, open: bool| {
        let text = gauges.text();
        text.contains(&format!("lease_is_held{{key=\"db\"}} {}\n", u8::from(held)))
            && text.contains(&format!("failing_open{{key=\"db\"}} {}\n", u8::from(open)))
    };
    assert!(say(false, false), "{}", gauges.text());
    let twice = elector.campaign("db").gauges(&gauges).unwrap_err();
    assert_eq!(twice.key, "db");

    let running = tokio::spawn(campaign.run_callbacks());
    eventually("it holds", || say(true, false)).await;
    cluster.signal(0, Signal::Kill);
    eventually("it fails open", || say(false, true)).await;
    cluster.spawn(0);
    eventually("it holds again", || say(true, false)).await;
    running.abort();
}

#[tokio::test]
async fn fail_open_is_off_unless_it_is_asked_for() {
    let mut cluster = one_node().await;
    let client = client(&cluster).await;
    let campaign = elector(&client, "alice", short()).campaign("db");
    let handle = campaign.handle();
    let running = tokio::spawn(campaign.run_callbacks());
    eventually("it leads", || handle.range().is_some()).await;
    cluster.signal(0, Signal::Kill);
    eventually("the loss", || !handle.is_leading()).await;
    assert_eq!(handle.range(), None);
    running.abort();
}

#[tokio::test]
async fn s2_8_the_next_range_begins_behind_a_lingering_one() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let campaign = elector(&client, "alice", short())
        .campaign("db")
        .linger(true);
    let handle = campaign.handle();
    let running = tokio::spawn(campaign.run_callbacks());
    eventually("it leads", || handle.range().is_some()).await;
    let told = handle.range().unwrap();

    handle.leave(Successor::Next);
    let next = elector(&client, "bob", short()).campaign("db").lead();
    let next = within("the takeover", next).await.unwrap();
    let range = next.range().unwrap();
    assert!(
        range.start_unix_ms >= told.end_unix_ms,
        "{told:?} {range:?}"
    );
    within("the end", running).await.unwrap().unwrap();
}

#[tokio::test]
async fn s2_11_starts_never_go_back_from_holder_to_holder() {
    let mut cluster = Cluster::start(Options::default()).await;
    let client = client(&cluster).await;
    let candidates = ["alice", "bob"].map(|name| elector(&client, name, long()));
    let mut last = 0;
    for turn in 0..8 {
        if turn == 4 {
            let leader = cluster.wait_for_leader(LONG).await;
            cluster.signal(leader, Signal::Kill);
        }
        let lease = candidates[turn % 2].campaign("db").lead();
        let lease = within("it leads", lease).await.unwrap();
        let start = lease.range().unwrap().start_unix_ms;
        assert!(start >= last, "{start} after {last}");
        last = start;
        lease.release().await.unwrap();
    }
}

#[tokio::test]
async fn s2_12_a_process_that_starts_while_the_cluster_is_down_has_no_range() {
    let mut cluster = one_node().await;
    let before = client(&cluster).await;
    let lease = elector(&before, "alice", long()).campaign("db").lead();
    let lease = lease.await.unwrap();
    let client = client(&cluster).await;
    cluster.signal(0, Signal::Kill);
    drop(lease);

    // A new life of the holder: it has never held anything.
    let gauges = Gauges::new();
    let again = elector(&client, "alice", quick()).campaign("db");
    let again = again.fail_open(true).gauges(&gauges).unwrap();
    let handle = again.handle();
    let story = Story::new();
    let told = story.clone();
    let mut state = handle.state();
    let running = tokio::spawn(again.run_callbacks());
    let pausing = state.wait_for(|s| matches!(s, ringfence_client::CampaignState::Pausing { .. }));
    told.tell(format!(
        "{:?}",
        *within("a failed try", pausing).await.unwrap()
    ));
    assert_eq!(handle.range(), None, "{:?}", story.lines());
    assert!(!gauges.read()[0].failing_open);
    running.abort();
}

fn quick() -> Timings {
    let ms = Duration::from_millis;
    Timings::new(Some(ms(1_000)), Some(ms(500)), Some(ms(50))).unwrap()
}

async fn connect(address: &str) -> Client {
    let half = Duration::from_millis(500);
    let builder = Client::builder().endpoints([address.to_owned()]);
    builder.keep_alive(half, half).connect().await.unwrap()
}
