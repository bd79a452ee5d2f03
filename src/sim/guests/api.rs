//! A small client of the fake API server, for guests and tests: JSON over a router in memory.

use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, BodyDataStream};
use futures::StreamExt;
use http::{Request, header};
use serde_json::Value;
use tower::ServiceExt;

/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// Most bytes of one answer; lists of a large cluster are some megabytes.
const MOST_ANSWER: usize = 256 * 1024 * 1024;

/// A refusal, or no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{method} {path}: {code} {message}")]
pub(in crate::sim) struct ApiError {
    pub(in crate::sim) method: &'static str,
    pub(in crate::sim) path: String,
    /// HTTP status; 0 when there was no answer.
    pub(in crate::sim) code: u16,
    pub(in crate::sim) reason: String,
    pub(in crate::sim) message: String,
    pub(in crate::sim) body: Value,
}

/// The client: a router and who calls.
#[derive(Clone, Debug)]
pub(in crate::sim) struct Api {
    router: Router,
    bearer: Option<String>,
}

impl Api {
    /// A client without credentials.
    pub(in crate::sim) fn new(router: Router) -> Api {
        Api {
            router,
            bearer: None,
        }
    }

    /// This client with a bearer token.
    pub(in crate::sim) fn with_bearer(&self, bearer: impl Into<String>) -> Api {
        Api {
            router: self.router.clone(),
            bearer: Some(bearer.into()),
        }
    }

    async fn send(
        &self,
        method: &'static str,
        path: &str,
        media: &str,
        body: Option<&Value>,
    ) -> Result<axum::response::Response, ApiError> {
        let fault = |code: u16, message: String| ApiError {
            method,
            path: path.to_owned(),
            code,
            reason: String::new(),
            message,
            body: Value::Null,
        };
        let mut request = Request::builder().method(method).uri(path);
        if let Some(bearer) = &self.bearer {
            request = request.header(header::AUTHORIZATION, format!("Bearer {bearer}"));
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, media);
        }
        let content = body.map_or_else(Body::empty, |b| Body::from(b.to_string()));
        let request = request.body(content).map_err(|e| fault(0, e.to_string()))?;
        match tokio::time::timeout(DEADLINE, self.router.clone().oneshot(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(never)) => match never {},
            Err(_) => Err(fault(0, "no answer in time".to_owned())),
        }
    }

    /// One request with a JSON body, if any, of this media type.
    pub(in crate::sim) async fn call(
        &self,
        method: &'static str,
        path: &str,
        media: &str,
        body: Option<&Value>,
    ) -> Result<Value, ApiError> {
        let response = self.send(method, path, media, body).await?;
        let code = response.status().as_u16();
        let read = axum::body::to_bytes(response.into_body(), MOST_ANSWER);
        let bytes = tokio::time::timeout(DEADLINE, read)
            .await
            .ok()
            .and_then(Result::ok)
            .unwrap_or_default();
        let answer: Value = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        if code < 300 {
            return Ok(answer);
        }
        let part = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
        Err(ApiError {
            method,
            path: path.to_owned(),
            code,
            reason: part("reason"),
            message: part("message"),
            body: answer,
        })
    }

    /// Posts text with headers of its own; gives the text that comes back.
    pub(in crate::sim) async fn submit(
        &self,
        path: &str,
        headers: &[(String, String)],
        text: String,
    ) -> Result<String, ApiError> {
        let fault = |code: u16, message: String| ApiError {
            method: "POST",
            path: path.to_owned(),
            code,
            reason: String::new(),
            message,
            body: Value::Null,
        };
        let mut request = Request::builder().method("POST").uri(path);
        if let Some(bearer) = &self.bearer {
            request = request.header(header::AUTHORIZATION, format!("Bearer {bearer}"));
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request
            .body(Body::from(text))
            .map_err(|e| fault(0, e.to_string()))?;
        let response =
            match tokio::time::timeout(DEADLINE, self.router.clone().oneshot(request)).await {
                Ok(Ok(response)) => response,
                Ok(Err(never)) => match never {},
                Err(_) => return Err(fault(0, "no answer in time".to_owned())),
            };
        let code = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), MOST_ANSWER)
            .await
            .unwrap_or_default();
        let answer = String::from_utf8_lossy(&bytes).into_owned();
        if code < 300 {
            Ok(answer)
        } else {
            Err(fault(code, answer))
        }
    }

    pub(in crate::sim) async fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.call("GET", path, "", None).await
    }

    pub(in crate::sim) async fn post(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        self.call("POST", path, "application/json", Some(body))
            .await
    }

    #[cfg(test)]
    pub(in crate::sim) async fn put(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        self.call("PUT", path, "application/json", Some(body)).await
    }

    /// A JSON merge patch.
    pub(in crate::sim) async fn merge(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        self.call("PATCH", path, "application/merge-patch+json", Some(body))
            .await
    }

    /// A strategic merge patch.
    pub(in crate::sim) async fn patch(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        let media = "application/strategic-merge-patch+json";
        self.call("PATCH", path, media, Some(body)).await
    }

    pub(in crate::sim) async fn delete(
        &self,
        path: &str,
        options: &Value,
    ) -> Result<Value, ApiError> {
        self.call("DELETE", path, "application/json", Some(options))
            .await
    }

    /// Opens a watch.
    pub(in crate::sim) async fn watch(&self, path: &str) -> Result<Lines, ApiError> {
        let response = self.send("GET", path, "", None).await?;
        Ok(Lines {
            stream: Box::pin(response.into_body().into_data_stream()),
            rest: Vec::new(),
        })
    }
}

/// The lines of a watch.
pub(in crate::sim) struct Lines {
    stream: Pin<Box<BodyDataStream>>,
    rest: Vec<u8>,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl Lines {
    /// The next event; `None` when the watch ended.
    pub(in crate::sim) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return serde_json::from_slice(&line).ok();
            }
            let piece = self.stream.next().await?.ok()?;
            self.rest.extend_from_slice(&piece);
        }
    }
}
