//! `start`, `exec` and `update`: what is asked of a container that exists.

use std::fs;
use std::path::Path;

use streams::stdio::ChildStdio;

use super::command::{Arguments, Streams, TemporaryFile};
use super::container::Container;
use super::error::{Operation, RuntimeError};
use super::launch::Launched;
use crate::bundle::BundleError;

impl Container {
    pub(super) async fn runtime_start(&self) -> Result<(), RuntimeError> {
        let mut arguments = Arguments::new("start");
        arguments.push(&*self.id);
        self.run(Operation::Start, arguments, None).await.map(drop)
    }

    pub(super) async fn runtime_exec(
        &self,
        exec_id: &str,
        process: &[u8],
        stdio: ChildStdio,
        console_socket: Option<&Path>,
    ) -> Result<Launched, RuntimeError> {
        let bundle_error =
            |source| RuntimeError::Bundle { operation: Operation::Exec, id: self.id.to_string(), source };
        let pid_file = self.bundle.exec_pid_path(exec_id).map_err(bundle_error)?;
        let process_file = self.bundle.exec_process_path(exec_id).map_err(bundle_error)?;
        self.remove_stale(Operation::Exec, &pid_file)?;
        let process_file = TemporaryFile::create(process_file, process)
            .map_err(|(path, source)| bundle_error(BundleError::Write { path, source }))?;
        let mut arguments = Arguments::new("exec");
        arguments.option("--process", &process_file.path);
        arguments.push("--detach");
        arguments.option("--pid-file", &pid_file);
        if let Some(socket) = console_socket {
            arguments.option("--console-socket", socket);
        }
        arguments.push(&*self.id);
        let launched = self.launch(Operation::Exec, arguments, Streams::Container(stdio), &pid_file).await;
        // Adopted: the file is used up, and podshim alone reads it. init.pid stays for `delete`.
        let _ = fs::remove_file(&pid_file);
        launched
    }

    pub(super) async fn runtime_update(&self, resources: &[u8]) -> Result<(), RuntimeError> {
        let mut arguments = Arguments::new("update");
        arguments.option("--resources", Path::new("-"));
        arguments.push(&*self.id);
        self.run(Operation::Update, arguments, Some(resources)).await.map(drop)
    }
}
