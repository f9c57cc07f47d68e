//! Where the node's containerd takes podshim's runtime from: its own configuration file, or what a distribution keeps for
//! changes to a file that it writes itself.
//!
//! Owns what is known of k3s, rke2, k0s and microk8s: their files, their containerd's socket, their units. Finds them by
//! the files that they write, and reads from these which kind of change they take. Writes nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::containerd::{self, FileVersion};
use super::files::{self, FileError};
use super::root::Root;

/// The default of containerd's configuration file.
pub const CONFIG: &str = "/etc/containerd/config.toml";
const K3S: &str = "/var/lib/rancher/k3s/agent/etc/containerd";
const RKE2: &str = "/var/lib/rancher/rke2/agent/etc/containerd";
/// Below the directory for data, which k3s and rke2 can have elsewhere.
const OF_K3S: &str = "k3s/agent/etc/containerd";
const OF_RKE2: &str = "rke2/agent/etc/containerd";
const K0S: &str = "/etc/k0s/containerd.toml";
/// The line by which k0s knows a file that it may write.
const K0S_MANAGED: &str = "# k0s_managed=true";
const MICROK8S: &str = "/var/snap/microk8s/current/args/containerd-template.toml";
/// The file that microk8s makes of that at each start.
const MADE_BY_MICROK8S: &str = "containerd.toml";
/// The directory in which every release of a snap has one of its own, and one for the present.
const SNAP: &str = "/var/snap/microk8s";
/// The directories whose files are imported, beside the file that imports them.
const DROP_INS_OF_K3S: &str = "config-v3.toml.d";
const DROP_INS_OF_K0S: &str = "containerd.d";
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
    /// The file by which it is found.
    mark: PathBuf,
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
    /// A distribution says in a file of its own which changes it takes, and has not written it yet.
    #[error("{}: there is none: start {} once, which writes it", .file.display(), .distribution.name())]
    NotStarted {
        /// Which one.
        distribution: Distribution,
        /// Its file.
        file: PathBuf,
    },
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Found {
    /// The file that its containerd reads.
    pub fn configuration(&self) -> PathBuf {
        match self.distribution {
            Distribution::Microk8s => self.mark.with_file_name(MADE_BY_MICROK8S),
            _ => self.mark.clone(),
        }
    }

    fn of_text(distribution: Distribution, mark: PathBuf, text: &str) -> Self {
        let place = distribution.place(&mark, text);
        Self { distribution, mark, place }
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

    /// The file by which it would be found, if this directory has its files.
    fn mark_in(self, directory: &Path) -> Option<PathBuf> {
        let mark = self.mark();
        let has_its_files = match self {
            Self::Containerd => false,
            Self::K3s => directory.ends_with(OF_K3S),
            Self::Rke2 => directory.ends_with(OF_RKE2),
            Self::K0s => Some(directory) == mark.parent(),
            Self::Microk8s => directory.starts_with(SNAP) && directory.ends_with("args"),
        };
        has_its_files.then(|| directory.join(mark.file_name().unwrap_or_default()))
    }

    /// The name of its directory for drop-ins.
    fn drop_ins(self) -> Option<&'static str> {
        match self {
            Self::K3s | Self::Rke2 => Some(DROP_INS_OF_K3S),
            Self::K0s => Some(DROP_INS_OF_K0S),
            Self::Containerd | Self::Microk8s => None,
        }
    }

    /// podshim's file among its drop-ins.
    fn drop_in(self, mark: &Path, version: FileVersion) -> Option<Place> {
        let file = mark.with_file_name(self.drop_ins()?).join(OWN_FILE);
        Some(Place::DropIn { file, version })
    }

    /// The templates that it looks for.
    fn templates(self, mark: &Path) -> Vec<Place> {
        let versions: &[_] = match self {
            Self::K3s | Self::Rke2 => &[FileVersion::Two, FileVersion::Three],
            Self::Containerd | Self::K0s | Self::Microk8s => &[],
        };
        versions.iter().map(|version| template(mark, *version)).collect()
    }

    /// The place for the runtime; `text` is the file by which the distribution was found.
    fn place(self, mark: &Path, text: &str) -> Place {
        let version = containerd::version(text).ok().flatten().unwrap_or(FileVersion::Two);
        let takes_drop_ins = match self {
            Self::Containerd | Self::Microk8s => false,
            // In version 2 an import replaces the whole section.
            Self::K3s | Self::Rke2 => {
                let directory = mark.with_file_name(DROP_INS_OF_K3S);
                let imports = containerd::imports(text);
                let is_imported = imports.iter().any(|import| Path::new(import).parent() == Some(&directory));
                version == FileVersion::Three && is_imported
            }
            Self::K0s => text.lines().any(|line| line.trim() == K0S_MANAGED),
        };
        match (self.drop_in(mark, version).filter(|_| takes_drop_ins), self) {
            (Some(place), _) => place,
            (None, Self::K3s | Self::Rke2) => template(mark, version),
            (None, _) => Place::Config(mark.to_owned()),
        }
    }
}

/// The template beside a configuration that k3s and rke2 look for.
fn template(mark: &Path, version: FileVersion) -> Place {
    let name = match version {
        FileVersion::Two => "config.toml.tmpl",
        FileVersion::Three => "config-v3.toml.tmpl",
    };
    Place::Template { file: mark.with_file_name(name), version }
}

