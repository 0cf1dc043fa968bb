//! The task that sends what waits for one target: one request at a time, each again and again until
//! it is accepted.

use std::sync::Arc;
use std::time::Duration;

use hotrow_gate::admission::rate::seed;
use hotrow_net::http_client::{ClientError, Connection, Whole, body};
use hotrow_push::{Batch, Purge};
use hotrow_supervisor as supervisor;
use hotrow_supervisor::shutdown::Shutdown;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request};
use tokio::time::{sleep, timeout};

use super::request::{self, RequestError};
use super::{Purger, Target, clock};
use hotrow_config::purge::TargetKind;

/// Longest time for what is due at the end of the process.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(2);
/// Most bytes of an answer, which is not looked at.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Reason for which a request was not accepted.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error("no complete answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    #[error("{0}")]
    Client(#[from] ClientError),
    #[error("{0}")]
    Request(#[from] RequestError),
    #[error("answers {status}")]
    Status { status: u16, retry_after: Option<Duration> },
}

/// Sends what waits until everything must end, and then what is due and can be sent soon.
pub(super) async fn send_all(purger: Arc<Purger>, index: usize, shutdown: Shutdown) {
    let target = &purger.targets[index];
    // A task before this one may have ended with a batch.
    target.queue.lock().abandon();
    let mut sender =
        Sender { purger: &purger, target, connection: None, has_logged_failure: false };
    tokio::select! {
        () = shutdown.ending() => {}
        () = sender.send_without_end() => {}
    }
    target.queue.lock().abandon();
    _ = timeout(FLUSH_TIME_MAX, sender.flush()).await;
    let left = target.queue.lock().entries();
    if left > 0 {
        let target = &*target.settings.name;
        tracing::info!(
            purge_target = target,
            left,
            "purges are left at the end; the next start purges everything"
        );
    }
}

struct Sender<'a> {
    purger: &'a Purger,
    target: &'a Target,
    connection: Option<Connection>,
    /// A failure was logged, and no success since.
    has_logged_failure: bool,
}

impl Sender<'_> {
    async fn send_without_end(&mut self) {
        loop {
            supervisor::turn();
            let now = clock();
            let (batch, next_at) = {
                let mut queue = self.target.queue.lock();
                (
                    queue.take(request::batch_limits(&self.target.settings.kind), now),
                    queue.next_at(),
                )
            };
            if let Some(batch) = batch {
                self.deliver(batch).await;
                continue;
            }
            let due = async {
                match next_at {
                    Some(at) => sleep(at.saturating_sub(now)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.target.added.notified() => {}
                () = due => {}
            }
        }
    }

    /// Sends what is due, until an attempt fails.
    async fn flush(&mut self) {
        while self.target.queue.lock().failures() == 0 {
            let limits = request::batch_limits(&self.target.settings.kind);
            let Some(batch) = self.target.queue.lock().take(limits, clock()) else { return };
            self.deliver(batch).await;
        }
    }

    /// Sends one request.
    async fn deliver(&mut self, batch: Batch) {
        let time_max = self.target.settings.timeout;
        let result = timeout(time_max, self.attempt(&batch))
            .await
            .unwrap_or(Err(AttemptError::TimedOut(time_max)));
        let counts = &self.target.counts;
        match result {
            Ok(()) => {
                let records = |(purge, _): &&(Purge, _)| matches!(purge, Purge::Record(_));
                let records = batch.purges.iter().filter(records).count();
                counts.accepted(records, batch.purges.len() - records);
                self.target.queue.lock().complete(batch);
                *self.target.last_error.lock() = None;
                if std::mem::take(&mut self.has_logged_failure) {
                    let purge_target = &*self.target.settings.name;
                    tracing::info!(purge_target, "purges are accepted again");
                }
            }
            Err(error) => {
                self.connection = None;
                counts.failed();
                let asked = match &error {
                    AttemptError::Status { retry_after, .. } => *retry_after,
                    _ => None,
                };
                // Its lower half, as a share.
                let random = f64::from(seed()[0] as u32) / f64::from(u32::MAX);
                let mut queue = self.target.queue.lock();
                queue.fail(batch, asked, random, clock());
                let (entries, failures) = (queue.entries(), queue.failures());
                drop(queue);
                self.log_failure(&error, entries, failures);
            }
        }
    }

    fn log_failure(&mut self, error: &AttemptError, entries: usize, failures: u32) {
        *self.target.last_error.lock() = Some(error.to_string());
        let purge_target = &*self.target.settings.name;
        let has_logged = &mut self.has_logged_failure;
        self.target.failure_log.warn(|suppressed| {
            *has_logged = true;
            tracing::warn!(
                purge_target,
                %error,
                entries,
                failures,
                suppressed,
                "a purge was not accepted, and is sent again"
            );
        });
    }

    async fn attempt(&mut self, batch: &Batch) -> Result<(), AttemptError> {
        let settings = &self.target.settings;
        let mut open = match self.connection.take() {
            Some(mut open) => open.is_ready().await.then_some(open),
            None => None,
        };
        loop {
            let request = request::of(settings, &self.purger.collections, batch)?;
            // Nothing of it has a key, so that no cache has kept it.
            let Some(request) = request else { return Ok(()) };
            let is_reused = open.is_some();
            let mut connection = match open.take() {
                Some(connection) => connection,
                None => Connection::open(&settings.url, settings.ca_file.as_deref()).await?,
            };
            match send(&mut connection, request).await {
                Ok((status, retry_after)) => {
                    self.connection = Some(connection);
                    let is_record = matches!(&batch.purges[..], [(Purge::Record(_), _)]);
                    return match is_accepted(&settings.kind, status, is_record) {
                        true => Ok(()),
                        false => Err(AttemptError::Status { status, retry_after }),
                    };
                }
                // The target may have closed the idle connection.
                Err(ClientError::Http(_)) if is_reused => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Sends a request and reads its answer to the end.
async fn send(
    connection: &mut Connection,
    request: Request<Whole>,
) -> Result<(u16, Option<Duration>), ClientError> {
    let answer = connection.send(request).await?;
    let (status, retry_after) = (answer.status().as_u16(), retry_after(answer.headers()));
    body(answer, ANSWER_BYTES_MAX).await?;
    Ok((status, retry_after))
}

/// Returns whether the target has purged. A URL that it had not kept is not found (nginx: 404 or
/// 412); a whole collection always is.
fn is_accepted(kind: &TargetKind, status: u16, is_record: bool) -> bool {
    let is_missing = is_record && matches!(kind, TargetKind::Urls { .. });
    match status {
        200..=299 => true,
        404 | 412 => is_missing,
        _ => false,
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_was_not_kept_is_purged() {
        let urls = TargetKind::Urls { purge_all: "/all/{collection}".to_owned() };
        for missing in [404, 412] {
            assert!(is_accepted(&urls, missing, true));
            assert!(!is_accepted(&urls, missing, false), "the recipe for collections is missing");
            assert!(!is_accepted(&TargetKind::VarnishXkey, missing, true));
        }
        for kind in [urls, TargetKind::VarnishXkey, TargetKind::Webhook(None)] {
            assert!(is_accepted(&kind, 200, true) && is_accepted(&kind, 204, false));
            for status in [301, 400, 403, 405, 500, 503] {
                assert!(!is_accepted(&kind, status, true), "{status}");
            }
        }
    }
}
