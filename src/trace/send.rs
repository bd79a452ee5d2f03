//! Spans on their way to the collector: a bounded queue, one request at a time, and an end to every wait.
//!
//! A collector that is away costs spans and nothing else. What has no place in the queue is lost and counted; the log
//! hears of an outage when it begins and when it is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{StatusCode, header};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::life::Sink;
use super::{TraceSpan, otlp};
use crate::config::settings::TelemetrySettings;
use crate::model::foreign;
use crate::model::words;
use crate::post::{self, Post, PostAnswer, PostObstacle};

/// Spans that wait at most: those of some hundred machines, 2 MB.
const QUEUE: usize = 2_048;
/// Spans in a request at most, some 300 kB.
const BATCH: usize = 256;
/// At the end so long is waited for the last request.
const FAREWELL: Duration = Duration::from_secs(1);

/// How patient it is.
#[derive(Clone, Copy, Debug)]
struct RetryTimes {
    /// A request waits so long for more spans.
    gather: Duration,
    /// After a failure it is tried again so soon, then twice as late each time …
    first: Duration,
    /// … up to this.
    longest: Duration,
    /// Spans that could not be sent for so long are lost.
    give_up: Duration,
}

const PACE: RetryTimes = RetryTimes {
    gather: Duration::from_secs(2),
    first: Duration::from_secs(1),
    longest: Duration::from_mins(1),
    give_up: Duration::from_mins(5),
};

/// Counts spans.
pub trait Account: Send + Sync + std::fmt::Debug {
    /// Counts spans that the collector took (`sent`), and spans that were lost.
    fn spans(&self, sent: u64, lost: u64);
}

/// The way to the collector, for as long as it is wanted.
#[derive(Debug)]
pub struct Exporter {
    task: JoinSet<()>,
}

/// The end of the queue at which spans are put in.
#[derive(Debug)]
struct Queue {
    sender: mpsc::Sender<TraceSpan>,
    account: Arc<dyn Account>,
    /// Spans that found no place and were not told of yet.
    lost: Arc<AtomicU64>,
}

impl Sink for Queue {
    fn take(&self, span: TraceSpan) {
        if self.sender.try_send(span).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            self.account.spans(0, 1);
        }
    }
}

impl Exporter {
    /// Begins to send what the sink takes; `instance` tells this daemon from others. It ends by itself when the sink was
    /// dropped and the queue is empty. Needs a tokio runtime.
    pub fn begin(
        telemetry: &TelemetrySettings,
        instance: String,
        account: Arc<dyn Account>,
    ) -> (Exporter, Arc<dyn Sink>) {
        Exporter::at(PACE, QUEUE, telemetry, (instance, account))
    }

    fn at(
        pace: RetryTimes,
        queue: usize,
        telemetry: &TelemetrySettings,
        (instance, account): (String, Arc<dyn Account>),
    ) -> (Exporter, Arc<dyn Sink>) {
        let (sender, receiver) = mpsc::channel(queue);
        let lost = Arc::new(AtomicU64::new(0));
        let sending = Sending {
            pace,
            telemetry: telemetry.clone(),
            instance,
            account: account.clone(),
            overflow: lost.clone(),
            client: None,
            outage: None,
        };
        let mut task = JoinSet::new();
        task.spawn(sending.run(receiver));
        let queue = Queue {
            sender,
            account,
            lost,
        };
        (Exporter { task }, Arc::new(queue))
    }

    /// Waits a moment until what is in the queue was sent; its sink must be dropped before.
    pub async fn end(mut self) {
        if timeout(FAREWELL, self.task.join_next()).await.is_err() {
            tracing::warn!("the last spans of traces could not be sent in time and are lost");
        }
    }
}

/// Asks the collector whether it takes traces, by a request without any. What it answered, in words.
///
/// # Errors
/// It does not, and why, without a secret.
pub async fn try_collector(telemetry: &TelemetrySettings) -> Result<String, String> {
    let post = post(telemetry)?;
    let client = post.client(telemetry.ca_file.as_deref())?;
    let body = otlp::request(&[], "");
    let answer = post.send(&client, body, telemetry.timeout.to_std()).await?;
    if answer.status.is_success() {
        Ok(answer.words())
    } else {
        Err(answer.words())
    }
}

/// All that would keep a request to the collector from being made, as far as it is known without sending.
pub(crate) fn obstacles(telemetry: &TelemetrySettings) -> Vec<PostObstacle> {
    let headers_file = telemetry.headers_file.as_deref();
    let ca_file = telemetry.ca_file.as_deref();
    post::obstacles(Post::to(&telemetry.url), None, headers_file, ca_file)
}

fn post(telemetry: &TelemetrySettings) -> Result<Post, String> {
    let mut post = Post::to(&telemetry.url)?;
    post.set(header::CONTENT_TYPE, "application/json")?;
    if let Some(path) = &telemetry.headers_file {
        post.set_from(path)?;
    }
    Ok(post)
}

/// What became of a request.
enum SendOutcome {
    /// The collector took it, but for so many spans, and why.
    Taken(u64, String),
    /// It will never take it.
    Refused(String),
    /// It may take it later; after so long, if it said that.
    Later(String, Option<Duration>),
}

