//! The orders of `programs/exec.rs` as bytes, and its notes. Owns the two forms on the shim's side; the numbers are the program's file's.

use std::ffi::CStr;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;

use cgroups::Entrance;
use nix::unistd::Pid;

use super::request::ExecRequest;

#[path = "../../programs/exec/form.rs"]
mod form;

use form::{FAILED, MADE, MOVED, NOTE, NUMBERS, Number, STEPS, Step, TEXTS, Text};

/// The descriptors that the program gets, by their numbers.
pub(super) struct Files {
    pub(super) notes: RawFd,
    pub(super) init: RawFd,
    /// One for each group of the entrance.
    pub(super) groups: Vec<RawFd>,
}

/// What the program has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    /// Another process goes on.
    Moved(Pid),
    /// This one executes the container's program.
    Made(Pid),
    /// It could not do that: the kernel's number.
    Failed(&'static str, i32),
}

pub(super) fn encode(request: &ExecRequest<'_>, entrance: &Entrance, files: &Files) -> Vec<u8> {
    let execs = request.execs;
    let mut numbers = [0_u64; NUMBERS];
    let mut set = |number: Number, value: u64| numbers[number as usize] = value;
    // None is 0.
    let group = |place: usize| files.groups.get(place).map_or(0, |group| *group as u64 + 1);
    set(Number::Notes, files.notes as u64);
    set(Number::Init, files.init as u64);
    set(Number::Group, group(0));
    set(Number::GroupOfInit, group(1));
    set(Number::Namespaces, execs.namespaces as u64);
    set(Number::Uid, execs.uid.into());
    set(Number::Gid, execs.gid.into());
    set(Number::NoNewPrivileges, execs.no_new_privileges.into());
    set(Number::Bounding, execs.capabilities.bounding);
    set(Number::Effective, execs.capabilities.effective);
    set(Number::Inheritable, execs.capabilities.inheritable);
    set(Number::Permitted, execs.capabilities.permitted);
    set(Number::Ambient, execs.capabilities.ambient);
    set(Number::Groups, execs.groups.len() as u64);
    set(Number::Limits, execs.limits.len() as u64);
    set(Number::Files, entrance.files.len() as u64);
    set(Number::Arguments, request.arguments.len() as u64);
    set(Number::Variables, execs.variables.len() as u64);
    let groups = execs.groups.iter().map(|group| u64::from(*group));
    let limits = execs.limits.iter().flat_map(|(number, soft, hard)| [u64::from(*number), *soft, *hard]);
    let mut orders: Vec<u8> =
        numbers.into_iter().chain(groups).chain(limits).flat_map(u64::to_ne_bytes).collect();
    let mut texts: [&CStr; TEXTS] = [c""; TEXTS];
    texts[Text::OomScore as usize] = &execs.oom_score;
    texts[Text::AppArmor as usize] = &execs.profile;
    texts[Text::Keyring as usize] = &execs.keyring;
    texts[Text::Directory as usize] = &execs.directory;
    let mut add = |text: &[u8]| {
        orders.extend_from_slice(text);
        orders.push(0);
    };
    texts.iter().for_each(|text| add(text.to_bytes()));
    entrance.files.iter().for_each(|file| add(file.as_os_str().as_bytes()));
    request.arguments.iter().chain(&execs.variables).for_each(|text| add(text.to_bytes()));
    orders
}

/// The whole notes among what was read.
pub(super) fn notes(bytes: &[u8]) -> impl Iterator<Item = Note> {
    bytes.chunks_exact(NOTE).filter_map(|note| {
        let (kind, number) = note.split_at(NOTE / 2);
        let (kind, number) = (kind.try_into().ok()?, number.try_into().ok()?);
        let (kind, number) = (u32::from_ne_bytes(kind), i32::from_ne_bytes(number));
        Some(match kind {
            MOVED => Note::Moved(Pid::from_raw(number)),
            MADE => Note::Made(Pid::from_raw(number)),
            failed => {
                let step = STEPS.into_iter().find(|step| *step as u32 | FAILED == failed);
                Note::Failed(step.map_or("do what was asked", words), number)
            }
        })
    })
}

fn words(step: Step) -> &'static str {
    match step {
        Step::ReadOrders => "read its orders",
        Step::EnterGroup => "enter the container's control groups",
        Step::SetOomScore => "set its oom score",
        Step::SetLabel => "set its security label",
        Step::SetLimit => "set its resource limits",
        Step::Join => "join the container's namespaces",
        Step::BecomeRoot => "become root of the container's user namespace",
        Step::MakeKeyring => "join the container's session keyring",
        Step::DropCapabilities => "drop capabilities",
        Step::ChangeDirectory => "change to its working directory",
        Step::BecomeUser => "become its user",
        Step::SetCapabilities => "set its capabilities",
        Step::Fork => "make a process in the container",
        Step::Execute => "execute",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_which_step_failed_and_a_part_of_one_says_nothing() {
        let note = |kind: u32, number: i32| [kind.to_ne_bytes(), number.to_ne_bytes()].concat();
        let text = [
            note(MOVED, 7),
            note(MADE, 8),
            note(FAILED | Step::Execute as u32, libc::ENOENT),
            note(FAILED | 0xff, 1),
            vec![1, 2, 3],
        ]
        .concat();
        assert_eq!(
            notes(&text).collect::<Vec<_>>(),
            [
                Note::Moved(Pid::from_raw(7)),
                Note::Made(Pid::from_raw(8)),
                Note::Failed("execute", libc::ENOENT),
                Note::Failed("do what was asked", 1),
            ]
        );
        let numbers: Vec<_> = STEPS.iter().map(|step| *step as usize).collect();
        assert_eq!(numbers, (0..STEPS.len()).collect::<Vec<_>>());
    }
}
