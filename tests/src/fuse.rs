//! A FUSE server as a tenant may run one, which can stop answering. Owns one mount of one program inside an instance's
//! mount namespace. When the mount ends, the kernel answers every process that waits for it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use anyhow::{Context, Result};

use crate::{Containerd, command};

/// The program's name in the mount; it is a busybox.
pub const PROGRAM: &str = "sleep";
/// A name whose lookup gets no answer once the server is silent.
pub const ENDLESS: &str = "endless";

/// Length of a request's header, in bytes.
const HEAD: usize = 40;
/// The longest request that the kernel sends here, as no process writes to the mount.
const LONGEST_REQUEST: usize = 64 * 1024;
const ROOT: u64 = 1;
const FILE: u64 = 2;

/// The requests that the server handles, by their numbers in linux/fuse.h.
mod opcode {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const BATCH_FORGET: u32 = 42;
}

/// A mounted file system with one program. The kernel may not cache its attributes and asks for them each time.
#[derive(Debug)]
pub struct Fuse {
    path: PathBuf,
    namespace: PathBuf,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    is_silent: AtomicBool,
    /// Number of requests that got no answer.
    unanswered: AtomicU32,
    program: Vec<u8>,
}

impl Fuse {
    /// Mounts the file system in the instance.
    ///
    /// # Errors
    /// If the machine has no FUSE, or no static busybox.
    pub async fn mount(node: &Containerd, name: &str) -> Result<Self> {
        let path = node.directory().join(format!("fuse-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").context("/dev/fuse")?;
        // The child process that mounts must inherit it. SAFETY: a descriptor of this process; nothing of the test
        // relies on the flag.
        unsafe { libc::fcntl(device.as_raw_fd(), libc::F_SETFD, 0) };
        let namespace = node.namespace("mnt")?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let mount = ["mount", "-i", "-t", "fuse", "-o", &options, "podshim.test"].map(Path::new);
        in_namespace(&namespace, mount.into_iter().chain([path.as_path()])).await?;
        let program = std::fs::read("/bin/busybox").context("/bin/busybox")?;
        let state =
            Arc::new(State { is_silent: AtomicBool::new(false), unanswered: AtomicU32::new(0), program });
        let serving = state.clone();
        std::thread::spawn(move || serving.serve(device));
        Ok(Self { path, namespace, state })
    }

    /// Path of the mount on the node, for a container's mount.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// From now on the server does not answer a request for the attributes of the open program: it can only be read and
    /// run. A lookup of [`ENDLESS`] gets no answer either.
    pub fn falls_silent(&self) {
        self.state.is_silent.store(true, Ordering::SeqCst);
    }

    /// Number of requests that got no answer so far.
    #[must_use]
    pub fn unanswered(&self) -> u32 {
        self.state.unanswered.load(Ordering::SeqCst)
    }

    /// Unmounts it. The kernel answers all pending requests with an error.
    ///
    /// # Errors
    /// If it cannot be unmounted.
    pub async fn end(self) -> Result<()> {
        // With force, so that the kernel ends every pending request.
        let unmount = ["umount", "-f", "-l"].map(Path::new);
        in_namespace(&self.namespace, unmount.into_iter().chain([self.path.as_path()])).await
    }
}

async fn in_namespace<'a>(namespace: &Path, words: impl Iterator<Item = &'a Path>) -> Result<()> {
    let mut file = std::ffi::OsString::from("--mount=");
    file.push(namespace);
    let words: Vec<_> = words.map(|word| word.as_os_str().to_owned()).collect();
    let arguments = [file].into_iter().chain(words);
    command::run(Path::new("nsenter"), arguments).await?.success("nsenter").map(drop)
}

impl State {
    fn serve(&self, mut device: File) {
        let (mut request, mut open) = (vec![0; LONGEST_REQUEST], 0);
        // After the unmount a read fails.
        while let Ok(length) = device.read(&mut request) {
            let request = &request[..length];
            let number = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().unwrap_or_default());
            let long = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap_or_default());
            let (code, unique, node) = (number(4), long(8), long(16));
            let name = request[HEAD..].split(|byte| *byte == 0).next().unwrap_or_default();
            if matches!(code, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT) {
                continue;
            }
            match code {
                opcode::OPEN => open += 1,
                opcode::RELEASE => open -= 1,
                _ => {}
            }
            // An execve asks for the attributes before it opens the program; that request is answered.
            let is_about_the_program = code == opcode::GETATTR && node == FILE && open > 0;
            let is_endless = code == opcode::LOOKUP && name == ENDLESS.as_bytes();
            if self.is_silent.load(Ordering::SeqCst) && (is_about_the_program || is_endless) {
                self.unanswered.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            let answer = match code {
                opcode::INIT => Ok(initialized()),
                opcode::LOOKUP if name == PROGRAM.as_bytes() => Ok(self.entry()),
                opcode::LOOKUP => Err(libc::ENOENT),
                opcode::GETATTR => {
                    Ok([0_u64.to_le_bytes().to_vec(), vec![0; 8], self.attributes(node)].concat())
                }
                opcode::OPEN | opcode::OPENDIR => Ok(vec![0; 16]),
                opcode::READ => {
                    let begin = usize::try_from(long(HEAD + 8)).unwrap_or_default().min(self.program.len());
                    let end = begin.saturating_add(number(HEAD + 16) as usize).min(self.program.len());
                    Ok(self.program[begin..end].to_vec())
                }
                opcode::STATFS => Ok(vec![0; 80]),
                opcode::RELEASE | opcode::RELEASEDIR | opcode::FLUSH => Ok(Vec::new()),
                _ => Err(libc::ENOSYS),
            };
            let (error, body) = match answer {
                Ok(body) => (0, body),
                Err(error) => (-error, Vec::new()),
            };
            let length = u32::try_from(16 + body.len()).unwrap_or_default();
            let head = [&length.to_le_bytes()[..], &error.to_le_bytes(), &unique.to_le_bytes()].concat();
            // The process that asked may have ended.
            let _ = device.write_all(&[head, body].concat());
        }
    }

    /// Valid for zero seconds, so that the kernel asks each time.
    fn entry(&self) -> Vec<u8> {
        let times = [FILE, 0, 0, 0, 0].map(u64::to_le_bytes).concat();
        [times, self.attributes(FILE)].concat()
    }

    fn attributes(&self, node: u64) -> Vec<u8> {
        let (mode, size) = match node {
            ROOT => (libc::S_IFDIR | 0o755, 0),
            _ => (libc::S_IFREG | 0o755, self.program.len() as u64),
        };
        let long = [node, size, size.div_ceil(512), 0, 0, 0].map(u64::to_le_bytes).concat();
        let short = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].map(u32::to_le_bytes).concat();
        [long, short].concat()
    }
}

/// The answer to INIT: version 7.31, without optional features.
fn initialized() -> Vec<u8> {
    let mut answer = [7_u32, 31, 0, 0].map(u32::to_le_bytes).concat();
    answer.extend([16_u16, 12].map(u16::to_le_bytes).concat());
    // The maximum length of a write limits the size of requests, though no process writes.
    answer.extend([4096_u32, 1].map(u32::to_le_bytes).concat());
    answer.resize(64, 0);
    answer
}
