//! The ends that leave the process, against servers of a few lines that say exactly what is scripted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use secrecy::SecretString;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;

use super::https::{Https, TokenOptions};
use super::tls;
use super::unix::UnixSocket;
use super::{CallEffect, HttpMethod, PveRequest, Transport as _};

mod token_file;

fn request(method: HttpMethod) -> PveRequest {
    PveRequest {
        call: "test",
        method,
        path: "/nodes/pve1/qemu/900/config".into(),
        params: vec![("a".into(), "b;c".into())],
        multipart: false,
        timeout: Duration::from_secs(5),
    }
}

/// Reads one request, headers and body.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .filter_map(|line| line.split_once(": "))
                .find(|(key, _)| key.eq_ignore_ascii_case("content-length"))
                .map_or(0, |(_, value)| value.parse().expect("a length"));
            if body.len() >= length {
                return text;
            }
        }
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return text;
        }
    }
}

async fn reply(stream: impl AsyncRead + AsyncWrite + Unpin, answer: String) -> String {
    reply_by(stream, |_| answer).await
}

async fn reply_by(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: impl FnOnce(&str) -> String,
) -> String {
    let got = read_request(&mut stream).await;
    let answer = answer(&got);
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
    got
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// An HTTPS server that answers every connection with `answer`; an empty answer breaks off.
struct Server {
    url: String,
    certificate: Vec<u8>,
    pem: String,
    served: Arc<AtomicUsize>,
    seen: tokio::sync::mpsc::UnboundedReceiver<String>,
}

async fn server(answer: String) -> Server {
    serving(move |_| answer.clone()).await
}

/// One that answers each request by what is in it.
async fn serving(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Server {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.expect("a key"))
        .expect("a server");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("https://{}", listener.local_addr().expect("an address"));
    let served = Arc::new(AtomicUsize::new(0));
    let (tell, seen) = tokio::sync::mpsc::unbounded_channel();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let count = Arc::clone(&served);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            if let Ok(stream) = acceptor.accept(stream).await {
                count.fetch_add(1, Ordering::SeqCst);
                let _ = tell.send(reply_by(stream, &answer).await);
            }
        }
    });
    Server {
        url,
        certificate: made.cert.der().to_vec(),
        pem: made.cert.pem(),
        served,
        seen,
    }
}

fn pinned(server: &Server, endpoints: Vec<String>) -> Https {
    Https::new(&TokenOptions {
        endpoints,
        token_id: "scaler@pve!one".into(),
        secret: SecretString::from("s3cret"),
        ca_file: None,
        fingerprint: Some(tls::show(&tls::fingerprint(&server.certificate))),
    })
    .expect("an end")
}

/// A port on which nothing listens.
async fn closed() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    format!("https://{}", listener.local_addr().expect("an address"))
}

