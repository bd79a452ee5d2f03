//! PVE for a person who is root on this host: the broker's own way (this host's pveproxy as root@pam), without the broker.
//!
//! The allow-list is for the daemon, which has no rights of its own. Whoever runs a command as root could call PVE anyway; what
//! such a command may do is held by the command.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use crate::pve::transport::Transport;
use crate::pve::transport::answer::HttpAnswer;
use crate::pve::{CallEffect, CallError, PveRequest};

use super::Paths;
use super::forward::{Forward, ForwardResult, PveChannel};

/// The way to PVE on this host as root@pam.
#[derive(Clone, Debug)]
pub struct Direct {
    way: Arc<dyn PveChannel>,
}

impl Direct {
    /// The way of this host. Nothing is sent yet.
    ///
    /// # Errors
    /// Says that only root has it.
    pub fn open() -> Result<Direct, String> {
        if !nix::unistd::geteuid().is_root() {
            return Err(
                "only root reaches PVE on this host without the broker; run it as root".to_owned(),
            );
        }
        Ok(Direct {
            way: Arc::new(Forward::new(Paths::default())),
        })
    }
}

impl Transport for Direct {
    fn call(&self, request: PveRequest) -> BoxFuture<'_, Result<Value, CallError>> {
        Box::pin(async move {
            let end = Instant::now() + request.timeout;
            let read = match self.way.send(&request, end).await {
                ForwardResult::Never(why) => Err(CallError::new(CallEffect::NotSent, why)),
                ForwardResult::Unknown(why) => Err(CallError::new(CallEffect::Unknown, why)),
                ForwardResult::Answer(answer) => HttpAnswer {
                    status: answer.status,
                    reason: answer.reason,
                    body: &answer.body,
                }
                .read(),
            };
            read.map_err(|error| error.about(&request))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::forward;
    use super::*;
    use crate::pve::HttpMethod;
    use std::time::Duration;

    /// Answers every call alike.
    #[derive(Debug)]
    struct Fixed(ForwardResult);

    impl PveChannel for Fixed {
        fn send<'a>(&'a self, _: &'a PveRequest, _: Instant) -> BoxFuture<'a, ForwardResult> {
            Box::pin(async { self.0.clone() })
        }

        fn channel(&self) -> &'static str {
            "https"
        }

        fn last_error(&self) -> Option<String> {
            None
        }
    }

    async fn outcome(sent: ForwardResult) -> Result<Value, (CallEffect, String)> {
        let way = Direct {
            way: Arc::new(Fixed(sent)),
        };
        let request = PveRequest {
            call: "version",
            method: HttpMethod::Get,
            path: "/version".to_owned(),
            params: Vec::new(),
            multipart: false,
            timeout: Duration::from_secs(1),
        };
        let read = way.call(request).await;
        read.map_err(|error| (error.outcome, error.to_string()))
    }

    #[tokio::test]
    async fn what_became_of_a_call_is_told_apart() {
        let answer = |status, body: &str| {
            ForwardResult::Answer(forward::PveAnswer {
                status,
                reason: "no".to_owned(),
                body: body.as_bytes().to_vec(),
            })
        };
        let good = outcome(answer(200, r#"{"data":{"a":1}}"#)).await;
        assert_eq!(good.expect("data")["a"], 1);
        for (sent, wanted) in [
            (
                answer(500, r#"{"data":null,"message":"locked"}"#),
                CallEffect::Refused,
            ),
            (answer(596, ""), CallEffect::Unknown),
            (ForwardResult::Never("down".to_owned()), CallEffect::NotSent),
            (
                ForwardResult::Unknown("broke".to_owned()),
                CallEffect::Unknown,
            ),
        ] {
            let (outcome, text) = outcome(sent).await.expect_err("no data");
            assert_eq!(outcome, wanted, "{text}");
            assert!(text.contains("/version"), "{text}");
        }
    }
}
