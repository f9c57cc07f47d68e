//! Where the node's containerd takes podshim's runtime from: its own configuration file, or what a distribution keeps for
//! changes to a file that it writes itself.
//!
//! Owns what is known of k3s, rke2, k0s and microk8s: their files, their containerd's socket, their units. Finds them by
//! the files that they write, and reads from these which kind of change they take. Writes nothing.

use std::path::{Path, PathBuf};

use super::containerd::{self, FileVersion};
use super::files::{self, FileError};
use super::root::Root;

/// The default of containerd's configuration file.
pub const CONFIG: &str = "/etc/containerd/config.toml";
const K3S: &str = "/var/lib/rancher/k3s/agent/etc/containerd";
const RKE2: &str = "/var/lib/rancher/rke2/agent/etc/containerd";
const K0S: &str = "/etc/k0s/containerd.toml";
/// The line by which k0s knows a file that it may write.
const K0S_MANAGED: &str = "# k0s_managed=true";
const MICROK8S: &str = "/var/snap/microk8s/current/args/containerd-template.toml";
const OWN_FILE: &str = "podshim.toml";

/// Which containerd the node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// A containerd with a unit and a configuration of its own.
    Containerd,
    /// The one in k3s.
    K3s,
    /// The one in rke2.
    Rke2,
    /// The one that k0s runs.
    K0s,
    /// The one of the snap microk8s.
    Microk8s,
}

/// How the node's containerd takes another configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// By a restart of the first of these units that is active.
    Units(&'static [&'static str]),
    /// Its supervisor watches the file and restarts it at once.
    ByItself,
}

/// The file that gets the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A configuration file, to which the runtime is added.
    Config(PathBuf),
    /// A file of podshim's own in a directory whose files are all imported.
    DropIn {
        /// The file.
        file: PathBuf,
        /// The version of what imports it.
        version: FileVersion,
    },
    /// The template of a file that is written at each start. If there is none, one that only adds to the built-in one.
    Template {
        /// The file.
        file: PathBuf,
        /// The version of what is made of it.
        version: FileVersion,
    },
}

impl Place {
    /// The file.
    pub fn file(&self) -> &Path {
        match self {
            Self::Config(file) | Self::DropIn { file, .. } | Self::Template { file, .. } => file,
        }
    }
}

/// A distribution and the place for podshim's runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which one.
    pub distribution: Distribution,
    /// Where the runtime goes now.
    pub place: Place,
}

/// Why no place was found.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// More than one could be the node's.
    #[error("this node has the files of {}: say with --config which file to change, or remove those that are left over", .found.join(" and "))]
    Several {
        /// Their names.
        found: Vec<&'static str>,
    },
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Found {
    /// The file that its containerd reads.
    pub fn configuration(&self) -> PathBuf {
        match &self.place {
            Place::Config(config) if self.distribution == Distribution::Containerd => config.clone(),
            _ => self.distribution.configuration(),
        }
    }
}

impl Distribution {
    const SPECIAL: [Self; 4] = [Self::K3s, Self::Rke2, Self::K0s, Self::Microk8s];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::K3s => "k3s",
            Self::Rke2 => "rke2",
            Self::K0s => "k0s",
            Self::Microk8s => "microk8s",
        }
    }

    /// The socket of its containerd.
    pub fn socket(self) -> &'static Path {
        Path::new(match self {
            Self::Containerd => "/run/containerd/containerd.sock",
            Self::K3s | Self::Rke2 => "/run/k3s/containerd/containerd.sock",
            Self::K0s => "/run/k0s/containerd.sock",
            Self::Microk8s => "/var/snap/microk8s/common/run/containerd.sock",
        })
    }

    /// How its containerd takes another configuration.
    pub fn restart(self) -> Restart {
        match self {
            Self::Containerd => Restart::Units(&["containerd.service"]),
            Self::K3s => Restart::Units(&["k3s.service", "k3s-agent.service"]),
            Self::Rke2 => Restart::Units(&["rke2-server.service", "rke2-agent.service"]),
            Self::K0s => Restart::ByItself,
            Self::Microk8s => Restart::Units(&["snap.microk8s.daemon-containerd.service"]),
        }
    }

    /// The file that its containerd reads.
    pub fn configuration(self) -> PathBuf {
        match self {
            Self::Microk8s => self.mark().with_file_name("containerd.toml"),
            Self::Containerd | Self::K3s | Self::Rke2 | Self::K0s => self.mark(),
        }
    }

    /// The file by which it is found.
    fn mark(self) -> PathBuf {
        match self {
            Self::Containerd => CONFIG.into(),
            Self::K3s => Path::new(K3S).join("config.toml"),
            Self::Rke2 => Path::new(RKE2).join("config.toml"),
            Self::K0s => K0S.into(),
            Self::Microk8s => MICROK8S.into(),
        }
    }

    /// The place for the runtime; `text` is the file by which the distribution was found.
    fn place(self, text: &str) -> Place {
        let version = containerd::version(text).ok().flatten().unwrap_or(FileVersion::Two);
        match self {
            Self::Containerd | Self::Microk8s => Place::Config(self.mark()),
            Self::K3s | Self::Rke2 => {
                let directory = self.mark().with_file_name("config-v3.toml.d");
                let imports = containerd::imports(text);
                let is_imported = imports.iter().any(|import| Path::new(import).parent() == Some(&directory));
                match version {
                    FileVersion::Three if is_imported => {
                        Place::DropIn { file: directory.join(OWN_FILE), version }
                    }
                    // An import replaces the whole section there.
                    FileVersion::Two => self.template("config.toml.tmpl", version),
                    FileVersion::Three => self.template("config-v3.toml.tmpl", version),
                }
            }
            Self::K0s if text.lines().any(|line| line.trim() == K0S_MANAGED) => {
                let directory = self.mark().with_file_name("containerd.d");
                Place::DropIn { file: directory.join(OWN_FILE), version }
            }
            Self::K0s => Place::Config(self.mark()),
        }
    }

    fn template(self, name: &str, version: FileVersion) -> Place {
        Place::Template { file: self.mark().with_file_name(name), version }
    }
}

