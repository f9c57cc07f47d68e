//! Checkpoint and restore (CONTRACT §8), with the machine's criu. criu does not run on every kernel. Where it does not,
//! the user gets the OCI runtime's error unchanged. On every kernel the tests take the whole way with an OCI runtime
//! whose checkpoint is a file, and which calls runc for everything else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use e2e::durations::SOON;
use e2e::{Containerd, Footprint, Runtime, wait};

const IMAGE: &str = "podshim.test/busybox:1";

on_both_runtimes!(
    a_container_is_restored_from_its_checkpoint,
    a_program_goes_on_from_its_checkpoint,
    the_runtimes_own_error_reaches_the_user,
);

/// A program that was started again, and not restored, would write another word.
const SAYS_ITS_WORD: &str =
    "word=$(cat /proc/sys/kernel/random/uuid); while :; do echo $word >/word; sleep 0.1; done";

/// Ends half a second late: a `ctr` that learns of the end before it has read the output drops that output.
const LINGERING: &str = "echo in it; sleep 0.5";

/// An OCI runtime whose checkpoint is the file `state`, and whose restore is a create and a start.
const RUNTIME: &str = r#"#!/bin/sh
globals=
while :; do
    case $1 in
    --root | --log | --log-format) globals="$globals $1 $2"; shift 2 ;;
    --systemd-cgroup) globals="$globals $1"; shift ;;
    *) break ;;
    esac
done
log=${globals#*--log }
log=${log%% *}
command=$1
shift
case $command in
checkpoint | restore) ;;
*) exec runc $globals "$command" "$@" ;;
esac
leave=no create=
while [ $# -gt 1 ]; do
    case $1 in
    --image-path) image=$2; shift 2 ;;
    --work-path) mkdir -p "$2"; shift 2 ;;
    --bundle | --pid-file | --console-socket) create="$create $1 $2"; shift 2 ;;
    --leave-running) leave=yes; shift ;;
    *) shift ;;
    esac
done
if [ "$command" = checkpoint ]; then
    mkdir -p "$image"
    echo "state of $1" >"$image/state"
    [ $leave = yes ] || runc $globals kill "$1" KILL
elif ! [ -e "$image/state" ]; then
    echo '{"level":"error","msg":"there is no state to restore"}' >>"$log"
    exit 1
else
    runc $globals create $create "$1" && exec runc $globals start "$1"
fi
"#;

/// The names that one test uses.
struct Case<'node> {
    node: &'node Containerd,
    runtime: Runtime,
    id: String,
    directory: PathBuf,
}

impl<'node> Case<'node> {
    fn new(node: &'node Containerd, runtime: Runtime, name: &str) -> Result<Self> {
        let id = format!("cr-{name}-{}-{}", runtime.handler(), std::process::id());
        let directory = node.directory().join("pods").join(&id);
        fs::create_dir_all(&directory)?;
        let program = directory.join("runtime");
        fs::write(&program, RUNTIME)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        let options = format!("BinaryName = {:?}\n", program.display().to_string());
        fs::write(directory.join("options.toml"), options)?;
        Ok(Self { node, runtime, id, directory })
    }

    /// `ctr run -d` with that runtime.
    async fn run(&self) -> Result<()> {
        let (flag, file) = match self.runtime {
            Runtime::Runc => ("--runc-binary", "runtime"),
            Runtime::Podshim => ("--runtime-config-path", "options.toml"),
        };
        let file = self.directory.join(file).display().to_string();
        let words = ["run", "-d", "--null-io", "--runtime", self.runtime.runtime_type(), flag, &file];
        self.node
            .ctr()
            .run(&words.into_iter().chain([IMAGE, &self.id, "sleep", "60"]).collect::<Vec<_>>())
            .await?;
        Ok(())
    }

    /// Checkpoints the container and returns the name of the image with the checkpoint.
    async fn checkpoint(&self) -> Result<String> {
        let image = format!("podshim.test/{}:1", self.id);
        self.node.ctr().run(&["c", "checkpoint", "--image", "--rw", "--task", &self.id, &image]).await?;
        Ok(image)
    }

    async fn restore(&self, id: &str, image: &str) -> Result<e2e::ctr::Output> {
        self.node.ctr().output(&["c", "restore", "--rw", "--live", id, image]).await
    }

    async fn status(&self, id: &str) -> Result<String> {
        let list = self.node.ctr().run(&["task", "ls"]).await?;
        let line = list.lines().find(|line| line.split_whitespace().next() == Some(id));
        Ok(line.and_then(|line| line.split_whitespace().last()).unwrap_or("none").to_owned())
    }

    async fn remove(self, ids: &[&str], image: Option<&str>) -> Result<()> {
        for id in ids {
            self.node.ctr().output(&["task", "rm", "-f", id]).await?;
            self.node.ctr().output(&["container", "rm", id]).await?;
        }
        if let Some(image) = image {
            self.node.ctr().run(&["image", "rm", image]).await?;
        }
        Footprint::of_containers(ids).wait_gone(self.node, SOON).await?;
        Ok(fs::remove_dir_all(&self.directory)?)
    }
}

