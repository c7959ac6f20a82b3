//! A holder that a test commands; ../python/holder.py says how. `recipe.rs` is the block of the page.

mod recipe;

use sqlx::{Error, PgConnection, PgPool};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin, stdin};

const LEASE: &str = "bank/interest";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = std::env::args().nth(1).ok_or("no store")?;
    let pool = PgPool::connect(&store).await?;
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let mut words = line.split(' ');
        let command = words.next().ok_or("no command")?;
        let token = words.next().ok_or("no token")?.parse()?;
        let value = words.next().unwrap_or("0").parse()?;
        match carry_out(&pool, &mut lines, command, token, value).await {
            Ok(()) => println!("done"),
            Err(error) if recipe::is_stale(&error) => println!("stale"),
            Err(error) => println!("failed: {}", error.to_string().replace('\n', " ")),
        }
    }
    Ok(())
}

async fn carry_out(
    pool: &PgPool,
    lines: &mut Lines<BufReader<Stdin>>,
    command: &str,
    token: i64,
    value: i64,
) -> Result<(), Error> {
    match command {
        "advance" => recipe::advance(pool, LEASE, token).await,
        "write" => {
            recipe::write(pool, LEASE, token, async |write| update(write, value).await).await
        }
        "pause" => {
            recipe::write(pool, LEASE, token, async |write| {
                println!("paused");
                lines.next_line().await?;
                update(write, value).await
            })
            .await
        }
        "end" => {
            recipe::write(pool, LEASE, token, async |write| {
                sqlx::raw_sql("COMMIT").execute(&mut *write).await?;
                println!("paused");
                lines.next_line().await?;
                update(write, value).await
            })
            .await
        }
        "aborted" => {
            recipe::write(pool, LEASE, token, async |write| {
                update(write, value).await?;
                sqlx::raw_sql("SELECT 1/0").execute(write).await.ok();
                Ok(())
            })
            .await
        }
        "past" => update(&mut *pool.acquire().await?, value).await,
        other => Err(Error::Protocol(format!("no command {other}"))),
    }
}

async fn update(connection: &mut PgConnection, value: i64) -> Result<(), Error> {
    let update = sqlx::query("UPDATE balance SET amount = $1").bind(value);
    update.execute(connection).await.map(drop)
}
