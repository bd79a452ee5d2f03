//! A login without TLS, as before a reverse proxy, and what is open to everybody.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::*;
use crate::config::settings::WebSettings;
use crate::web::access::Access;

/// `ann` with the password `correct horse battery`, at a cost that takes no time.
fn users(folder: &Path) -> WebSettings {
    let file = folder.join("users");
    let hash = bcrypt::hash("correct horse battery", 4).expect("a hash");
    std::fs::write(&file, format!("# people\nann:{hash}\n")).expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("changed");
    WebSettings {
        users_file: Some(file),
        ..WebSettings::default()
    }
}

async fn ask(server: &Server, method: &str, path: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(server.address).await.expect("connects");
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.expect("writes");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("reads");
    text
}

const FORM: &str = r#"{"user": "ann", "password": "correct horse battery"}"#;
const JSON: &str = "host: pve1.example:9808\r\ncontent-type: application/json\r\n";

#[tokio::test]
async fn a_login_stands_before_all_that_tells_something() {
    let folder = tempfile::tempdir().expect("a folder");
    let access = Access::open(&users(folder.path())).expect("it can be used");
    let server = start_behind(access).await;
    // Whoever leads a name of theirs here has no cookie of this page.
    let host = "host: pve1.example:9808\r\n";
    let ready = ask(&server, "GET", "/readyz", host, "").await;
    assert!(
        ready.starts_with("HTTP/1.1 503") && !ready.contains("no turn has ended"),
        "{ready}"
    );
    let live = ask(&server, "GET", "/livez", host, "").await;
    assert!(live.starts_with("HTTP/1.1 200"), "{live}");
    let page = ask(&server, "GET", "/page/login.js", host, "").await;
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    for path in ["/metrics", "/api/events", "/api/find?q=", "/api/pods/cp"] {
        let answer = ask(&server, "GET", path, host, "").await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{path}: {answer}");
        assert!(!answer.contains("small-a"), "{answer}");
    }
    let answer = ask(&server, "POST", "/api/login", JSON, FORM).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let cookie = answer
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "))
        .expect("a cookie");
    assert!(
        cookie.starts_with("pve-autoscaler=") && !cookie.contains("Secure"),
        "{cookie}"
    );
    let pair = cookie.split(';').next().expect("a pair");
    let inside = format!("{host}cookie: other=1; {pair}\r\n");
    for (path, words) in [
        ("/metrics", "\nkpnodes_total 2.0\n"),
        ("/api/find?q=", "small-a"),
    ] {
        let answer = ask(&server, "GET", path, &inside, "").await;
        assert!(answer.contains(words), "{path}: {answer}");
    }
    let ready = ask(&server, "GET", "/readyz", &inside, "").await;
    assert!(ready.contains("no turn has ended"), "{ready}");
    // A form of another page, with the cookie as some old browser would send it.
    for other in [
        "origin: http://evil.example\r\n",
        "origin: null\r\n",
        "sec-fetch-site: same-site\r\n",
    ] {
        let headers = format!("{inside}content-type: application/json\r\n{other}");
        let answer = ask(&server, "POST", "/api/what-if", &headers, "{}").await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{other}: {answer}");
    }
    let own = format!("{JSON}cookie: {pair}\r\norigin: http://pve1.example:9808\r\n");
    let answer = ask(&server, "POST", "/api/logout", &own, "{}").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = ask(&server, "GET", "/api/find?q=", &inside, "").await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
}

#[tokio::test]
async fn what_is_no_login_is_refused_and_never_repeated() {
    let folder = tempfile::tempdir().expect("a folder");
    let access = Access::open(&users(folder.path())).expect("it can be used");
    let server = start_behind(access).await;
    let long = "x".repeat(500);
    for body in [
        "",
        "{}",
        r#"{"user": "ann", "password": 5, "secret-word": 1}"#,
        r#"{"user": "bob", "password": "secret-word"}"#,
        &format!(r#"{{"user": "{long}", "password": "{long}secret-word"}}"#),
    ] {
        let answer = ask(&server, "POST", "/api/login", JSON, body).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{body}: {answer}");
        assert!(
            !answer.contains("secret-word") && !answer.contains("set-cookie"),
            "{answer}"
        );
    }
    // A page elsewhere can send a form, and no JSON.
    let form = "host: pve1.example:9808\r\ncontent-type: text/plain\r\n";
    let answer = ask(&server, "POST", "/api/login", form, FORM).await;
    assert!(answer.starts_with("HTTP/1.1 415"), "{answer}");
}

/// Without a login nothing of it is there.
#[tokio::test]
async fn a_page_without_a_login_has_none() {
    let server = start().await;
    let local = "host: localhost\r\ncontent-type: application/json\r\n";
    let session = ask(&server, "GET", "/api/session", local, "").await;
    assert!(
        session.ends_with(r#"{"acts":false,"login":false,"user":null}"#),
        "{session}"
    );
    let answer = ask(&server, "POST", "/api/login", local, FORM).await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}
