//! An OCI runtime, and the handle of one of its containers, of which every call is a file of its own beside this.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use cgroups::{CgroupDriver, Hidden};
use processes::reaper::{Charge, Reaper};

use super::give_up::GiveUp;
use super::maker::Maker;
use crate::bundle::Bundle;
use crate::settings::CallEnvironment;

/// An OCI runtime binary with its settings.
#[derive(Debug, Clone)]
pub struct Runtime {
    pub(super) reaper: Reaper,
    pub(super) binary: PathBuf,
    pub(super) root: PathBuf,
    pub(super) cgroup_driver: CgroupDriver,
    pub(super) criu: Option<PathBuf>,
    pub(super) environment: CallEnvironment,
    pub(super) hidden: Option<Hidden>,
}

impl Runtime {
    /// Makes a runtime that is called as `binary`, which is looked up in PATH unless it contains a slash. Its state is
    /// in `root`.
    ///
    /// `root` includes containerd's namespace: `/run/containerd/runc/<namespace>` (CONTRACT §8).
    pub fn new(
        reaper: Reaper,
        binary: impl Into<PathBuf>,
        root: impl Into<PathBuf>,
        cgroup_driver: CgroupDriver,
    ) -> Self {
        let (binary, root) = (binary.into(), root.into());
        let environment = CallEnvironment::default();
        Self { reaper, binary, root, cgroup_driver, criu: None, environment, hidden: None }
    }

    /// The same runtime, called with this environment.
    pub fn with_environment(self, environment: CallEnvironment) -> Self {
        Self { environment, ..self }
    }

    /// The same runtime with the path of `criu`. Only runc before 1.2 needs it, for a criu outside of PATH.
    pub fn with_criu(self, criu: Option<PathBuf>) -> Self {
        Self { criu, ..self }
    }

    /// The binary.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// A handle for one container of this runtime. The container need not exist yet.
    pub fn container(self: &Rc<Self>, id: impl Into<String>, bundle: Bundle) -> Container {
        Container {
            runtime: self.clone(),
            id: id.into().into(),
            bundle: Rc::new(bundle),
            cgroups_path: None,
            maker: Maker::Runtime,
            give_up: None,
        }
    }
}

/// One container of a [`Runtime`]. Clones are cheap and name the same container.
///
/// No call is undone by dropping its future: the runtime goes on working, ends by itself, and its time limit no longer
/// applies. Run the calls with `spawn_local`.
#[derive(Debug, Clone)]
pub struct Container {
    pub(super) runtime: Rc<Runtime>,
    pub(super) id: Rc<str>,
    pub(super) bundle: Rc<Bundle>,
    pub(super) cgroups_path: Option<Rc<str>>,
    pub(super) maker: Maker,
    /// Ends its calls when nothing waits for them any more.
    pub(super) give_up: Option<GiveUp>,
}

impl Container {
    /// The container id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The bundle.
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// The same container, with its groups as its spec names them: podshim removes what the runtime leaves of them.
    #[must_use]
    pub fn in_groups(self, path: Option<String>) -> Self {
        Self { cgroups_path: path.map(Into::into), ..self }
    }

    /// Its groups, as its spec names them.
    pub fn cgroups_path(&self) -> Option<&str> {
        self.cgroups_path.as_deref()
    }

    /// A handle whose calls are all charged to `charge`.
    #[must_use]
    pub fn charged_to(&self, charge: Charge) -> Self {
        let reaper = self.runtime.reaper.charged_to(charge);
        let runtime = Runtime { reaper, ..Runtime::clone(&self.runtime) };
        Self { runtime: Rc::new(runtime), ..self.clone() }
    }

    /// A handle whose calls do not see what is hidden.
    #[must_use]
    pub(super) fn hiding(&self, hidden: Hidden) -> Self {
        let runtime = Runtime { hidden: Some(hidden), ..Runtime::clone(&self.runtime) };
        Self { runtime: Rc::new(runtime), ..self.clone() }
    }

    /// A handle whose calls end when they are given up.
    #[must_use]
    pub fn until(&self, give_up: GiveUp) -> Self {
        Self { give_up: Some(give_up), ..self.clone() }
    }

    /// A handle whose calls undo those that were given up.
    pub(super) fn regardless(&self) -> Self {
        Self { give_up: None, ..self.clone() }
    }

    /// Waits until its calls are given up.
    pub(super) async fn given_up(&self) {
        match &self.give_up {
            Some(give_up) => give_up.given().await,
            None => std::future::pending().await,
        }
    }

    /// The reaper that knows this container's processes.
    pub fn reaper(&self) -> &Reaper {
        &self.runtime.reaper
    }

    pub(super) fn has_bundle(&self) -> bool {
        self.bundle.path().is_dir()
    }
}
