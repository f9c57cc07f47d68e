//! How fast a container's output passes through the shim, and what that costs the shim.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::direct::bundle::Bundle;
use e2e::direct::streams::Streams;
use nix::sys::stat::Mode;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::own_shim::{Addresses, OwnShim, Terminal};
use crate::contender::{Contender, SHIMS};
use crate::figures::{Figures, Unit};
use crate::process::Shim;
use crate::rounds::Bench;

/// How many bytes the reader reads at once: as much as a pipe holds.
const CHUNK: usize = 65536;

/// Longer than a gigabyte takes on any machine.
const LIMIT: Duration = Duration::from_secs(300);

pub async fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let megabytes = bench.choose(1000, 100);
    let rounds = bench.choose(5, 2);
    bench
        .alternate("stdio", rounds, &SHIMS, figures, async |contender, figures| {
            for way in [
                Way { name: "through a pipe", terminal: Terminal::No, piece: 1_000_000, megabytes },
                Way {
                    name: "through a terminal",
                    terminal: Terminal::Yes,
                    piece: 1_000_000,
                    megabytes: megabytes / 10,
                },
                // As the C library of a program makes them.
                Way {
                    name: "through a terminal, 1 kB at a time",
                    terminal: Terminal::Yes,
                    piece: 1_000,
                    megabytes: megabytes / 25,
                },
            ] {
                output(bench, contender, way, figures).await?;
            }
            Ok(())
        })
        .await
}

/// What a program writes, and where.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    terminal: Terminal,
    /// Bytes of one write.
    piece: usize,
    megabytes: usize,
}

async fn output(bench: &Bench, contender: Contender, way: Way, figures: &mut Figures) -> Result<()> {
    let Way { name, terminal, piece, megabytes } = way;
    let Some(runtime) = contender.handler() else { return Ok(()) };
    OwnShim::with(bench.node, runtime, async |shim| {
        let (size, count) = (format!("bs={piece}"), format!("count={}", megabytes * 1_000_000 / piece));
        let mut bundle = Bundle::program(&["dd", "if=/dev/zero", &size, &count]);
        if terminal == Terminal::Yes {
            bundle = bundle.streams(Streams::Terminal);
        }
        shim.start_action("app", &bundle).await?;
        let (stdout, output) = fifo(shim, "stdout")?;
        // containerd opens both for a container without a terminal, and reading one must not wait for the other.
        let (stderr, _errors) = fifo(shim, "stderr")?;
        let addresses = match terminal {
            Terminal::No => Addresses { stdout, stderr, ..Addresses::default() },
            Terminal::Yes => Addresses { stdout, ..Addresses::default() },
        };
        shim.create("app", &addresses, terminal).await?;
        let process = Shim::of(shim.namespace())?;
        let before = process.processor_time()?;
        shim.start("app", "").await?;
        let (bytes, time) =
            tokio::time::timeout(LIMIT, output).await.context("the output does not end")???;
        let used = process.processor_time()? - before;
        ensure!(bytes >= megabytes * 1_000_000, "{bytes} bytes of {megabytes} MB arrived");
        #[expect(clippy::cast_precision_loss, reason = "a billion bytes at most")]
        let megabytes = bytes as f64 / 1e6;
        figures.add(name, Unit::MegabytesPerSecond, contender, megabytes / time.as_secs_f64());
        let per_gigabyte = used.as_secs_f64() * 1000.0 / megabytes;
        figures.add(
            &format!("{name}: the shim's processor time per GB"),
            Unit::Seconds,
            contender,
            per_gigabyte,
        );
        shim.wait("app", "").await?;
        shim.delete("app", "").await?;
        Ok(())
    })
    .await
}

type Output = oneshot::Receiver<Result<(usize, Duration)>>;

/// A named pipe that is read to its end.
fn fifo(shim: &OwnShim, name: &str) -> Result<(String, Output)> {
    let path = shim.directory().join(name);
    nix::unistd::mkfifo(&path, Mode::from_bits_truncate(0o700))?;
    let address = path.to_string_lossy().into_owned();
    let (sender, output) = oneshot::channel();
    // In a thread that is never joined: opening a pipe waits for its other end, which after a failure never comes.
    std::thread::spawn(move || {
        // An error means that the receiver was dropped, as stderr's is.
        let _ = sender.send(read_all(&path));
    });
    Ok((address, output))
}

/// The count of bytes read, and how long that took from the first byte on.
fn read_all(fifo: &Path) -> Result<(usize, Duration)> {
    let mut file = File::open(fifo).with_context(|| format!("cannot open {}", fifo.display()))?;
    let mut buffer = vec![0; CHUNK];
    let mut bytes = file.read(&mut buffer)?;
    let begin = Instant::now();
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((bytes, begin.elapsed())),
            length => bytes += length,
        }
    }
}
