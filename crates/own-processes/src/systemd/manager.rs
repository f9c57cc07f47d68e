//! A connection to systemd's manager.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::geteuid;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::message::{self, Body, Reply, START};
use super::property::Property;

/// Where systemd hears root without a bus; systemctl uses it too.
pub(crate) const SOCKET: &str = "/run/systemd/private";
/// For one call. systemd does not answer while it reloads all units, which takes seconds on a large node.
const CALL_LIMIT: Duration = Duration::from_secs(25);
/// Bytes of a line before the first message.
const MOST_OF_LINE: usize = 1024;
/// A unit's job takes the place of one that waits (runc, crun).
const REPLACE: &str = "replace";

/// What systemd before 242 refuses. The control group has the period without it, as with runc.
const NEWER: &str = "CPUQuotaPeriodUSec";

/// Why systemd did not do what it was asked for.
#[derive(Debug, Error)]
pub enum SystemdError {
    /// It cannot be reached, or answers nothing.
    #[error("{}: {source}", path.display())]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It refuses.
    #[error("systemd refuses {call}: {reason} ({name})")]
    Refused {
        /// The call.
        call: &'static str,
        /// D-Bus' name of the error.
        name: String,
        /// In systemd's words.
        reason: String,
    },
}

impl SystemdError {
    /// Whether it says that there is no such unit.
    pub(crate) fn is_no_such_unit(&self) -> bool {
        self.has_name("org.freedesktop.systemd1.NoSuchUnit")
    }

    /// Whether it says that one of the properties is unknown or out of range. It has changed none then.
    fn is_of_property(&self) -> bool {
        self.has_name("org.freedesktop.DBus.Error.PropertyReadOnly")
            || self.has_name("org.freedesktop.DBus.Error.InvalidArgs")
    }

    fn has_name(&self, expected: &str) -> bool {
        matches!(self, Self::Refused { name, .. } if name == expected)
    }
}

/// systemd, connected.
#[derive(Debug)]
pub(crate) struct Manager {
    stream: UnixStream,
    socket: PathBuf,
    serial: u32,
}

impl Manager {
    /// Whether systemd runs on this node and hears root.
    pub(crate) fn is_there() -> bool {
        Path::new(SOCKET).exists()
    }

    /// Connects to systemd.
    ///
    /// # Errors
    /// It cannot be reached.
    pub(crate) async fn connect() -> Result<Self, SystemdError> {
        Self::connect_to(Path::new(SOCKET)).await
    }

    /// Connects to systemd's manager at that socket.
    ///
    /// # Errors
    /// It cannot be reached.
    pub(crate) async fn connect_to(socket: &Path) -> Result<Self, SystemdError> {
        let unreachable = |source| SystemdError::Unreachable { path: socket.to_owned(), source };
        let connect = async {
            let mut stream = UnixStream::connect(socket).await?;
            // The first byte carries the credentials, and is not part of the protocol. The user's number is in
            // hexadecimal digits of its decimal ones.
            let user: String = geteuid().to_string().bytes().map(|digit| format!("{digit:02x}")).collect();
            stream.write_all(format!("\0AUTH EXTERNAL {user}\r\n").as_bytes()).await?;
            // It says nothing more before the next word of ours.
            let mut answer = Vec::new();
            while !answer.ends_with(b"\n") && answer.len() < MOST_OF_LINE {
                answer.push(stream.read_u8().await?);
            }
            if !answer.starts_with(b"OK ") {
                let reason = format!("it does not take this user: {}", answer.escape_ascii());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
            }
            stream.write_all(b"BEGIN\r\n").await?;
            Ok(stream)
        };
        let stream = in_time(connect).await.map_err(unreachable)?;
        Ok(Self { stream, socket: socket.to_owned(), serial: 0 })
    }

    /// Asks for a scope. It exists a little after this returns: systemd queues the job.
    ///
    /// # Errors
    /// systemd refuses it or cannot be reached.
    pub(crate) async fn start_scope(
        &mut self,
        unit: &str,
        properties: &[Property],
    ) -> Result<(), SystemdError> {
        let body = Body::default().text(unit).text(REPLACE).properties(properties).no_units();
        self.call("StartTransientUnit", &body).await
    }

    /// Asks whether there is a unit.
    ///
    /// # Errors
    /// systemd has none of that name, or cannot be reached.
    pub(crate) async fn find_unit(&mut self, unit: &str) -> Result<(), SystemdError> {
        self.call("GetUnit", &Body::default().text(unit)).await
    }

    /// Changes properties of a unit that runs, until the node restarts. The one that an old systemd does not know is left out there.
    ///
    /// # Errors
    /// systemd refuses it or cannot be reached.
    pub(crate) async fn set_properties(
        &mut self,
        unit: &str,
        properties: &[Property],
    ) -> Result<(), SystemdError> {
        let set = self.set_all(unit, properties).await;
        let known: Vec<_> = properties.iter().filter(|property| property.name != NEWER).cloned().collect();
        if known.len() < properties.len() && set.as_ref().is_err_and(SystemdError::is_of_property) {
            return self.set_all(unit, &known).await;
        }
        set
    }

    async fn set_all(&mut self, unit: &str, properties: &[Property]) -> Result<(), SystemdError> {
        let body = Body::default().text(unit).bool(true).properties(properties);
        self.call("SetUnitProperties", &body).await
    }

    /// Ends a unit.
    ///
    /// # Errors
    /// systemd refuses it or cannot be reached.
    pub(crate) async fn stop_unit(&mut self, unit: &str) -> Result<(), SystemdError> {
        self.call("StopUnit", &Body::default().text(unit).text(REPLACE)).await
    }

    async fn call(&mut self, member: &'static str, body: &Body) -> Result<(), SystemdError> {
        self.serial += 1;
        let serial = self.serial;
        let stream = &mut self.stream;
        let answered = async {
            stream.write_all(&message::call(serial, member, body)).await?;
            loop {
                match next(stream).await? {
                    Reply::Done { call } if call == serial => return Ok(None),
                    Reply::Refused { call, name, reason } if call == serial => {
                        return Ok(Some((name, reason)));
                    }
                    _ => {}
                }
            }
        };
        let answer = in_time(answered).await;
        match answer.map_err(|source| SystemdError::Unreachable { path: self.socket.clone(), source })? {
            None => Ok(()),
            Some((name, reason)) => Err(SystemdError::Refused { call: member, name, reason }),
        }
    }
}

async fn next(stream: &mut UnixStream) -> io::Result<Reply> {
    let not_understood = || io::Error::new(io::ErrorKind::InvalidData, "its answer is no D-Bus message");
    let mut start = [0; START];
    stream.read_exact(&mut start).await?;
    let (fields, length) = message::lengths(&start).ok_or_else(not_understood)?;
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    message::read(&start, fields, &rest).ok_or_else(not_understood)
}

async fn in_time<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {CALL_LIMIT:?}"));
    timeout(CALL_LIMIT, work).await.unwrap_or_else(|_| Err(late()))
}

#[cfg(test)]
mod tests;