/// While the collector does not take what it is sent.
struct Outage {
    lost: u64,
}

struct Sending {
    pace: RetryTimes,
    telemetry: TelemetrySettings,
    instance: String,
    account: Arc<dyn Account>,
    overflow: Arc<AtomicU64>,
    /// Made with the first request: until then no authority is read.
    client: Option<reqwest::Client>,
    outage: Option<Outage>,
}

impl Sending {
    async fn run(mut self, mut queue: mpsc::Receiver<TraceSpan>) {
        let mut batch = Vec::new();
        while queue.recv_many(&mut batch, BATCH).await > 0 {
            let more = async {
                while batch.len() < BATCH {
                    let room = BATCH - batch.len();
                    if queue.recv_many(&mut batch, room).await == 0 {
                        break;
                    }
                }
            };
            let _ = timeout(self.pace.gather, more).await;
            self.deliver(&batch).await;
            batch.clear();
        }
    }

    /// Sends a batch, as often as it takes and is of use.
    async fn deliver(&mut self, batch: &[TraceSpan]) {
        let all = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let (began, mut pause) = (Instant::now(), self.pace.first);
        loop {
            match self.send(batch).await {
                SendOutcome::Taken(0, _) => {
                    self.account.spans(all, 0);
                    self.works();
                    return;
                }
                SendOutcome::Taken(refused, why) => {
                    let refused = refused.min(all);
                    self.account.spans(all - refused, 0);
                    self.lost(refused, &why);
                    return;
                }
                SendOutcome::Refused(why) => {
                    self.lost(all, &why);
                    return;
                }
                SendOutcome::Later(why, _) if began.elapsed() >= self.pace.give_up => {
                    self.lost(all, &why);
                    return;
                }
                SendOutcome::Later(why, wanted) => {
                    self.fails(&why);
                    let wanted = wanted.unwrap_or(pause).max(self.pace.first);
                    sleep(wanted.min(self.pace.longest)).await;
                    pause = (pause * 2).min(self.pace.longest);
                }
            }
        }
    }

    async fn send(&mut self, batch: &[TraceSpan]) -> SendOutcome {
        let body = otlp::request(batch, &self.instance);
        let sent = async {
            // Read anew each time: a login may have been renewed.
            let post = post(&self.telemetry)?;
            let client = match &self.client {
                Some(client) => client,
                None => self
                    .client
                    .insert(post.client(self.telemetry.ca_file.as_deref())?),
            };
            let limit = self.telemetry.timeout.to_std();
            let answer = post.send(client, body, limit).await?;
            // What is in the answer's JSON was not seen as it is before that was read.
            Ok(match judge(&answer) {
                SendOutcome::Taken(refused, why) => SendOutcome::Taken(refused, post.blotted(&why)),
                came => came,
            })
        };
        match sent.await {
            Ok(came) => came,
            Err(why) => SendOutcome::Later(why, None),
        }
    }

    /// An outage began, or goes on.
    fn fails(&mut self, why: &str) {
        if self.outage.is_none() {
            let url = &self.telemetry.url;
            tracing::warn!(
                "traces cannot be sent to {url}: {why}; up to {QUEUE} spans wait, more are lost; `pve-autoscaler doctor` tries the collector"
            );
            self.outage = Some(Outage { lost: 0 });
        }
    }

    /// Counts spans that will never be sent, and says why.
    fn lost(&mut self, many: u64, why: &str) {
        self.account.spans(0, many);
        self.fails(why);
        if let Some(outage) = &mut self.outage {
            outage.lost += many;
        }
    }

    /// The collector took everything.
    fn works(&mut self) {
        let overflow = self.overflow.swap(0, Ordering::Relaxed);
        let outage = self.outage.take();
        let lost = overflow + outage.as_ref().map_or(0, |outage| outage.lost);
        if outage.is_some() || lost > 0 {
            let lost = words::count(lost, "span");
            tracing::info!("traces are sent again; {lost} were lost");
        }
    }
}

/// What an answer means: what OTLP says may be tried again is tried again, and nothing else.
fn judge(answer: &PostAnswer) -> SendOutcome {
    if answer.status.is_success() {
        let (refused, why) = rejected(&answer.body);
        return SendOutcome::Taken(refused, why);
    }
    let words = answer.words();
    match answer.status {
        StatusCode::REQUEST_TIMEOUT
        | StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            SendOutcome::Later(words, answer.retry_after.map(Duration::from_secs))
        }
        _ => SendOutcome::Refused(words),
    }
}

/// How many spans a collector says that it did not take, and why. Whatever is no such answer says nothing.
fn rejected(body: &str) -> (u64, String) {
    let answer: Value = serde_json::from_str(body).unwrap_or_default();
    let partial = &answer["partialSuccess"];
    let many = &partial["rejectedSpans"];
    let many = many.as_u64().or_else(|| many.as_str()?.parse().ok());
    let why = partial["errorMessage"]
        .as_str()
        .unwrap_or("no reason given");
    let why = foreign::line(why, 200);
    (
        many.unwrap_or(0),
        format!("it did not take all spans: {why}"),
    )
}

#[cfg(test)]
mod tests;
