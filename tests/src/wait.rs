//! Waiting for something to become true, with a deadline. The only place that sleeps.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep, timeout};

use crate::durations::pace;

/// How often a condition is checked: much finer than the differences that tests measure (hundreds of milliseconds).
const INTERVAL: Duration = Duration::from_millis(10);

/// Calls `condition` until it returns a value, and returns that value. After `within` (times the machine's [`pace`]) it
/// fails and names `what`. An error of the condition ends the wait at once.
pub async fn until<T>(
    what: &str,
    within: Duration,
    condition: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    until_seen_every(INTERVAL, what, within, condition).await
}

/// Like [`until`], with another interval, for a condition that is costly to check.
pub async fn until_seen_every<T>(
    interval: Duration,
    what: &str,
    within: Duration,
    mut condition: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let within = within * pace();
    let deadline = Instant::now() + within;
    loop {
        if let Some(value) = condition().await? {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            bail!("waited {within:?} for {what}");
        }
        sleep(interval).await;
    }
}

/// Returns the result of `future`. Fails with `failure` if that takes longer than `limit` (times the machine's
/// [`pace`]).
pub async fn at_most<T>(
    limit: Duration,
    failure: &'static str,
    future: impl Future<Output = Result<T>>,
) -> Result<T> {
    timeout(limit * pace(), future).await.context(failure)?
}

/// Lets time pass in which something must *not* happen. Never use it to wait for something that must happen.
pub async fn quiet_time(length: Duration) {
    sleep(length).await;
}

/// Runs all futures at the same time. When all have ended, returns the first failure.
///
/// # Errors
/// That failure.
pub async fn all<T>(futures: impl Iterator<Item = impl Future<Output = Result<T>>>) -> Result<()> {
    let mut left: Vec<Pin<Box<_>>> = futures.map(Box::pin).collect();
    let mut result = Ok(());
    std::future::poll_fn(|context| {
        left.retain_mut(|future| match future.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(Ok(_)) => false,
            Poll::Ready(Err(error)) => {
                if result.is_ok() {
                    result = Err(error);
                }
                false
            }
        });
        if left.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    result
}
