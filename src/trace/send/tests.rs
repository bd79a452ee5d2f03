use std::sync::Mutex;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::model::time::{Span, Time};
use crate::trace::{TraceId, TracedMachine};

const HASTY: RetryTimes = RetryTimes {
    gather: Duration::from_millis(20),
    first: Duration::from_millis(20),
    longest: Duration::from_millis(50),
    give_up: Duration::from_millis(300),
};

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    lost: AtomicU64,
}

impl Counts {
    fn both(&self) -> (u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::SeqCst);
        (of(&self.sent), of(&self.lost))
    }

    async fn until(&self, wanted: (u64, u64)) {
        let look = async {
            while self.both() != wanted {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let seen = timeout(Duration::from_secs(20), look).await;
        assert!(seen.is_ok(), "{:?} and not {wanted:?}", self.both());
    }
}

impl Account for Counts {
    fn spans(&self, sent: u64, lost: u64) {
        self.sent.fetch_add(sent, Ordering::SeqCst);
        self.lost.fetch_add(lost, Ordering::SeqCst);
    }
}

fn span(number: i64) -> TraceSpan {
    let mark = crate::model::mark::Mark {
        cluster: "uid/home".into(),
        machine: "small-bcdfg".into(),
        vmid: 9100,
        pool: "small".into(),
        instance_type: "small".into(),
        template: "debian".into(),
        token: "abcdef".into(),
        created: Time(0),
        addresses: std::collections::BTreeMap::new(),
        cpus: crate::model::cpus::CpuSet::new(),
        unknown: [].into(),
    };
    let trace = TraceId::of(&mark);
    TraceSpan {
        trace,
        id: trace.span("clone", Time(number)),
        parent: Some(trace.root()),
        name: "clone",
        began: Time(number),
        ended: Time(number + 1),
        machine: Arc::new(TracedMachine {
            name: "small-bcdfg".into(),
            cluster: "uid/home".into(),
            region: "default".into(),
            host: "pve1".into(),
            vmid: 9100,
            pool: "small".into(),
            instance_type: "small".into(),
            template: "debian".into(),
            uuid: None,
            node: None,
        }),
        reason: Arc::default(),
        events: Vec::new(),
        failure: None,
    }
}

/// A collector that answers each request with the next of these texts as they are, the last one ever after; an empty one
/// keeps the connection and says nothing. Gives its address and the requests that came.
async fn collector(answers: Vec<String>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let taken = requests.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let (taken, answers) = (taken.clone(), answers.clone());
            tokio::spawn(async move {
                let (mut request, mut piece) = (Vec::new(), [0; 4096]);
                while !whole(&request) {
                    let Ok(many @ 1..) = stream.read(&mut piece).await else {
                        return;
                    };
                    request.extend_from_slice(&piece[..many]);
                }
                let number = {
                    let mut taken = taken.lock().expect("no panic");
                    taken.push(String::from_utf8_lossy(&request).into_owned());
                    taken.len() - 1
                };
                let answer = &answers[number.min(answers.len() - 1)];
                if answer.is_empty() {
                    sleep(Duration::from_mins(1)).await;
                }
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    (format!("http://{address}/v1/traces"), requests)
}

fn whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
        let length = head.split("content-length: ").nth(1);
        let length = length.and_then(|rest| rest.lines().next()?.parse::<usize>().ok());
        length.is_some_and(|length| body.len() >= length)
    })
}

fn answer(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

fn begin(url: &str, queue: usize) -> (Exporter, Arc<dyn Sink>, Arc<Counts>) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let telemetry = TelemetrySettings {
        url: url.to_owned(),
        headers_file: None,
        ca_file: None,
        timeout: Span(200),
    };
    let counts = Arc::new(Counts::default());
    let about = ("pve1".to_owned(), counts.clone() as Arc<dyn Account>);
    let (exporter, sink) = Exporter::at(HASTY, queue, &telemetry, about);
    (exporter, sink, counts)
}

