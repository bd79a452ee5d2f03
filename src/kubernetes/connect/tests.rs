//! Kubeconfigs good and bad, their end, and a server that takes the connection and says nothing.

use std::sync::Arc;

use super::*;
use crate::clock::Clock;
use crate::kubernetes::{KubeClient, KubeError, Unobserved};

struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new() -> Files {
        Files {
            directory: tempfile::tempdir().expect("a directory"),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Writes a kubeconfig with this server and user.
    fn write(&self, server: &str, user: &str) {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: home\nclusters:\n- name: k\n  cluster:\n    server: {server}\nusers:\n- name: daemon\n  user: {user}\ncontexts:\n- name: home\n  context: {{cluster: k, user: daemon}}\n"
        );
        std::fs::write(self.path(), text).expect("written");
    }

    async fn error(&self, context: Option<&str>) -> String {
        match load(&self.path(), context).await {
            Ok(_) => panic!("it was taken"),
            Err(error) => {
                assert!(
                    error.contains(&self.path().display().to_string()),
                    "{error}"
                );
                assert!(!error.contains("hunter2"), "it quotes a secret: {error}");
                error
            }
        }
    }
}

/// A self-signed certificate and its key, in base64 as kubeconfigs have them.
fn identity(year: i32) -> (String, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(vec![]).expect("params");
    params.not_after = rcgen::date_time_ymd(year, 1, 31);
    let pem = params.self_signed(&key).expect("a certificate").pem();
    let encode = |text: String| base64::engine::general_purpose::STANDARD.encode(text);
    (encode(pem), encode(key.serialize_pem()))
}

fn with_certificate(year: i32) -> String {
    let (certificate, key) = identity(year);
    format!("{{client-certificate-data: {certificate}, client-key-data: {key}}}")
}

#[tokio::test]
async fn what_cannot_be_used_says_why_and_what_to_do() {
    let files = Files::new();
    let missing = files.error(None).await;
    assert!(missing.contains("pve-autoscaler kubeconfig"), "{missing}");

    std::fs::write(files.path(), "users:\n- name: a\n  user: {token: hunter2\n").expect("written");
    assert!(files.error(None).await.contains("not a kubeconfig"));
    std::fs::write(files.path(), "users: [{name: a, user: {token: [hunter2]}}]").expect("written");
    assert!(files.error(None).await.contains("not a kubeconfig"));

    files.write("https://10.0.0.1:6443", "{token: hunter2}");
    let unknown = files.error(Some("work")).await;
    assert!(
        unknown.contains("\"work\"") && unknown.contains("home"),
        "{unknown}"
    );

    for (key, user) in [
        (
            "exec",
            "{exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, args: [hunter2]}}",
        ),
        (
            "auth-provider",
            "{auth-provider: {name: gcp, config: {secret: hunter2}}}",
        ),
    ] {
        files.write("https://10.0.0.1:6443", user);
        let refused = files.error(None).await;
        assert!(
            refused.contains("\"daemon\"") && refused.contains(&format!("{key:?}")),
            "{refused}"
        );
    }
    files.write(
        "https://10.0.0.1:6443",
        "{client-certificate-data: aHVudGVyMg==, client-key-data: aHVudGVyMg==}",
    );
    assert!(
        files
            .error(None)
            .await
            .contains("client certificate of user \"daemon\"")
    );
}

