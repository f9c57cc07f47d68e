//! A pause that is shorter than the milliseconds of tokio's timers.
//!
//! Owns one timer of the kernel, made at the first pause: most terminals never need one.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use threads::{async_file, timerfd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

#[derive(Debug, Default)]
pub(super) struct Pause(Option<AsyncFd<File>>);

impl Pause {
    /// Returns after `length`, which is below a second and not zero.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(super) async fn wait(&mut self, length: Duration) -> io::Result<()> {
        let pause = match &mut self.0 {
            Some(pause) => pause,
            place => place.insert(async_file::register(timerfd::make()?, Interest::READABLE)?),
        };
        timerfd::set(pause.get_ref().as_fd(), length)?;
        pause.async_io(Interest::READABLE, |mut timer| timer.read(&mut [0; 8])).await.map(drop)
    }
}
