//! How much a node keeps of removed pods: the bounds of its file, and that one tenant's pods do not push out another's
//! records (issue 19). Each test uses a containerd of its own, whose `/etc` and history no other test uses.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::Event::Started;
use e2e::durations::{SOON, seconds};
use e2e::{Containerd, Pod, Program, Runtime, wait};

/// A day, and as long as no clean-up runs after another.
const DAY: Duration = seconds(24 * 3600);
const PAUSE: Duration = seconds(61);

/// The files of one namespace, oldest first.
fn records(root: &Path, namespace: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(root.join(namespace)).into_iter().flatten().flatten();
    let mut files: Vec<_> = files.map(|file| file.path()).filter(|path| path.extension().is_some()).collect();
    files.sort();
    files
}

fn size(files: &[PathBuf]) -> Result<u64> {
    files.iter().map(|file| Ok(fs::metadata(file)?.len())).sum()
}

/// Sets a file's time back.
fn age(path: &Path, by: Duration) -> Result<()> {
    let file = fs::File::options().write(true).open(path)?;
    let at = file.metadata()?.modified()?;
    Ok(file.set_modified(at - by)?)
}

/// A pod's whole life; its end writes a record and cleans up.
async fn live(node: &Containerd, root: &Path) -> Result<()> {
    if root.join(".lock").exists() {
        age(&root.join(".lock"), PAUSE)?;
    }
    let mut pod = Pod::new("past-bounds")
        .annotate("plan", "app=main")
        .container(Program::new("app"))
        .run(node, Runtime::Podshim)
        .await?;
    pod.start("app").await?;
    pod.wait_for("app", Started, 1, SOON).await?;
    pod.stop_all_at_once(SOON).await?;
    // Waits for the record, which is written before the clean-up.
    pod.remove().await
}

/// Copies a record into another namespace, as if that tenant's pods had ended in that order.
fn copy(record: &Path, root: &Path, namespace: &str, count: usize) -> Result<()> {
    fs::create_dir_all(root.join(namespace))?;
    for number in 0..count {
        fs::copy(record, root.join(namespace).join(format!("{number:013}-copy-{number}.past")))?;
    }
    Ok(())
}

async fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    wait::until(what, SOON, async || Ok(is_so()?.then_some(()))).await
}

#[tokio::test]
async fn one_tenants_pods_do_not_push_out_anothers_records() -> Result<()> {
    let node = Containerd::start().await?;
    node.write_node_file("history-namespace-size = \"16Ki\"").await?;
    let root = node.root()?.join("var/lib/podshim/history");
    live(&node, &root).await?;
    let own = records(&root, "e2e").pop().context("no record")?;
    let one = usize::try_from(size(std::slice::from_ref(&own))?)?;

    // Three times as much as the namespace may have, and one record of another tenant, older than all of these.
    copy(&own, &root, "quiet", 1)?;
    age(&records(&root, "quiet")[0], 2 * DAY)?;
    let many = 3 * 16 * 1024 / one;
    copy(&own, &root, "noisy", many)?;
    let newest = records(&root, "noisy").pop();
    live(&node, &root).await?;
    until("noisy to keep to its share", || Ok(size(&records(&root, "noisy"))? <= 16 << 10)).await?;
    let kept = records(&root, "noisy");
    ensure!(
        kept.len() >= (16 << 10) / one - 1 && kept.last() == newest.as_ref(),
        "the newest stay: {kept:?}"
    );
    ensure!(records(&root, "quiet").len() == 1 && records(&root, "e2e").len() == 2);

    // The whole is bounded: the largest namespace gives way. Its share is then larger than the whole.
    node.write_node_file("history-namespace-size = \"1Mi\"\nhistory-size = \"24Ki\"").await?;
    copy(&own, &root, "noisy", many)?;
    live(&node, &root).await?;
    let all = || ["noisy", "quiet", "e2e"].map(|namespace| records(&root, namespace)).concat();
    until("all to keep to the bound", || Ok(size(&all())? <= 24 << 10)).await?;
    ensure!(size(&all())? > (24 << 10) - 3 * one as u64, "not more than that goes: {:?}", all());
    ensure!(records(&root, "quiet").len() == 1 && records(&root, "e2e").len() == 3);

    // What is too old goes, of each namespace; and without a record, its directory.
    node.write_node_file("history-age = \"24h\"").await?;
    let before = records(&root, "noisy").len();
    live(&node, &root).await?;
    until("the old record to go", || Ok(!root.join("quiet").exists())).await?;
    ensure!(records(&root, "noisy").len() == before && records(&root, "e2e").len() == 4);
    Ok(())
}

#[tokio::test]
async fn a_node_that_keeps_nothing_writes_nothing() -> Result<()> {
    let node = Containerd::start().await?;
    node.write_node_file("history-size = \"0Mi\"").await?;
    let root = node.root()?.join("var/lib/podshim/history");
    live(&node, &root).await?;
    ensure!(records(&root, "e2e").is_empty(), "{:?}", records(&root, "e2e"));
    node.write_node_file("history-size = \"1Mi\"").await?;
    live(&node, &root).await?;
    until("a record", || Ok(records(&root, "e2e").len() == 1)).await
}