#[tokio::test]
async fn a_certificate_is_warned_about_two_weeks_before_its_end() {
    let files = Files::new();
    files.write("https://10.0.0.1:6443", &with_certificate(2031));
    let loaded = load(&files.path(), None).await.expect("it loads");
    let expires = loaded.expires.expect("it has a certificate");
    assert_eq!(expires.to_string(), "2031-01-31T00:00:00Z");
    let days = |days: i64| Span::minutes(days * 24 * 60);
    assert_eq!(expiry_warning(expires, expires - days(15)), None);
    let soon = expiry_warning(expires, expires - days(14)).expect("a warning");
    assert!(soon.contains("in 14 days"), "{soon}");
    let over = expiry_warning(expires, expires).expect("a warning");
    assert!(over.contains("ended at"), "{over}");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_comes_or_changes_is_taken_without_a_restart() {
    let files = Files::new();
    let connector = Connector::File {
        path: files.path(),
        context: None,
    };
    let clock = Clock::starting_at(Time(1_795_000_000_000));
    let client = KubeClient::new(connector, clock, Arc::new(Unobserved)).await;
    assert!(client.credentials().error.is_some());
    let error = client.kube_system_uid().await.expect_err("no file yet");
    assert!(matches!(error, KubeError::NotSent { .. }), "{error}");

    let maintained = client.clone();
    let maintaining = tokio::spawn(async move { maintained.maintain().await });
    files.write("https://10.0.0.1:6443", &with_certificate(2031));
    tokio::time::sleep(Duration::from_secs(31)).await;
    let first = client.credentials();
    assert_eq!((first.error, first.warning), (None, None));
    assert_eq!(first.server, "https://10.0.0.1:6443");

    files.write("https://10.0.0.22:6443", &with_certificate(2026));
    tokio::time::sleep(Duration::from_secs(31)).await;
    let second = client.credentials();
    assert_eq!(second.server, "https://10.0.0.22:6443");
    assert!(
        second.warning.is_some(),
        "it ended before the clock's epoch"
    );

    std::fs::write(files.path(), "half a fi").expect("written");
    tokio::time::sleep(Duration::from_secs(31)).await;
    let third = client.credentials();
    assert!(third.error.is_some(), "the broken file is told");
    assert_eq!(
        third.server, "https://10.0.0.22:6443",
        "and the last good one kept"
    );
    maintaining.abort();
}

#[tokio::test]
async fn a_refused_connection_is_known_not_to_be_sent() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let files = Files::new();
    files.write(&format!("http://{address}"), "{token: hunter2}");
    let connector = Connector::File {
        path: files.path(),
        context: None,
    };
    let client = KubeClient::new(connector, Clock::System, Arc::new(Unobserved)).await;
    let error = client
        .delete_token("abc123")
        .await
        .expect_err("nobody listens");
    assert!(matches!(error, KubeError::NotSent { .. }), "{error}");
    assert!(!error.to_string().contains("hunter2"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up_and_the_outcome_unknown() {
    let router = axum::Router::new().fallback(std::future::pending::<()>);
    let clock = Clock::starting_at(Time(0));
    let client = KubeClient::new(in_memory(router), clock, Arc::new(Unobserved)).await;
    let started = tokio::time::Instant::now();
    let error = client.delete_token("abc123").await.expect_err("silence");
    assert!(error.maybe_done(), "{error}");
    assert!(started.elapsed() <= HEADER_TIMEOUT + Duration::from_millis(10));
}

/// An API server that takes the token `new` and no other: its address, and what ends it.
async fn serve_new_token() -> (std::net::SocketAddr, tokio::task::AbortHandle) {
    use axum::http::StatusCode;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = axum::Router::new().fallback(|request: axum::extract::Request| async move {
        let header = request.headers().get("authorization").cloned();
        if header.is_some_and(|value| value == "Bearer new") {
            (StatusCode::OK, r#"{"metadata":{"uid":"the-uid"}}"#)
        } else {
            (
                StatusCode::UNAUTHORIZED,
                r#"{"reason":"Unauthorized","message":"Unauthorized"}"#,
            )
        }
    });
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    (address, serving.abort_handle())
}

#[tokio::test]
async fn a_401_makes_the_file_be_read_again_but_not_for_every_call() {
    let (address, serving) = serve_new_token().await;
    let files = Files::new();
    files.write(&format!("http://{address}"), "{token: old}");
    let connector = Connector::File {
        path: files.path(),
        context: None,
    };
    let client = KubeClient::new(connector, Clock::System, Arc::new(Unobserved)).await;
    files.write(&format!("http://{address}"), "{token: new}");
    let soon = client.kube_system_uid().await.expect_err("old token");
    assert_eq!(soon.code(), Some(401));
    assert!(
        client.kube_system_uid().await.is_err(),
        "read a moment ago: not again yet"
    );
    // Not paused throughout: real sockets know no virtual time.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(6)).await;
    tokio::time::resume();
    assert!(
        client.kube_system_uid().await.is_err(),
        "this one finds the new file"
    );
    assert_eq!(client.kube_system_uid().await.as_deref(), Ok("the-uid"));
    serving.abort();
}

#[tokio::test]
async fn a_token_in_a_file_is_read_as_kubectl_reads_it_and_again_when_it_changes() {
    let (address, serving) = serve_new_token().await;
    let files = Files::new();
    let token = files.directory.path().join("token");
    // Beside the kubeconfig, which names it without a directory.
    files.write(&format!("http://{address}"), "{tokenFile: token}");
    for (text, why) in [
        (None, "it cannot be read"),
        (Some(" \n"), "it is empty"),
        (Some("a\nb\n"), "a line break in it"),
    ] {
        if let Some(text) = text {
            std::fs::write(&token, text).expect("written");
        }
        let error = files.error(None).await;
        let told = error.contains(&format!("tokenFile {}", token.display()));
        assert!(told && error.contains(why), "{error}");
    }
    std::fs::write(&token, "of-before\n").expect("written");
    let connector = Connector::File {
        path: files.path(),
        context: None,
    };
    let client = KubeClient::new(connector, Clock::System, Arc::new(Unobserved)).await;
    let error = client.kube_system_uid().await.expect_err("another token");
    assert_eq!(error.code(), Some(401), "{error}");
    std::fs::write(&token, "new\r\n").expect("written");
    let maintained = client.clone();
    // Real sockets know no virtual time: it stands while nothing is asked.
    tokio::time::pause();
    let maintaining = tokio::spawn(async move { maintained.maintain().await });
    tokio::time::sleep(Duration::from_secs(31)).await;
    tokio::time::resume();
    assert_eq!(client.kube_system_uid().await.as_deref(), Ok("the-uid"));
    maintaining.abort();
    serving.abort();
}

#[tokio::test]
async fn a_server_that_is_no_address_is_refused_with_its_value() {
    let files = Files::new();
    for server in [
        "10.0.0.1:6443",
        "localhost",
        "/x",
        "ftp://10.0.0.1",
        "https://:6443",
        "https://10.0.0.1:x",
    ] {
        files.write(&format!("'{server}'"), "{token: hunter2}");
        let error = files.error(None).await;
        assert!(
            error.contains(&format!("server {server:?}"))
                && error.contains("expected https://ADDRESS:6443"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_server_with_a_password_is_refused_without_it() {
    let files = Files::new();
    files.write("'https://me:hunter2@10.0.0.1:6443'", "{token: x}");
    let error = files.error(None).await;
    assert!(error.contains("it has a user in it"), "{error}");
    assert!(error.contains("…@10.0.0.1:6443"), "{error}");
    for given in [
        "https://me:hunter2@10.0.0.1:6443",
        "me:hunter2@10.0.0.1:6443",
    ] {
        let error = bootstrap::check_server(given).expect_err("it was taken");
        assert!(
            error.contains("it has a user in it") && !error.contains("hunter2"),
            "{error}"
        );
    }
}

#[test]
fn a_way_that_others_can_read_is_told() {
    for (server, unchecked, told) in [
        ("https://10.0.0.1:6443", None, None),
        ("https://10.0.0.1:6443", Some(false), None),
        (
            "https://10.0.0.1:6443",
            Some(true),
            Some("insecure-skip-tls-verify"),
        ),
        ("http://10.0.0.1:6443", None, Some("is no https")),
        ("http://127.0.0.1:6443", None, None),
        ("https://[::1]:6443", Some(true), None),
    ] {
        let cluster = kube::config::Cluster {
            server: Some(server.to_owned()),
            insecure_skip_tls_verify: unchecked,
            ..kube::config::Cluster::default()
        };
        let found = exposure(&cluster);
        assert_eq!(found.is_some(), told.is_some(), "{server}: {found:?}");
        assert!(
            found.unwrap_or_default().contains(told.unwrap_or_default()),
            "{server}"
        );
    }
}

#[tokio::test]
async fn a_token_that_no_request_can_carry_is_refused() {
    let files = Files::new();
    for (user, why) in [
        (r#"{token: "hunter2\0"}"#, "a control character"),
        (r#"{token: "hunter2\n"}"#, "a line break"),
        (r#"{token: "hunter2\r\nx: y", username: a}"#, "a line break"),
    ] {
        files.write("https://10.0.0.1:6443", user);
        let error = files.error(None).await;
        let expected = format!("the token of user \"daemon\" has {why} in it");
        assert!(error.contains(&expected), "{error}");
    }
}

/// What kube-client says when a task of it is gone, as after a panic.
const GONE: &str = "closed";

/// What is in order, four times of five, or one of the rest.
fn among(
    usual: &'static str,
    rest: &'static [&'static str],
) -> impl proptest::strategy::Strategy<Value = &'static str> {
    proptest::prop_oneof![
        4 => proptest::strategy::Just(usual),
        1 => proptest::sample::select(rest),
    ]
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(128))]

    /// Whatever stands in the file: it is refused, or every call ends with an error.
    #[test]
    fn no_kubeconfig_ends_the_program(
        // Half of the addresses are ones that can be called: what stands behind them is looked at too.
        scheme in among("http://", &["", "https://", "HTTPS://", "ftp://", "//", "https:/", "unix:"]),
        host in among("127.0.0.1", &["[::1]", "", "u:p@127.0.0.1", "127.0.0.1:x", "[::1", "\u{e4}", "127.0.0.1 "]),
        port in among(":1", &["", ":", ":99999", ":1:1"]),
        path in proptest::sample::select(vec!["", "/", "/k8s/clusters/c-1", "/a b", "/?q", "?q", "#f", "/%zz", "/\u{e4}", "/long"]),
        user in proptest::sample::select(vec![
            "{token: a}", "{token: \"a\\0b\"}", "{token: \"a\\n\"}", "{token: \"\"}", "{token: \"\\u00e4\"}", "{username: \"a:\\n\", password: b}", "{tokenFile: /nowhere}",
            "{as: \"a\\nb\"}", "{as: a, as-user-extra: {\"\": [\"\\n\"]}}", "{client-certificate-data: AAAA, client-key-data: AAAA}",
            "{client-key-data: \"%\"}", "{}", "~",
        ]),
        extra in among("", &[
            "tls-server-name: \"a b\"", "tls-server-name: \"\"", "certificate-authority-data: AAAA", "certificate-authority-data: \"%\"",
            "certificate-authority: /nowhere", "insecure-skip-tls-verify: true", "proxy-url: \"\"",
        ]),
        token in 0usize..80_000,
    ) {
        let path = if path == "/long" { format!("/{}", "x".repeat(1_900)) } else { path.to_owned() };
        let server = serde_json::Value::from(format!("{scheme}{host}{port}{path}"));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: k\n  cluster:\n    server: {server}\n    {extra}\nusers:\n- name: u\n  user: {user}\ncontexts:\n- name: c\n  context: {{cluster: k, user: u}}\n"
        );
        let files = Files::new();
        std::fs::write(files.path(), text).expect("written");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let error = runtime.block_on(async {
            let connector = Connector::File { path: files.path(), context: None };
            let client = KubeClient::new(connector, Clock::System, Arc::new(Unobserved)).await;
            let list = crate::kubernetes::client::KubeRequest::new("list", "pods", "", "/api/v1/pods".to_owned());
            client.call(list.query("continue", "x".repeat(token))).await.expect_err("nobody listens")
        });
        proptest::prop_assert!(!error.to_string().contains(GONE), "{error}");
    }

    /// Damaged text, and nesting that no person writes.
    #[test]
    fn no_text_of_a_kubeconfig_ends_the_program(
        text in "(?s).{0,80}",
        cut in 0usize..400,
        open in proptest::sample::select(vec!["[", "{a: ", "- ", "a:\n ", "&a [*a, ", "!!x "]),
        depth in 0usize..5_000,
    ) {
        let files = Files::new();
        files.write("https://127.0.0.1:1", "{token: a}");
        let whole = std::fs::read_to_string(files.path()).expect("read");
        let cut = whole.floor_char_boundary(cut.min(whole.len()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        for text in [
            format!("{}{text}{}", &whole[..cut], &whole[cut..]),
            format!("{}{}", &whole[..cut], open.repeat(depth)),
        ] {
            std::fs::write(files.path(), text).expect("written");
            let _ = runtime.block_on(load(&files.path(), None)).map(drop);
        }
    }
}
