//! Work in six shards, spread over all processes that run, three at most in each.
//!
//! Start a cluster (`ringfence dev`), then this in two or three terminals:
//! `cargo run -p ringfence-client --example work_shards`. It ends after 20 s, or the seconds given
//! as its argument, or at Ctrl-C; others take its shards over.

mod common;

use std::error::Error;
use std::time::Duration;

use ringfence_client::{Elector, Successor};

const SHARDS: u32 = 6;
const AT_MOST: usize = 3;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = common::connect().await?;
    let mut handles = Vec::new();
    let shards = Elector::new(&client)
        .candidates("examples/shards", SHARDS)
        .at_most(AT_MOST)
        .each(|campaign| {
            handles.push(campaign.handle());
            campaign
        });

    let end = common::the_end();
    tokio::spawn(async move {
        end.await;
        handles
            .iter()
            .for_each(|handle| handle.leave(Successor::Next));
    });

    shards
        .run(|leading| async move {
            loop {
                println!("works on {}", leading.fence());
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        })
        .await?;
    Ok(())
}
