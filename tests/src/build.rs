//! Builds of podshim, and replacing one by another under live pods, as a package manager does. Owns the programs of an
//! instance that was started for that ([`Containerd::start_build`]); compiles nothing itself.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::instance::{SHARED_INSTANCE, own_arguments, own_directory};
use crate::{Containerd, command};

/// What a package of podshim holds.
const PROGRAMS: [&str; 2] = ["containerd-shim-podshim-v2", "podshim"];
/// Directory of an instance's own programs, below the instance's directory.
const DIRECTORY: &str = "build";

/// A build of podshim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// The build that this test run tests.
    Current,
    /// The build of the previous release (`hack/previous-build`).
    Previous,
}

impl Build {
    async fn directory(self) -> Result<PathBuf> {
        let printed = match self {
            Build::Current => {
                let shared = std::env::var_os(SHARED_INSTANCE)
                    .with_context(|| format!("{SHARED_INSTANCE} is not set: which build is tested?"))?;
                std::fs::read_to_string(Path::new(&shared).join("bin"))?
            }
            Build::Previous => {
                let script = command::script("previous-build");
                command::run(&script, [""; 0]).await?.success(&script)?
            }
        };
        Ok(printed.trim().into())
    }

    /// Replaces each program by a rename: a process that runs the old file keeps it.
    async fn install(self, directory: &Path) -> Result<()> {
        let from = self.directory().await?;
        for program in PROGRAMS {
            let new = directory.join(format!(".{program}.new"));
            std::fs::copy(from.join(program), &new).with_context(|| format!("no {program} of {self:?}"))?;
            std::fs::rename(new, directory.join(program))?;
        }
        Ok(())
    }
}

impl Containerd {
    /// Starts an instance of the test's own with this build. [`install_build`](Self::install_build) replaces the build.
    ///
    /// # Errors
    /// If there is no such build, or `hack/containerd-up` fails.
    pub async fn start_build(build: Build) -> Result<Self> {
        let directory = own_directory();
        // Inside the instance's directory, so both are removed together.
        let programs = directory.join(DIRECTORY);
        std::fs::create_dir_all(&programs)?;
        build.install(&programs).await?;
        let mut arguments = own_arguments(&directory);
        arguments.extend(["--bin".into(), programs.into()]);
        Self::start_with(arguments).await
    }

    /// Replaces the programs of an instance of [`start_build`](Self::start_build). Running processes keep the old ones.
    ///
    /// # Errors
    /// If there is no such build, or the instance has no programs of its own.
    pub async fn install_build(&self, build: Build) -> Result<()> {
        build.install(&self.directory().join(DIRECTORY)).await
    }
}
