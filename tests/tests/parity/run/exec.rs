//! An exec as a scenario writes it.

use e2e::direct::bundle::process;
use e2e::direct::streams::Streams;
use serde_json::Value;

/// An exec that a scenario adds.
#[derive(Clone, Debug)]
pub struct Exec {
    pub process: Value,
    pub streams: Streams,
}

impl Exec {
    pub fn shell(script: &str) -> Self {
        Self::program(&["sh", "-c", script])
    }

    pub fn program(args: &[&str]) -> Self {
        Self { process: process(args), streams: Streams::default() }
    }

    /// Changes the OCI process.
    pub fn process(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.process);
        self
    }

    pub fn streams(mut self, streams: Streams) -> Self {
        self.streams = streams;
        self
    }
}
