use std::time::Duration;

use ringfence_client::{AcquireError, Client, Fence, Refused};
use ringfence_test_cluster::{Guarded, TestCluster, Unguarded, explore};

/// What the service needs of its store. In production it is a table.
trait Account {
    fn advance(&self, fence: &Fence) -> impl Future<Output = Result<(), Refused>> + Send;
    fn read(&self) -> impl Future<Output = u64> + Send;
    fn write(&self, fence: &Fence, amount: u64)
    -> impl Future<Output = Result<(), Refused>> + Send;
}

/// The service: the process that holds the lease adds one every second.
async fn pay_interest(client: Client, account: impl Account) -> Result<(), AcquireError> {
    loop {
        let lease = client.lock("bank/interest").await?;
        let fence = lease.fence();
        let mut refused = account.advance(&fence).await.is_err(); // before the first read
        while lease.is_valid() && !refused {
            let amount = account.read().await;
            refused = account.write(&fence, amount + 1).await.is_err();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// A table whose `UPDATE` has no guard.
impl Account for Unguarded<u64> {
    async fn advance(&self, _: &Fence) -> Result<(), Refused> {
        Ok(())
    }
    async fn read(&self) -> u64 {
        self.read().await
    }
    async fn write(&self, fence: &Fence, amount: u64) -> Result<(), Refused> {
        self.write_under(fence, amount).await;
        Ok(())
    }
}

/// A table with a guard.
impl Account for Guarded<u64> {
    async fn advance(&self, fence: &Fence) -> Result<(), Refused> {
        self.advance(fence).await
    }
    async fn read(&self) -> u64 {
        self.read().await
    }
    async fn write(&self, fence: &Fence, amount: u64) -> Result<(), Refused> {
        self.write(fence, amount).await
    }
}

#[test]
fn without_a_guard_an_update_is_lost() {
    let found = explore(0..100, |world: TestCluster| async move {
        let table = world.unguarded_store("bank/interest", 100);
        for name in ["alice", "bob"] {
            let client = world.client(name).await;
            let account = table.connect(&client);
            world.spawn(&client, pay_interest(client.client(), account));
        }
        world.trouble(Duration::from_secs(120)).await;
        world.assert_no_stale_write();
    });
    println!("{}", found.unwrap_err());
}

#[test]
fn with_a_guard_no_update_is_lost() {
    let passed = explore(0..100, |world: TestCluster| async move {
        let table = world.guarded_store("bank/interest", 100);
        for name in ["alice", "bob"] {
            let client = world.client(name).await;
            let account = table.connect(&client);
            world.spawn(&client, pay_interest(client.client(), account));
        }
        world.trouble(Duration::from_secs(120)).await;
        world.assert_no_stale_write();
    });
    passed.unwrap();
}