/// All places that may have podshim's runtime: a distribution takes another one after an upgrade.
pub(super) fn all(found: &Found) -> Vec<Place> {
    let (distribution, mark) = (found.distribution, &found.mark);
    let mut places = vec![found.place.clone()];
    places.extend(distribution.drop_in(mark, FileVersion::Three));
    places.extend(distribution.templates(mark));
    if distribution == Distribution::K0s {
        places.push(Place::Config(mark.clone()));
    }
    // The first one may be there twice, with the version that counts.
    let mut files = BTreeSet::new();
    places.retain(|place| files.insert(place.file().to_owned()));
    places
}

/// The containerd of a configuration file that was named. A path of a distribution names that distribution: its own place for
/// changes, or the template that the path is.
///
/// # Errors
/// The distribution has not said yet which changes it takes, or its file cannot be read.
pub fn of_config(root: &Root, config: PathBuf) -> Result<Found, PlaceError> {
    let directory = config.parent().unwrap_or(Path::new("/"));
    let of_distribution = Distribution::SPECIAL.into_iter().find_map(|distribution| {
        let is_drop_in = distribution.drop_ins().is_some_and(|name| directory.ends_with(name));
        let directory = if is_drop_in { directory.parent()? } else { directory };
        Some((distribution, distribution.mark_in(directory)?))
    });
    let Some((distribution, mark)) = of_distribution else {
        return Ok(plain(config));
    };
    // A template that was named is taken even where drop-ins are, and before the distribution's first start.
    let mut templates = distribution.templates(&mark).into_iter();
    if let Some(place) = templates.find(|place| place.file() == config) {
        return Ok(Found { distribution, mark, place });
    }
    match files::read_text(root, &mark)? {
        Some(text) => Ok(Found::of_text(distribution, mark, &text)),
        None => Err(PlaceError::NotStarted { distribution, file: mark }),
    }
}

fn plain(config: PathBuf) -> Found {
    Found { distribution: Distribution::Containerd, mark: config.clone(), place: Place::Config(config) }
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
            found.push(Found::of_text(distribution, distribution.mark(), &text));
        }
    }
    match found.len() {
        0 => Ok(plain(CONFIG.into())),
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

    /// A file that was named is one of a distribution if it is where that has its files, also of another data directory or
    /// another release of the snap.
    #[test]
    fn a_named_file_says_which_distribution_it_is() {
        let v3 = FileVersion::Three;
        let k3s = "/srv/k3s/agent/etc/containerd";
        let at = |name: &str| Path::new(k3s).join(name);
        let importing = format!("version = 3\nimports = [\"{k3s}/config-v3.toml.d/*.toml\"]\n");
        let drop_in = Place::DropIn { file: at("config-v3.toml.d/podshim.toml"), version: v3 };
        let template = Place::Template { file: at("config-v3.toml.tmpl"), version: v3 };
        let k0s =
            Place::DropIn { file: "/etc/k0s/containerd.d/podshim.toml".into(), version: FileVersion::Two };
        let snap = "/var/snap/microk8s/4321/args/containerd-template.toml";
        let managed = format!("{K0S_MANAGED}\nversion = 2\n");
        let rke2 = format!("{RKE2}/config.toml");
        for (mark, text, named, distribution, place) in [
            (at("config.toml"), importing.as_str(), at("config.toml"), Distribution::K3s, drop_in.clone()),
            (at("config.toml"), &importing, at("config-v3.toml.d/podshim.toml"), Distribution::K3s, drop_in),
            (at("config.toml"), &importing, at("config-v3.toml.tmpl"), Distribution::K3s, template),
            (
                rke2.clone().into(),
                "version = 2\n",
                rke2.into(),
                Distribution::Rke2,
                Place::Template {
                    file: format!("{RKE2}/config.toml.tmpl").into(),
                    version: FileVersion::Two,
                },
            ),
            (K0S.into(), &managed, K0S.into(), Distribution::K0s, k0s),
            (K0S.into(), "version = 2\n", K0S.into(), Distribution::K0s, Place::Config(K0S.into())),
            (snap.into(), "version = 2\n", snap.into(), Distribution::Microk8s, Place::Config(snap.into())),
            (
                snap.into(),
                "version = 2\n",
                "/var/snap/microk8s/4321/args/containerd.toml".into(),
                Distribution::Microk8s,
                Place::Config(snap.into()),
            ),
        ] {
            let (_directory, root) = root(&[(&mark, text)]);
            let found = of_config(&root, named.clone()).unwrap();
            assert_eq!((found.distribution, found.place), (distribution, place), "{}", named.display());
        }
        let (_directory, root) = root(&[]);
        let other = PathBuf::from("/srv/containerd/config.toml");
        assert_eq!(of_config(&root, other.clone()).unwrap(), plain(other));
        let before_the_first_start = of_config(&root, at("config.toml.tmpl")).unwrap();
        assert_eq!(before_the_first_start.place.file(), at("config.toml.tmpl"));
        let error = of_config(&root, at("config.toml")).unwrap_err().to_string();
        assert!(error.contains("config.toml: there is none: start k3s once"), "{error}");
    }

    #[test]
    fn without_a_distribution_it_is_containerds_own_file() {
        let (_directory, root) = root(&[]);
        assert_eq!(find(&root).unwrap(), plain(CONFIG.into()));
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
