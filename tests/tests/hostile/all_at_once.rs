//! All attacks at once, beside a good pod whose stops must stay punctual.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::durations::near;
use e2e::fuse::{ENDLESS, Fuse};
use e2e::{Containerd, Pod, Program, Runtime, wait};

use crate::messages::{Flood, send_lingering};
use crate::probes::{filtered, maze};
use crate::support::{EndsWithTest, ensure_serving};
use crate::work::{large_pattern, probing, restarting, start};

/// How long a good sidecar takes to end after its main, in each round.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How much longer the good pod's stop may take under this load.
const TOLERANCE: Duration = Duration::from_secs(4);

/// Rounds of good pods: `hack/stress --hostile` runs more of them.
fn rounds() -> usize {
    std::env::var("PODSHIM_HOSTILE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3)
}

#[tokio::test]
async fn a_good_pod_stays_punctual_beside_all_of_them() -> Result<()> {
    let node = Containerd::connect().await?;
    let fuse = Fuse::mount(&node, "all").await?;
    fuse.falls_silent();
    let mut restarts = restarting(5).run(&node, Runtime::Podshim).await?;
    let _end_restarts = EndsWithTest::of(&restarts)?;
    start(&mut restarts, 5).await?;
    let mut probes = probing(5).run(&node, Runtime::Podshim).await?;
    let _end_probes = EndsWithTest::of(&probes)?;
    start(&mut probes, 5).await?;
    let flood = "yes bbbbbbbbbbbbbbbb & while true; do head -c 16000 /dev/zero | tr '\\0' b; echo; done &";
    let mut hostile = Pod::new("hostile")
        .annotate("plan", "log+mail+flood+file=sidecar, app=main")
        .annotate("ready.flood", "notify;fail=100000")
        .annotate("ready.log", &large_pattern())
        .annotate("ready.mail", "notify;fail=100000")
        .annotate("ready.file", &format!("file:/fuse/{ENDLESS};period=100ms;timeout=200ms;fail=100000"))
        .kubelet_grace(Duration::from_secs(i64::MAX.unsigned_abs()))
        .container(Program::new("log").begins_with_script(flood))
        .container(Program::new("mail").ignores_term())
        .container(Program::new("flood"))
        .container(Program::new("file").mount(fuse.path(), "/fuse"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    let _end_hostile = EndsWithTest::of(&hostile)?;
    hostile.start_all(&["log", "mail", "flood", "file", "app"]).await?;
    let other_ends = send_lingering(&node, &hostile, "mail")?;
    let flood = Flood::begin(&node, &hostile, "flood")?;
    let mut lost = maze().run(&node, Runtime::Podshim).await?;
    let _end_lost = EndsWithTest::of(&lost)?;
    lost.start("s1").await?;
    let filtered = filtered(&node).await?;
    let _end_filtered = EndsWithTest::of(&filtered)?;
    let mut holding = Pod::new("holding")
        .container(Program::new("holder").holds_stdout())
        .container(Program::new("other"))
        .run(&node, Runtime::Podshim)
        .await?;
    let _end_holding = EndsWithTest::of(&holding)?;
    holding.start_all(&["other", "holder"]).await?;

    for round in 0..rounds() {
        let mut good = Pod::new("good")
            .annotate("plan", "s1=sidecar, app=main")
            .container(Program::new("s1").term_delay(LAST_WORDS))
            .container(Program::new("app"))
            .run(&node, Runtime::Podshim)
            .await?;
        good.start_all(&["s1", "app"]).await?;
        ensure_serving(&good, "app").await?;
        #[expect(clippy::disallowed_methods, reason = "a test measures")]
        let begun = std::time::Instant::now();
        good.stop_all_at_once(Duration::from_secs(30)).await?;
        let took = begun.elapsed();
        println!("round {round}: stopped in {took:?}");
        ensure!(near(took, LAST_WORDS, TOLERANCE), "the good pod's stop took {took:?}");
        good.timeline()?.exits_before("app", "s1")?;
        good.remove().await?;
        let others = [(&lost, "s1"), (&filtered, "s1"), (&holding, "other")];
        for (pod, container) in
            [(&restarts, "app"), (&probes, "s1"), (&hostile, "mail")].into_iter().chain(others)
        {
            ensure_serving(pod, container).await?;
        }
    }
    for pod in [restarts, probes, hostile, lost, filtered, holding] {
        wait::at_most(Duration::from_secs(50), "a hostile pod cannot be stopped", pod.stop_sandbox()).await?;
        pod.remove().await?;
    }
    drop((other_ends, flood));
    fuse.end().await
}
