//! How the drivers connect to the servers, directly and through a proxy.

use mysql_async::{Conn, Opts, OptsBuilder};
use tokio_postgres::{Client, Config, NoTls};

use super::mysql::Mysql;
use super::postgres::Postgres;
use super::proxy::{self, Hand};

impl Postgres {
    fn config(&self, database: &str) -> Config {
        let mut config = Config::new();
        config.host("127.0.0.1").port(self.port());
        config.user("postgres").dbname(database);
        config
    }

    /// Connects through a proxy that can disturb the connection.
    pub(crate) async fn connect_through(&self, database: &str) -> (Client, Hand) {
        let (stream, hand) = proxy::connect(self.port(), proxy::POSTGRES).await;
        let config = self.config(database);
        let (client, connection) = config.connect_raw(stream, NoTls).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        (client, hand)
    }

    pub(crate) async fn connect(&self, database: &str) -> Client {
        let config = self.config(database);
        let (client, connection) = config.connect(NoTls).await.unwrap();
        // It ends with the client, or with the server, which the client notices.
        tokio::spawn(async move { drop(connection.await) });
        client
    }
}

impl Mysql {
    pub(crate) async fn connect(&self, database: &str) -> Conn {
        Conn::new(options(self.port(), database)).await.unwrap()
    }

    /// Connects through a proxy that can disturb the connection.
    pub(crate) async fn connect_through(&self, database: &str) -> (Conn, Hand) {
        let (port, hand) = proxy::listen(self.port(), proxy::MYSQL).await;
        let conn = Conn::new(options(port, database)).await.unwrap();
        (conn, hand)
    }
}

fn options(port: u16, database: &str) -> Opts {
    let options = OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(port)
        .user(Some("root"))
        .db_name(Some(database))
        // It would go to the socket, past any proxy.
        .prefer_socket(false);
    options.into()
}