async fn a_container_is_restored_from_its_checkpoint(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let case = Case::new(&node, runtime, "whole")?;
    let (first, second) = (case.id.clone(), format!("{}-2", case.id));
    case.run().await?;
    let image = case.checkpoint().await?;
    ensure!(case.status(&first).await? == "RUNNING", "{}", case.status(&first).await?);
    // The second container has the first one's spec, and so its cgroup. runc 1.2 and later refuse a cgroup that is in
    // use.
    node.ctr().run(&["task", "rm", "-f", &first]).await?;
    let output = case.restore(&second, &image).await?;
    ensure!(output.exit_code == Some(0) && case.status(&second).await? == "RUNNING", "{output:?}");
    let output =
        node.ctr().run(&["task", "exec", "--exec-id", "look", &second, "sh", "-c", LINGERING]).await?;
    ensure!(output.trim() == "in it", "{output}");
    node.ctr().run(&["task", "kill", "-s", "KILL", &second]).await?;
    wait::until("its end", SOON, async || Ok((case.status(&second).await? == "STOPPED").then_some(())))
        .await?;
    let deleted = node.ctr().output(&["task", "rm", &second]).await?;
    ensure!(deleted.stderr.contains("137"), "{deleted:?}");
    case.remove(&[&first, &second], Some(&image)).await
}

/// Not on containerd's own shim: there `ctr task rm -f` waits for ever after a failed restore.
#[tokio::test]
async fn a_checkpoint_without_its_file_cannot_be_restored_and_leaves_nothing() -> Result<()> {
    let node = Containerd::connect().await?;
    let case = Case::new(&node, Runtime::Podshim, "empty")?;
    let (first, second) = (case.id.clone(), format!("{}-2", case.id));
    case.run().await?;
    let image = case.checkpoint().await?;
    let program = case.directory.join("runtime");
    let forgetful = RUNTIME.replace("! [ -e \"$image/state\" ]", "true");
    ensure!(forgetful != RUNTIME, "the runtime is the same");
    fs::write(&program, forgetful)?;
    let output = case.restore(&second, &image).await?;
    let is_reported = output.stderr.contains("OCI runtime restore failed: there is no state to restore");
    ensure!(output.exit_code != Some(0) && is_reported, "{output:?}");
    case.remove(&[&first, &second], Some(&image)).await
}

/// Whether the criu that containerd's OCI runtime finds works on this kernel.
async fn criu_works(node: &Containerd) -> Result<bool> {
    Ok(node.ctr().output(&["--run", "criu", "check"]).await?.exit_code == Some(0))
}

/// `ctr run -d` with the node's own OCI runtime.
async fn run_program(case: &Case<'_>, program: &str) -> Result<()> {
    let words = ["run", "-d", "--null-io", "--runtime", case.runtime.runtime_type(), IMAGE, &case.id];
    case.node.ctr().run(&words.into_iter().chain(["sh", "-c", program]).collect::<Vec<_>>()).await?;
    Ok(())
}

/// The word in a program's file, as soon as there is one.
async fn word(node: &Containerd, id: &str) -> Result<String> {
    wait::until("its word", SOON, async || {
        let printed = node.ctr().output(&["task", "exec", "--exec-id", "look", id, "cat", "/word"]).await?;
        let printed = printed.stdout.trim().to_owned();
        Ok((!printed.is_empty()).then_some(printed))
    })
    .await
}

/// With criu itself: the restored program has its memory back. Where criu does not work, the error names criu.
async fn a_program_goes_on_from_its_checkpoint(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let case = Case::new(&node, runtime, "memory")?;
    let (first, second) = (case.id.clone(), format!("{}-2", case.id));
    run_program(&case, SAYS_ITS_WORD).await?;
    let before = word(&node, &first).await?;
    let image = match (case.checkpoint().await, criu_works(&node).await?) {
        (Ok(image), true) => image,
        (Err(error), false) => {
            ensure!(error.to_string().contains("criu"), "{error:#}");
            return case.remove(&[&first], None).await;
        }
        (answer, works) => bail!("criu check is {works}, and the checkpoint {answer:?}"),
    };
    ensure!(case.status(&first).await? == "RUNNING", "{}", case.status(&first).await?);
    node.ctr().run(&["task", "rm", "-f", &first]).await?;
    let output = case.restore(&second, &image).await?;
    ensure!(output.exit_code == Some(0) && case.status(&second).await? == "RUNNING", "{output:?}");
    // The file came with the image.
    node.ctr().run(&["task", "exec", "--exec-id", "clear", &second, "rm", "/word"]).await?;
    let after = word(&node, &second).await?;
    ensure!(after == before, "{before} became {after}");
    case.remove(&[&first, &second], Some(&image)).await
}

/// Whether criu works here or not, the container still runs after a checkpoint.
async fn the_runtimes_own_error_reaches_the_user(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let case = Case::new(&node, runtime, "criu")?;
    let id = case.id.clone();
    run_program(&case, "exec sleep 60").await?;
    let output = node.ctr().output(&["task", "checkpoint", &id]).await?;
    let image = (output.exit_code == Some(0)).then(|| output.stdout.trim().to_owned());
    ensure!(image.is_some() == criu_works(&node).await?, "{output:?}");
    ensure!(image.is_some() || output.stderr.contains("criu"), "{output:?}");
    ensure!(case.status(&id).await? == "RUNNING", "{}", case.status(&id).await?);
    // The first checkpoint does not make podshim refuse a second one.
    let again = node.ctr().output(&["task", "checkpoint", &id]).await?;
    // Now and then containerd 1.7 gives two checkpoints of one container the same content, and refuses the second
    // itself.
    let same = again.exit_code == output.exit_code || again.stderr.contains("already exists");
    ensure!(same, "{output:?}, then {again:?}");
    if again.exit_code == Some(0) {
        node.ctr().run(&["image", "rm", again.stdout.trim()]).await.context("the second image")?;
    }
    case.remove(&[&id], image.as_deref()).await
}
