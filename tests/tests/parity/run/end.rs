//! The end of a run: everything is killed, shut down and deleted, and what is left is recorded.

use std::collections::BTreeSet;

use anyhow::Result;
use containerd_shim_protos::shim::shim::WaitResponse;
use e2e::wait;

use super::{Outcome, Run, SOON};
use crate::machine::Traces;

impl Run {
    /// Kills what still runs, shuts the shim down, runs `delete` for each bundle, and records what is left.
    pub async fn end(mut self) -> Result<Outcome> {
        for id in self.bundles.clone() {
            self.connection = self.connections.get(&id).map(|(connection, _)| connection.clone());
            self.kill_all(&id, 9).await;
            if let Some(WaitResponse { .. }) = self.wait(&id).await {
                self.delete(&id).await;
                self.event("delete", &id).await;
            }
        }
        let mut shims = BTreeSet::new();
        for (id, (connection, address)) in self.connections.clone() {
            // Containers of one group have one shim.
            if shims.insert(address) {
                self.connection = Some(connection);
                self.shutdown(&id).await;
            }
        }
        let traces = self.traces();
        let gone = wait::until("the run's processes to end", SOON, async || {
            Ok(traces.processes()?.is_empty().then_some(()))
        });
        let gone = gone.await.is_ok();
        self.record("end of all processes", vec![("gone".to_owned(), gone.to_string())]);
        self.left("after shutdown", &traces)?;
        for id in self.bundles.clone() {
            self.delete_action(&id).await?;
        }
        self.left("after delete", &traces)?;
        let mut records = std::mem::take(&mut self.records);
        records.extend(self.events.records(&self.names));
        Ok(Outcome { operations: self.operations.get(), records })
    }

    fn left(&mut self, when: &str, traces: &Traces) -> Result<()> {
        let found = traces.find()?;
        let found = found
            .iter()
            .map(|(kind, what)| (format!("{kind} {}", self.names.of_text(what)), "left".to_owned()));
        let found = found.collect();
        self.record(when, found);
        Ok(())
    }
}
