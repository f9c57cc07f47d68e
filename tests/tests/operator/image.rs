//! The image of `hack/image`: containerd takes it, and its program runs without anything else in its root.

use std::ffi::OsString;

use anyhow::{Context, Result, ensure};
use e2e::{Containerd, hack};

const IMAGE: &str = "podshim.test/podshim:image-test";

/// The architecture of this machine, as images name it.
fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

#[tokio::test]
async fn containerd_takes_the_installers_image() -> Result<()> {
    let node = Containerd::connect().await?;
    let archive = node.directory().join(format!("image-{}.tar", std::process::id()));
    let bin = std::fs::read_to_string(node.directory().join("bin"))?;
    let programs = format!("{}={}", architecture(), bin.trim());
    let words = ["--arch", &programs, "--name", IMAGE, "--output"].map(OsString::from);
    hack("image", words.into_iter().chain([archive.clone().into()])).await?;

    let archive_word = archive.to_str().context("no UTF-8")?;
    node.ctr().run(&["images", "import", archive_word]).await?;
    std::fs::remove_file(&archive)?;
    let id = format!("image-{}", std::process::id());
    let help = node.ctr().run(&["run", "--rm", IMAGE, &id, "/podshim", "install", "-h"]).await?;
    ensure!(help.contains("--host-root"), "{help}");
    node.ctr().run(&["images", "remove", "--sync", IMAGE]).await?;
    Ok(())
}