/// All places that may have podshim's runtime: a distribution takes another one after an upgrade.
pub(super) fn all(found: &Found) -> Vec<Place> {
    let version = FileVersion::Three;
    match found.distribution {
        Distribution::K3s | Distribution::Rke2 => {
            let directory = found.distribution.mark().with_file_name("config-v3.toml.d");
            vec![
                Place::DropIn { file: directory.join(OWN_FILE), version },
                found.distribution.template("config.toml.tmpl", FileVersion::Two),
                found.distribution.template("config-v3.toml.tmpl", version),
            ]
        }
        Distribution::Containerd | Distribution::K0s | Distribution::Microk8s => vec![found.place.clone()],
    }
}

/// The containerd of a configuration file that was named.
pub fn of_config(config: PathBuf) -> Found {
    Found { distribution: Distribution::Containerd, place: Place::Config(config) }
}

/// Finds the node's containerd. A distribution goes before a containerd beside it, whose package may be there for other
/// programs.
///
/// # Errors
/// The node has files of more than one distribution, or they cannot be read.
pub fn find(root: &Root) -> Result<Found, PlaceError> {
    let mut found = Vec::new();
    for distribution in Distribution::SPECIAL {
        if let Some(text) = files::read_text(root, &distribution.mark())? {
            found.push(Found { distribution, place: distribution.place(&text) });
        }
    }
    match found.len() {
        0 => Ok(of_config(CONFIG.into())),
        1 => Ok(found.remove(0)),
        _ => {
            Err(PlaceError::Several { found: found.iter().map(|found| found.distribution.name()).collect() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A root with these files.
    fn root(files: &[(&Path, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path.strip_prefix("/").unwrap());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = Root::new(directory.path());
        (directory, root)
    }

    fn found(distribution: Distribution, text: &str) -> Place {
        let (_directory, root) = root(&[(&distribution.mark(), text), (Path::new(CONFIG), "version = 2\n")]);
        let found = find(&root).unwrap();
        assert_eq!(found.distribution, distribution);
        found.place
    }

    /// k3s and rke2 say by their imports whether they take drop-ins, k0s says so in a comment.
    #[test]
    fn each_distribution_says_which_change_it_takes() {
        for (distribution, directory) in [(Distribution::K3s, K3S), (Distribution::Rke2, RKE2)] {
            let file = |name: &str| Path::new(directory).join(name);
            let text = format!("version = 3\nimports = [\"{directory}/config-v3.toml.d/*.toml\"]\n");
            let place =
                Place::DropIn { file: file("config-v3.toml.d/podshim.toml"), version: FileVersion::Three };
            assert_eq!(found(distribution, &text), place);
            let place = Place::Template { file: file("config-v3.toml.tmpl"), version: FileVersion::Three };
            assert_eq!(found(distribution, "version = 3\nimports = [\"/etc/other/*.toml\"]\n"), place);
            let place = Place::Template { file: file("config.toml.tmpl"), version: FileVersion::Two };
            assert_eq!(found(distribution, "# File generated by k3s. DO NOT EDIT.\nversion = 2\n"), place);
        }
        let file = PathBuf::from("/etc/k0s/containerd.d/podshim.toml");
        for (number, version) in [(2, FileVersion::Two), (3, FileVersion::Three)] {
            let text = format!("\n{K0S_MANAGED}\nversion = {number}\n");
            assert_eq!(found(Distribution::K0s, &text), Place::DropIn { file: file.clone(), version });
        }
        assert_eq!(found(Distribution::K0s, "version = 2\n"), Place::Config(K0S.into()));
        assert_eq!(found(Distribution::Microk8s, "version = 2\n"), Place::Config(MICROK8S.into()));
    }

    #[test]
    fn without_a_distribution_it_is_containerds_own_file() {
        let (_directory, root) = root(&[]);
        assert_eq!(find(&root).unwrap(), of_config(CONFIG.into()));
    }

    #[test]
    fn two_distributions_are_not_guessed_between() {
        let (_directory, root) = root(&[
            (&Distribution::K3s.mark(), "version = 2\n"),
            (&Distribution::K0s.mark(), "version = 2\n"),
        ]);
        let error = find(&root).unwrap_err().to_string();
        assert!(error.contains("k3s and k0s: say with --config"), "{error}");
    }
}
