//! Files that cannot be used are refused at once, by name.

use std::fs;

use ringfence_testkit::certificates::Authority;
use ringfence_tls::{Acceptor, ClientTls, Connector, Part, Pem, ServerTls, TlsError};

use crate::support::{server, showing, text, trusting};

fn refusal(tls: ServerTls) -> TlsError {
    Acceptor::new(tls).err().expect("a refusal")
}

#[test]
fn what_is_not_there_is_named() {
    let good = server(&Authority::new("ours").sign(&["x"]));
    let gone = Pem::File("/nowhere/server.pem".into());

    let error = refusal(ServerTls {
        certificate: gone.clone(),
        ..good.clone()
    });
    assert_eq!(error.part, Part::Certificate);
    assert_eq!(error.offered, "/nowhere/server.pem");
    assert!(
        error.why.contains("cannot be read: No such file"),
        "{error}"
    );
    let error = refusal(ServerTls {
        key: gone.clone(),
        ..good.clone()
    });
    assert_eq!(error.part, Part::Key);
    let error = refusal(ServerTls {
        client_ca: Some(gone),
        ..good
    });
    assert_eq!(error.part, Part::Authority);
}

#[test]
fn what_is_something_else_is_refused_with_what_is_expected() {
    let signed = Authority::new("ours").sign(&["x"]);
    let good = server(&signed);

    let error = refusal(ServerTls {
        certificate: good.key.clone(),
        ..good.clone()
    });
    assert!(
        error
            .why
            .contains("no certificate stands in it; expected PEM text"),
        "{error}"
    );
    let error = refusal(ServerTls {
        key: good.certificate.clone(),
        ..good.clone()
    });
    assert!(
        error.why.contains("a private key that is not encrypted"),
        "{error}"
    );
    let torn = "-----BEGIN CERTIFICATE-----\nAAAA";
    let error = refusal(ServerTls {
        certificate: text(torn),
        ..good.clone()
    });
    assert!(error.why.contains("no PEM text"), "{error}");
    let rubbish = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let error = refusal(ServerTls {
        client_ca: Some(text(rubbish)),
        ..good
    });
    assert!(error.why.contains("no CA's"), "{error}");
}

#[test]
fn a_key_that_is_anothers_is_refused() {
    let ours = Authority::new("ours");
    let (one, other) = (ours.sign(&["x"]), ours.sign(&["x"]));

    let error = refusal(ServerTls {
        key: text(&other.key),
        ..server(&one)
    });
    assert_eq!(error.part, Part::Key);
    assert!(
        error.why.contains("not the key of the certificate"),
        "{error}"
    );

    let mut client = showing(&ours, &one);
    client.certificate = Some((text(&one.certificate), text(&other.key)));
    assert_eq!(Connector::new(client).err().unwrap().part, Part::Key);
}

#[test]
fn nobody_is_trusted_who_was_not_named() {
    let error = Connector::new(ClientTls::default()).err().unwrap();
    assert!(error.why.contains("name the CA that signed"), "{error}");

    let error = refusal(ServerTls {
        demand_client_certificate: true,
        ..server(&Authority::new("ours").sign(&["x"]))
    });
    assert!(error.why.contains("who signs them"), "{error}");
}

#[test]
fn a_file_of_another_kind_is_not_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big.pem");
    fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    let mut client = trusting(&Authority::new("ours"));
    client.ca = vec![Pem::File(path)];

    let error = Connector::new(client).err().unwrap();
    assert!(error.why.contains("longer than 1048576 bytes"), "{error}");
}

#[test]
fn a_key_that_was_given_as_text_is_never_shown() {
    let shown = format!("{:?}", server(&Authority::new("ours").sign(&["x"])));
    assert!(!shown.contains("PRIVATE"), "{shown}");
}
