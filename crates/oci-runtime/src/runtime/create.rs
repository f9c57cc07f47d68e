//! `create`.

use own_processes::SessionKeyring;
use streams::stdio::ChildStdio;

use super::command::{Arguments, Streams};
use super::container::Container;
use super::error::{Operation, RuntimeError};
use super::launch::Launched;
use crate::settings::{CreateOptions, RootSwitch};

impl Container {
    pub(super) async fn runtime_create(
        &self,
        stdio: ChildStdio,
        options: CreateOptions<'_>,
    ) -> Result<Launched, RuntimeError> {
        let pid_file = self.bundle.init_pid_path();
        self.remove_stale(Operation::Create, &pid_file)?;
        let mut arguments = Arguments::new("create");
        arguments.option("--bundle", self.bundle.path());
        arguments.option("--pid-file", &pid_file);
        if let Some(socket) = options.console_socket {
            arguments.option("--console-socket", socket);
        }
        if options.root_switch == RootSwitch::NoPivotRoot {
            arguments.push("--no-pivot");
        }
        if options.session_keyring == SessionKeyring::Inherited {
            arguments.push("--no-new-keyring");
        }
        arguments.push(&*self.id);
        let launched = self.launch(Operation::Create, arguments, Streams::Container(stdio), &pid_file).await;
        if let Err(error) = &launched {
            self.undo_create(error, &pid_file).await;
        }
        launched
    }
}
