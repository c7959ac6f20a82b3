//! An elector: of all that run, one leads; when it leaves or dies another takes over.
//!
//! Start a cluster (`ringfence dev`), then this in two or three terminals:
//! `cargo run -p ringfence-client --example elector`. It ends after 20 s, or the seconds given as
//! its argument, or at Ctrl-C, and hands over to the next. Kill one with `kill -9`: the next one
//! leads within 15 s.

mod common;

use std::error::Error;
use std::time::Duration;

use ringfence_client::{Elector, Successor};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = common::connect().await?;
    let elector = Elector::new(&client);
    println!("I am {}", elector.identity());

    let campaign = elector
        .campaign("examples/elector")
        .on_new_leader(|leader| println!("{} leads, token {}", leader.identity, leader.token))
        .on_stopped(|stopped| println!("I lead no more: {}", stopped.cause));

    let handle = campaign.handle();
    let end = common::the_end();
    tokio::spawn(async move {
        end.await;
        handle.leave(Successor::Next);
    });

    campaign
        .run(|leading| async move {
            for n in 1.. {
                println!("work {n} as {}", leading.fence());
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        })
        .await?;
    Ok(())
}