#[tokio::test]
async fn the_token_goes_out_and_data_comes_back() {
    let mut server = server(answer("200 OK", "", r#"{"data":[1]}"#)).await;
    let https = pinned(&server, vec![server.url.clone()]);
    let data = https.call(request(HttpMethod::Put)).await.expect("data");
    assert_eq!(data, serde_json::json!([1]));
    let seen = server.seen.recv().await.expect("a request");
    assert!(
        seen.starts_with("PUT /api2/json/nodes/pve1/qemu/900/config HTTP/1.1\r\n"),
        "{seen}"
    );
    assert!(
        seen.contains("authorization: PVEAPIToken=scaler@pve!one=s3cret\r\n"),
        "{seen}"
    );
    assert!(seen.ends_with("\r\n\r\na=b%3Bc"), "{seen}");
    assert!(!format!("{https:?}").contains("s3cret"));
}

#[tokio::test]
async fn a_message_in_the_reason_phrase_is_found() {
    let server = server(answer("500 VM is locked (backup)", "", "")).await;
    let https = pinned(&server, vec![server.url.clone()]);
    let error = https
        .call(request(HttpMethod::Post))
        .await
        .expect_err("an error");
    assert_eq!(
        (error.outcome, error.status),
        (CallEffect::Refused, Some(500))
    );
    assert_eq!(
        error.cause(),
        crate::pve::FailureCause::Locked("backup".into())
    );
}

#[tokio::test]
async fn another_certificate_is_refused_and_its_fingerprint_told() {
    let (one, two) = (server(String::new()).await, server(String::new()).await);
    let https = pinned(&one, vec![two.url.clone()]);
    let error = https
        .call(request(HttpMethod::Post))
        .await
        .expect_err("an error");
    assert_eq!(error.outcome, CallEffect::NotSent);
    let print = tls::show(&tls::fingerprint(&two.certificate));
    assert!(error.message.contains(&print), "{}", error.message);
    assert_eq!(two.served.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_ca_file_is_trusted_or_the_error_names_the_fingerprint() {
    let (one, two) = (
        server(answer("200 OK", "", r#"{"data":1}"#)).await,
        server(String::new()).await,
    );
    let dir = tempfile::tempdir().expect("a directory");
    let ca_file = dir.path().join("ca.pem");
    std::fs::write(&ca_file, &one.pem).expect("written");
    let with = |endpoint: &str| {
        Https::new(&TokenOptions {
            endpoints: vec![endpoint.to_owned()],
            token_id: "a@pve!b1".into(),
            secret: SecretString::from("s"),
            ca_file: Some(ca_file.clone()),
            fingerprint: None,
        })
        .expect("an end")
    };
    let data = with(&one.url).call(request(HttpMethod::Get)).await;
    assert_eq!(data, Ok(serde_json::json!(1)));
    let error = with(&two.url).call(request(HttpMethod::Get)).await;
    let print = tls::show(&tls::fingerprint(&two.certificate));
    assert!(error.expect_err("refused").message.contains(&print));
}

#[tokio::test]
async fn endpoints_are_tried_in_turn_until_one_takes_the_call() {
    let server = server(answer("200 OK", "", r#"{"data":1}"#)).await;
    let https = pinned(&server, vec![closed().await, server.url.clone()]);
    for method in [HttpMethod::Post, HttpMethod::Get, HttpMethod::Delete] {
        assert_eq!(https.call(request(method)).await, Ok(serde_json::json!(1)));
    }
    let nobody = pinned(&server, vec![closed().await, closed().await]);
    let error = nobody
        .call(request(HttpMethod::Post))
        .await
        .expect_err("nobody");
    assert_eq!(error.outcome, CallEffect::NotSent);
}

#[tokio::test]
async fn a_change_that_broke_off_is_unknown_and_never_repeated() {
    let server = server(String::new()).await;
    let https = pinned(&server, vec![server.url.clone(), server.url.clone()]);
    for method in [HttpMethod::Post, HttpMethod::Put, HttpMethod::Delete] {
        let before = server.served.load(Ordering::SeqCst);
        let error = https.call(request(method)).await.expect_err("broken");
        assert_eq!(error.outcome, CallEffect::Unknown, "{method}");
        assert_eq!(server.served.load(Ordering::SeqCst) - before, 1, "{method}");
    }
    let before = server.served.load(Ordering::SeqCst);
    https
        .call(request(HttpMethod::Get))
        .await
        .expect_err("broken");
    assert_eq!(
        server.served.load(Ordering::SeqCst) - before,
        3,
        "a read is repeated"
    );
}

#[test]
fn an_end_that_could_not_work_is_not_made() {
    let options = |endpoints: &[&str], fingerprint: Option<&str>| TokenOptions {
        endpoints: endpoints.iter().map(|&text| text.to_owned()).collect(),
        token_id: "a@pve!b1".into(),
        secret: SecretString::from("s"),
        ca_file: None,
        fingerprint: fingerprint.map(str::to_owned),
    };
    let print = "AA".repeat(32);
    for (endpoints, fingerprint) in [
        (&["https://pve:8006"][..], None),
        (&["https://pve:8006"], Some("AA:BB")),
        (&[], Some(print.as_str())),
        (&["http://pve:8006"], Some(print.as_str())),
        (&["https://"], Some(print.as_str())),
        (&["https://u@pve:8006"], Some(print.as_str())),
        (&["https://pve:8006/api2"], Some(print.as_str())),
    ] {
        assert!(
            Https::new(&options(endpoints, fingerprint)).is_err(),
            "{endpoints:?}"
        );
    }
    assert!(Https::new(&options(&["https://pve:8006/"], Some(&print))).is_ok());
}

#[tokio::test]
async fn the_brokers_word_decides_the_outcome() {
    let dir = tempfile::tempdir().expect("a directory");
    let table = [
        ("200 OK", "done", r#"{"data":5}"#, Ok(serde_json::json!(5))),
        (
            "403 Forbidden",
            "refused-by-broker",
            "{}",
            Err(CallEffect::RefusedByBroker),
        ),
        ("500 no", "refused", "{}", Err(CallEffect::Refused)),
        ("503 no", "not-sent", "{}", Err(CallEffect::NotSent)),
        ("504 no", "unknown", "{}", Err(CallEffect::Unknown)),
        ("403 Forbidden", "", "{}", Err(CallEffect::Unknown)),
        ("200 OK", "", r#"{"data":5}"#, Err(CallEffect::Unknown)),
    ];
    for (index, (status, word, body, want)) in table.into_iter().enumerate() {
        let path = dir.path().join(format!("{index}.sock"));
        let listener = UnixListener::bind(&path).expect("a socket");
        let header = if word.is_empty() {
            String::new()
        } else {
            format!("X-Pve-Autoscaler-Outcome: {word}\r\n")
        };
        let text = answer(status, &header, body);
        let served = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a connection");
            reply(stream, text).await
        });
        let end = UnixSocket::new(&path).expect("an end");
        let got = end.call(request(HttpMethod::Get)).await;
        assert_eq!(got.map_err(|error| error.outcome), want, "{status} {word}");
        let seen = served.await.expect("served");
        assert!(
            seen.starts_with("GET /api2/json/nodes/pve1/qemu/900/config?a=b%3Bc "),
            "{seen}"
        );
    }
}

#[tokio::test]
async fn no_broker_means_not_sent() {
    let dir = tempfile::tempdir().expect("a directory");
    let end = UnixSocket::new(&dir.path().join("none.sock")).expect("an end");
    let error = end
        .call(request(HttpMethod::Post))
        .await
        .expect_err("nobody");
    assert_eq!(error.outcome, CallEffect::NotSent);
    assert!(error.message.contains("none.sock"), "{}", error.message);
}
