//! Builds of podshim, and exchanging them under live pods as a package manager does. Owns the programs of an instance that
//! was started for that ([`Containerd::start_build`]); builds nothing itself.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::instance::{SHARED_INSTANCE, own_arguments, own_directory};
use crate::{Containerd, command};

/// What a package of podshim holds.
const PROGRAMS: [&str; 2] = ["containerd-shim-podshim-v2", "podshim"];
/// Where an instance has its own programs, below its directory.
const DIRECTORY: &str = "build";

/// A build of podshim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// The one that this run tests.
    Current,
    /// That of one release before (`hack/previous-build`).
    Previous,
}

impl Build {
    async fn directory(self) -> Result<PathBuf> {
        let said = match self {
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
        Ok(said.trim().into())
    }

    /// Each program takes the place of the one before by a rename: whoever runs that one keeps it.
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
    /// An instance of its own that has this build, and can get another one.
    ///
    /// # Errors
    /// If there is no such build, or `hack/containerd-up` fails.
    pub async fn start_build(build: Build) -> Result<Self> {
        let directory = own_directory();
        // In the instance's directory, with which it is removed.
        let programs = directory.join(DIRECTORY);
        std::fs::create_dir_all(&programs)?;
        build.install(&programs).await?;
        let mut arguments = own_arguments(&directory);
        arguments.extend(["--bin".into(), programs.into()]);
        Self::start_with(arguments).await
    }

    /// Exchanges the programs of an instance of [`start_build`](Self::start_build). What runs goes on as it is.
    ///
    /// # Errors
    /// If there is no such build, or the instance has no programs of its own.
    pub async fn install_build(&self, build: Build) -> Result<()> {
        build.install(&self.directory().join(DIRECTORY)).await
    }
}
