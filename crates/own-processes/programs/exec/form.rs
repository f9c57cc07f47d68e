//! The form of the program's orders, and of its notes. The shim writes the one and reads the other with the same numbers.
//!
//! Orders are a file in memory: numbers of eight bytes as the machine has them, then texts that end with a NUL byte. First come those
//! that are always there, each in its place, then lists whose lengths are among them.

/// Where each number is.
#[derive(Clone, Copy)]
#[repr(usize)]
pub enum Number {
    /// The descriptor for what it says.
    Notes,
    /// The pidfd of the container's init.
    Init,
    /// The container's group of cgroup v2 as a descriptor and 1, or 0.
    Group,
    /// That in which its init is.
    GroupOfInit,
    /// The `CLONE_NEW` flags of the namespaces that it joins.
    Namespaces,
    Uid,
    Gid,
    NoNewPrivileges,
    Bounding,
    Effective,
    Inheritable,
    Permitted,
    Ambient,
    /// The lengths of the lists: first of numbers (of a limit there are three), then of texts.
    Groups,
    Limits,
    Files,
    Arguments,
    Variables,
}

/// How many there are always.
pub const NUMBERS: usize = Number::Variables as usize + 1;

/// Where each text is.
#[derive(Clone, Copy)]
#[repr(usize)]
pub enum Text {
    /// The score for the kernel's choice of a victim, or nothing.
    OomScore,
    /// What is written for AppArmor, or nothing.
    AppArmor,
    /// The name of the session keyring, or nothing.
    Keyring,
    Directory,
}

/// How many there are always.
pub const TEXTS: usize = Text::Directory as usize + 1;

/// What it was doing when the kernel refused it. A note of a failure has this number and [`FAILED`], and the error's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    ReadOrders,
    EnterGroup,
    SetOomScore,
    SetLabel,
    SetLimit,
    Join,
    BecomeRoot,
    MakeKeyring,
    DropCapabilities,
    ChangeDirectory,
    BecomeUser,
    SetCapabilities,
    Fork,
    Execute,
}

pub const STEPS: [Step; 14] = [
    Step::ReadOrders,
    Step::EnterGroup,
    Step::SetOomScore,
    Step::SetLabel,
    Step::SetLimit,
    Step::Join,
    Step::BecomeRoot,
    Step::MakeKeyring,
    Step::DropCapabilities,
    Step::ChangeDirectory,
    Step::BecomeUser,
    Step::SetCapabilities,
    Step::Fork,
    Step::Execute,
];

/// A note is a kind and a number: of four bytes each.
pub const NOTE: usize = 8;
/// Another process goes on with it: its pid.
pub const MOVED: u32 = 0;
/// The process that executes the container's program: its pid.
pub const MADE: u32 = 1;
/// Beside a step.
pub const FAILED: u32 = 0x100;
