//! Mounting a container's root file system, as the Create request describes it, and unmounting it.
//!
//! Owns the translation of containerd's mounts into `mount(2)`. Works on a thread of its own: a mount may block for
//! long, and long overlay options need another working directory.

pub mod detached;
mod idmap;
mod mapping;
mod options;
mod request;
mod rootfs;

pub use mapping::MappingError;
pub use options::OptionError;
pub use request::RootfsMount;
pub use rootfs::{MountError, mount_rootfs, unmount_rootfs};
