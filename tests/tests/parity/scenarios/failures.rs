//! Creates that fail: the error that the user gets, and that nothing is left behind.

use anyhow::Result;
use containerd_shim_protos::shim::oci::Options;
use containerd_shim_protos::types::mount::Mount;
use protobuf::well_known_types::any::Any;
use serde_json::json;

use crate::run::{Exec, Run};
use e2e::direct::bundle::Bundle;
use e2e::direct::streams::Streams;

/// Specs that the runtime refuses.
pub async fn specs_that_cannot_run(run: &mut Run) -> Result<()> {
    let shell = || Bundle::shell("exit 0");
    let failing = [
        ("program", Bundle::program(&["/no/such/program"])),
        ("path", Bundle::program(&["nosuchprogram"])),
        ("directory", Bundle::program(&["/tmp"])),
        ("args", Bundle::program(&[])),
        ("cwd", shell().spec(|spec| spec["process"]["cwd"] = "relative".into())),
        ("mount", shell().spec(|spec| spec["mounts"][0]["type"] = "nosuchfs".into())),
        (
            "source",
            shell().spec(|spec| {
                spec["mounts"][1] = json!({
                    "destination": "/etc", "type": "bind", "source": "/no/such", "options": ["bind"]
                })
            }),
        ),
        ("namespace", shell().spec(|spec| spec["linux"]["namespaces"][0]["type"] = "nosuch".into())),
        ("nspath", shell().spec(|spec| spec["linux"]["namespaces"][4]["path"] = "/no/such/ns".into())),
        ("root", shell().spec(|spec| spec["root"]["path"] = "nosuch".into())),
        ("version", shell().spec(|spec| spec["ociVersion"] = json!(null))),
        ("process", shell().spec(|spec| spec["process"] = json!(null))),
        ("hook", shell().spec(|spec| spec["hooks"] = json!({"createRuntime": [{"path": "/bin/false"}]}))),
        (
            "rlimit",
            shell()
                .spec(|spec| spec["process"]["rlimits"] = json!([{"type": "NOSUCH", "hard": 1, "soft": 1}])),
        ),
        (
            "capability",
            shell().spec(|spec| spec["process"]["capabilities"]["bounding"] = json!(["CAP_NOSUCH"])),
        ),
    ];
    for (id, bundle) in failing {
        run.bundle(id, bundle).await?;
        run.create(id).await;
        run.state(id).await;
        run.start(id).await;
        run.wait(id).await;
        run.kill(id, 9).await;
        run.delete(id).await;
        run.files(id);
    }
    Ok(())
}

/// An invalid spec: podshim notices it before the runtime does.
pub async fn a_damaged_spec(run: &mut Run) -> Result<()> {
    let bundle = Bundle::shell("exit 0").spec(|spec| spec["linux"]["namespaces"] = json!("none"));
    run.bundle("c", bundle).await?;
    run.create("c").await;
    Ok(())
}

/// Requests that cannot be served: the mounts, the options, the bundle.
pub async fn requests_that_cannot_be_served(run: &mut Run) -> Result<()> {
    let mount = |kind: &str, source: &str, options: &[&str]| Mount {
        type_: kind.to_owned(),
        source: source.to_owned(),
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        ..Mount::default()
    };
    let any = |type_url: &str, value: &[u8]| {
        Some(Any { type_url: type_url.to_owned(), value: value.to_vec(), ..Any::default() })
    };
    let ids = ["mount", "kind", "overlay", "second", "option", "garbled", "nobundle", "noconfig", "id"];
    for id in ids {
        run.bundle(id, Bundle::shell("exit 0")).await?;
        if id == "noconfig" {
            std::fs::remove_file(run.bundle_path(id).join("config.json"))?;
        }
        run.create_with(id, |request| match id {
            "mount" => request.rootfs = vec![mount("bind", "/no/such/source", &["rbind"])],
            "kind" => request.rootfs = vec![mount("nosuchfs", "none", &[])],
            "overlay" => request.rootfs = vec![mount("overlay", "overlay", &["lowerdir=/no/such:/nor/this"])],
            "second" => request.rootfs.push(mount("bind", "/no/such/source", &["rbind"])),
            "option" => request.options = any("acme.Options", b"").into(),
            "garbled" => request.options = any("containerd.runc.v1.Options", b"\xff\xff\xff").into(),
            "nobundle" => request.bundle.push_str("/no/such"),
            _ => request.id = "another/../id".to_owned(),
        })
        .await;
        run.state(id).await;
        run.start(id).await;
        run.files(id);
    }
    Ok(())
}

/// A create that failed is repeated under the same id, also with the same pipes.
pub async fn a_second_try(run: &mut Run) -> Result<()> {
    for (id, streams) in [("null", Streams::Null), ("output", Streams::Output), ("all", Streams::All)] {
        run.bundle(id, Bundle::program(&["/no/such/program"]).streams(streams)).await?;
        run.create(id).await;
        run.create(id).await;
        run.state(id).await;
        let config = run.bundle_path(id).join("config.json");
        let spec = std::fs::read_to_string(&config)?.replace("/no/such/program", "/bin/pwd");
        std::fs::write(config, spec)?;
        run.create(id).await;
        run.start(id).await;
        run.wait(id).await;
        run.delete(id).await;
        run.output(id).await?;
    }
    Ok(())
}

/// A runtime that does not exist, or always fails.
pub async fn other_runtimes(run: &mut Run) -> Result<()> {
    for (id, name) in [
        ("missing", "/no/such/runtime"),
        ("false", "/bin/false"),
        ("true", "/bin/true"),
        ("name", "nosuchruntime"),
    ] {
        let options = Options { binary_name: name.to_owned(), ..Options::default() };
        run.bundle(id, Bundle::shell("exit 0").options(&options)?).await?;
        run.create(id).await;
        run.state(id).await;
        run.files(id);
    }
    Ok(())
}

/// D6: a wrapper of the OCI runtime finds the container's config.json where it is (containerd's TestIssue9103 and TestIssue10589).
pub async fn d6_the_runtimes_working_directory(run: &mut Run) -> Result<()> {
    let log = run.directory().join("calls");
    let script = format!(
        "for word; do case $word in create|start|exec|pause|resume|update|delete) call=$word; break;; esac; done
        echo \"$call $(cat ./config.json >/dev/null 2>&1 && echo found)\" >> {}
        exec runc \"$@\"",
        log.display()
    );
    let wrapper = run.executable("wrapper", &script)?;
    let options = Options { binary_name: wrapper, ..Options::default() };
    run.bundle("c", Bundle::shell("echo ready; sleep 1000").options(&options)?).await?;
    run.create("c").await;
    run.start("c").await;
    run.line("c").await;
    run.exec_to_end("c/e", Exec::shell("true").streams(Streams::Null)).await?;
    run.pause("c").await;
    run.resume("c").await;
    run.update("c", serde_json::json!({"pids": {"limit": 50}})).await;
    // runc's shim asks its runtime more often: what both ask is compared, call by call.
    let calls = std::fs::read_to_string(&log)?;
    for call in ["create", "start", "exec", "pause", "resume", "update"] {
        let of_call: std::collections::BTreeSet<_> =
            calls.lines().filter(|line| line.starts_with(&format!("{call} "))).collect();
        run.record(format!("./config.json of {call}"), vec![("calls".to_owned(), format!("{of_call:?}"))]);
    }
    Ok(())
}
