//! Is podshim a drop-in? Runs the same operations on containerd's own Go shim and on podshim, on the same node at the
//! same time, over each shim's own socket. Every answer, code, text and event, and everything left on the machine, must
//! be the same, except for the differences that `known.txt` lists with a reason.
//!
//! A scenario is a function of `scenarios`; a step is a method of [`run::Run`].

mod differences;
mod events;
mod known;
mod machine;
mod record;
mod run;
mod scenarios;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::{Containerd, Runtime};
use nix::sched::{CloneFlags, setns, unshare};
use run::{Outcome, Run};

/// Runs a scenario on one shim.
async fn on_shim(
    node: &Containerd,
    runtime: Runtime,
    name: &str,
    scenario: impl AsyncFnOnce(&mut Run) -> Result<()>,
) -> Result<Outcome> {
    let directory = tempfile::Builder::new().prefix("podshim-parity").tempdir()?;
    let mut run = Run::begin(node, runtime, name, directory.path()).await?;
    let traces = run.traces();
    let done = match scenario(&mut run).await {
        Ok(()) => run.end().await,
        Err(error) => Err(error),
    };
    Run::clean_up(&traces);
    done.with_context(|| format!("{name} on {}", runtime.handler()))
}

/// Enters the instance's mount namespace: shims, their sockets and their mounts are in it, and end with it.
fn enter(node: &Containerd) -> Result<()> {
    let pid = std::fs::read_to_string(node.directory().join("holder.pid"))?;
    let namespace = std::fs::File::open(Path::new("/proc").join(pid.trim()).join("ns/mnt"))?;
    unshare(CloneFlags::CLONE_FS)?;
    setns(namespace, CloneFlags::CLONE_NEWNS)?;
    Ok(())
}

/// Runs a scenario on both shims and compares.
fn compare(
    name: &'static str,
    scenario: impl AsyncFn(&mut Run) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    let build = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let node = build()?.block_on(Containerd::connect())?;
    // In a thread of its own, because it enters another mount namespace.
    let compared = std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> Result<_> {
            enter(&node)?;
            build()?.block_on(async {
                // Both run to their end: a dropped run would leave its shim behind.
                let (runc, podshim) = tokio::join!(
                    on_shim(&node, Runtime::Runc, name, &scenario),
                    on_shim(&node, Runtime::Podshim, name, &scenario)
                );
                Ok((runc?, podshim?))
            })
        });
        thread.join()
    });
    let (runc, podshim) = compared.map_err(|_| anyhow::anyhow!("{name} panicked"))??;
    node.note("compared-operations", &runc.operations.to_string())?;
    let (runc, podshim) = (runc.records, podshim.records);
    let found = differences::between(&runc, &podshim);
    let (major, minor) = node.version()?;
    let about = known::Node {
        containerd: format!("{major}.{minor}"),
        oci_runtime: node.oci_runtime()?,
        core_scheduling: known::CoreScheduling::of_this_kernel(),
    };
    let table: Vec<_> = known::table()?.into_iter().filter(|known| known.is_about(&about)).collect();
    let unexpected: Vec<_> =
        found.iter().filter(|difference| !table.iter().any(|known| known.is(name, difference))).collect();
    ensure!(
        unexpected.is_empty(),
        "{} differences in {} steps:{}",
        unexpected.len(),
        runc.len(),
        differences::table(&unexpected)
    );
    for known in table.iter().filter(|known| known.must_occur_in(name)) {
        ensure!(
            found.iter().any(|difference| known.is(name, difference)),
            "no longer occurs: {}",
            known.line()
        );
    }
    Ok(())
}

/// Each named scenario as one test.
macro_rules! scenarios {
    ($($module:ident: $($name:ident),+ ;)+) => {
        /// All scenarios' names.
        const SCENARIOS: &[&str] = &[$($(stringify!($name)),+),+];

        $($(
            #[test]
            fn $name() -> Result<()> {
                compare(stringify!($name), scenarios::$module::$name)
            }
        )+)+
    };
}

scenarios! {
    checkpoints:
        checkpoints, a_restore;
    execs:
        the_life_of_an_exec, an_exec_is_started_twice, exec_ids_are_used_again, what_an_exec_is_given,
        execs_that_cannot_start, execs_of_damaged_processes, execs_and_the_end_of_their_container,
        an_exec_in_a_created_container;
    failures:
        specs_that_cannot_run, a_damaged_spec, requests_that_cannot_be_served, a_second_try,
        other_runtimes, d6_the_runtimes_working_directory;
    freezing:
        pause_and_resume, killed_while_paused, all_killed_while_paused, signalled_while_paused;
    life:
        a_life, wrong_orders, unknown_ids;
    resources:
        updates, stats, stats_without_limits, stats_of_used_memory, out_of_memory;
    settings:
        options, the_systemd_driver, the_owner_of_pipes, the_owner_of_other_streams, kinds_of_options, the_server_process,
        core_scheduling, the_shims_cgroup, a_group, the_delete_action;
    signals:
        every_signal_arrives, odd_signals, kill_all_reaches_everybody, a_created_container_ends,
        a_created_container_is_deleted, ends_of_programs, children_in_the_hosts_pid_namespace,
        a_shared_pid_namespace;
    streams:
        a_terminal, an_exec_with_a_terminal, the_end_of_a_terminals_input, standard_input,
        much_output, no_pipes, a_logging_program, wrong_addresses, a_child_holds_the_output,
        d4_the_last_output_of_a_terminal_for_a_slow_client, d4_a_terminal_hangs_up;
}

/// No test would check a known difference whose scenario no longer exists.
#[test]
fn known_differences_name_their_scenario() -> Result<()> {
    for known in known::table()? {
        ensure!(SCENARIOS.contains(&known.seen_in), "no such scenario: {}", known.line());
    }
    Ok(())
}
