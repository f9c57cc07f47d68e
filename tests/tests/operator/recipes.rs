//! The pods of docs/recipes.md, run as they stand: what their containers write comes in the order that the page shows.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::durations::seconds;
use e2e::{Containerd, Pod, Program, RunningPod, Runtime};
use manifests::manifest::{self, Template};
use manifests::yaml::{self, Document, Node};

const PAGE: &str = include_str!("../../../docs/recipes.md");

/// How many pods the page has.
const PODS: usize = 8;

/// One pod of the page, and what its containers write.
struct Recipe {
    document: Document,
    shown: Vec<Shown>,
}

#[derive(Debug)]
enum Shown {
    Line { container: String, text: String },
    Delete,
}

fn recipes() -> Result<Vec<Recipe>> {
    let recipe = |text: &str| {
        let (manifest, rest) = text.split_once("```").context("a manifest has an end")?;
        let (_, shown) = rest.split_once("```text\n").context("it shows what is written")?;
        let shown = shown.split("```").next().unwrap_or_default();
        let document = yaml::documents(manifest)?.pop().context("a manifest")?;
        Ok(Recipe { document, shown: shown.lines().map(shown_line).collect::<Result<_>>()? })
    };
    PAGE.split("```yaml\n").skip(1).map(recipe).collect()
}

fn shown_line(line: &str) -> Result<Shown> {
    if line.starts_with("$ kubectl delete pod ") {
        return Ok(Shown::Delete);
    }
    let (container, text) = line.split_once(": ").with_context(|| format!("no container: {line}"))?;
    Ok(Shown::Line { container: container.to_owned(), text: text.to_owned() })
}

fn words(container: &Node) -> Result<Vec<&str>> {
    let command = container.get("command").map(Node::items).unwrap_or_default();
    command.iter().map(Node::text).collect::<Option<_>>().context("a command of words")
}

/// Its annotations, containers and volumes, each of which is a directory of the node.
fn pod(template: &Template<'_>, volumes: &Path) -> Result<Pod> {
    let mut pod = Pod::new("recipe");
    for (key, value) in template.annotations().map(manifest::pairs).into_iter().flatten() {
        pod = pod.annotate(key.strip_prefix("podshim.io/").context("a key of podshim's")?, value);
    }
    for container in template.containers() {
        let mut program = Program::of_image(container.name, &words(container.node)?);
        for mount in container.node.get("volumeMounts").map(Node::items).unwrap_or_default() {
            let of = |key| mount.get(key).and_then(Node::text).context("a mount has a name and a path");
            let volume = volumes.join(of("name")?);
            fs::create_dir_all(&volume)?;
            program = program.mount(&volume, of("mountPath")?);
        }
        pod = pod.container(program);
    }
    Ok(pod)
}

/// How much later containerd may read, and so date, a line of one container than a later line of another.
const READ_LATE: Duration = Duration::from_millis(100);

/// When a container wrote that line for the `nth` time, as its log has it.
async fn written(pod: &RunningPod<'_>, container: &str, text: &str, nth: usize) -> Result<Duration> {
    let is_it = |line: &&str| line.split_once(" stdout F ").is_some_and(|(_, written)| written == text);
    let what = format!("{container}: {text}, for time {nth}");
    let found = e2e::wait::until(&what, seconds(30), async || {
        let log = pod.output(container).unwrap_or_default();
        Ok(log.lines().filter(is_it).nth(nth - 1).map(str::to_owned))
    });
    let line = found.await.with_context(|| pod.output(container).unwrap_or_default())?;
    time(line.split(' ').next().unwrap_or_default()).with_context(|| format!("no time: {line}"))
}

/// `2026-11-30T13:57:08.8017Z` as a time that only grows; months are taken for equally long.
fn time(text: &str) -> Option<Duration> {
    let (second, rest) = text.split_once('.').unwrap_or((text.get(..19)?, ""));
    let mut parts = second.split(['-', 'T', ':']).map(str::parse::<u64>);
    let mut next = || parts.next()?.ok();
    let days = (next()? * 12 + next()?) * 31 + next()?;
    let seconds = ((days * 24 + next()?) * 60 + next()?) * 60 + next()?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let nanoseconds = format!("{digits:0<9}").parse().ok()?;
    Some(Duration::new(seconds, nanoseconds))
}

async fn run(node: &Containerd, recipe: &Recipe, volumes: &Path) -> Result<()> {
    let template = manifest::templates(&recipe.document).pop().context("a pod")?;
    let mut running = pod(&template, volumes)?.run(node, Runtime::Podshim).await?;
    let names: Vec<_> = template.containers().iter().map(|container| container.name).collect();
    running.start_all(&names).await?;
    let mut seen = BTreeMap::<(&str, &str), usize>::new();
    let mut before = (Duration::ZERO, "the pod's begin".to_owned());
    for shown in &recipe.shown {
        let Shown::Line { container, text } = shown else {
            running.stop_all_at_once(seconds(30)).await?;
            continue;
        };
        let nth = seen.entry((container, text)).and_modify(|nth| *nth += 1).or_insert(1);
        let at = written(&running, container, text, *nth).await?;
        let line = format!("{container}: {text}");
        ensure!(before.0 <= at + READ_LATE, "{line} came before {}: {at:?}, {:?}", before.1, before.0);
        before = (at, line);
    }
    running.remove().await
}

fn volumes_of(node: &Containerd, place: usize) -> PathBuf {
    node.directory().join(format!("recipe-{}-{place}", std::process::id()))
}

/// S2, U2, T1, I1, J1, H2, T8, R14, U2, G1: as a newcomer would try them.
#[tokio::test]
async fn each_recipe_does_what_its_page_shows() -> Result<()> {
    let node = Containerd::connect().await?;
    let recipes = recipes()?;
    ensure!(recipes.len() == PODS, "{} recipes", recipes.len());
    for (place, recipe) in recipes.iter().enumerate() {
        let volumes = volumes_of(&node, place);
        let done = run(&node, recipe, &volumes).await;
        let _ = fs::remove_dir_all(&volumes);
        done.with_context(|| format!("recipe {}", place + 1))?;
    }
    Ok(())
}