/// What OTLP says may be sent again is sent again, with the same ids, until it is taken; what it says may not is lost at
/// once. Found by it: a retry of 500, none of 503, a batch that is counted twice.
#[tokio::test]
async fn what_may_be_tried_again_is_tried_again_and_nothing_else() {
    let ok = answer("200 OK", "{}");
    let later = answer("503 Service Unavailable", "");
    let (url, requests) = collector(vec![later.clone(), later, ok.clone()]).await;
    let (exporter, sink, counts) = begin(&url, 10);
    sink.take(span(1));
    counts.until((1, 0)).await;
    let bodies: Vec<String> = requests.lock().expect("no panic").clone();
    let body = |request: &String| request.split_once("\r\n\r\n").map(|(_, b)| b.to_owned());
    assert_eq!(bodies.len(), 3);
    assert!(bodies.iter().all(|each| body(each) == body(&bodies[0])));
    drop(sink);
    exporter.end().await;

    let broken = answer("500 Oh", "no");
    let (url, requests) = collector(vec![broken, ok]).await;
    let (_exporter, sink, counts) = begin(&url, 10);
    sink.take(span(1));
    counts.until((0, 1)).await;
    sink.take(span(2));
    counts.until((1, 1)).await;
    assert_eq!(requests.lock().expect("no panic").len(), 2);
}

/// Nobody waits for a collector that is away or never answers: what has no place in the queue is lost and counted, and
/// what waited too long. Found by it: a queue without an end, a batch that is kept for ever, a request without an end.
#[tokio::test]
async fn a_collector_that_is_away_or_mute_costs_spans_and_no_time() {
    let away = "http://127.0.0.1:1/v1/traces".to_owned();
    let (mute, _) = collector(vec![String::new()]).await;
    for url in [away, mute] {
        let (exporter, sink, counts) = begin(&url, 4);
        let began = Instant::now();
        for number in 0..1_000 {
            sink.take(span(number));
        }
        assert!(began.elapsed() < Duration::from_millis(500), "{url}");
        assert_eq!(counts.both(), (0, 996), "{url}");
        counts.until((0, 1_000)).await;
        sink.take(span(1_000));
        drop(sink);
        let began = Instant::now();
        exporter.end().await;
        assert!(began.elapsed() < FAREWELL * 2, "{url}");
    }
}

/// Whatever a collector answers ends as numbers that can be. Found by it: a count of rejected spans that is believed, an
/// answer that is read to its end, a panic at what is no JSON.
#[tokio::test]
async fn a_collector_that_lies_is_borne() {
    let endless = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n{}",
        "x".repeat(100_000)
    );
    for (said, (sent, lost)) in [
        (
            answer("200 OK", r#"{"partialSuccess":{"rejectedSpans":"1"}}"#),
            (1, 1),
        ),
        (
            answer("200 OK", r#"{"partialSuccess":{"rejectedSpans":99}}"#),
            (0, 2),
        ),
        (
            answer("200 OK", r#"{"partialSuccess":{"rejectedSpans":-5}}"#),
            (2, 0),
        ),
        (answer("200 OK", "[[[[[[[["), (2, 0)),
        (answer("202 Accepted", "\u{0}\u{7f}"), (2, 0)),
        (endless, (2, 0)),
        (answer("301 Moved", ""), (0, 2)),
        ("HTTP/1.1 999\r\n\r\n".to_owned(), (0, 2)),
        ("\u{1}\u{2} no HTTP\r\n\r\n".to_owned(), (0, 2)),
    ] {
        let (url, _) = collector(vec![said.clone()]).await;
        let (_exporter, sink, counts) = begin(&url, 10);
        sink.take(span(1));
        sink.take(span(2));
        counts.until((sent, lost)).await;
    }
}

/// At the end what is in the queue is sent.
#[tokio::test]
async fn the_end_sends_what_is_left() {
    let (url, requests) = collector(vec![answer("200 OK", "{}")]).await;
    let (exporter, sink, counts) = begin(&url, 2_000);
    for number in 0..600 {
        sink.take(span(number));
    }
    drop(sink);
    exporter.end().await;
    assert_eq!(counts.both(), (600, 0));
    assert_eq!(requests.lock().expect("no panic").len(), 3);
}
