//! `bench lock`: acquire and release through the client crate, all callers over one stream.

use std::time::Duration;

use ringfence_client::SessionOptions;

use super::load::{Client, Load};
use super::report::Sheet;
use super::target::Target;
use crate::cli::Failure;

/// Measures.
pub(super) async fn run(target: &Target, load: Load) -> Result<(), Failure> {
    let connection = target.client().await?;
    let measured = load
        .drive(2, |mut client: Client| {
            let connection = connection.clone();
            let name = super::cycle::name("lock", client.number);
            async move {
                let ttl = Duration::from_secs(15);
                let options = SessionOptions {
                    ttl,
                    identity: "bench".into(),
                };
                let session = connection.open_session(options).await?;
                client.ready().await;
                while !client.is_over() {
                    let began = client.now();
                    let lease = session.acquire(name.as_str()).send().await?;
                    client.took(0, began, 0);
                    lease.release().await?;
                    client.took(1, began, 1);
                }
                session.close().await?;
                Ok(client)
            }
        })
        .await?;
    let series = ["acquire", "acquire+release"];
    Sheet::new("lock", "cycles", &series).print(&measured, &target.describe(), &load)
}
