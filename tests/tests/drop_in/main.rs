//! podshim as a drop-in for containerd's runc shim: the same test bodies on both, what a pod without annotations costs, and what
//! is installed. Real containerd, real runc; nextest runs each test in a process of its own, many pods at once on the
//! containerd that `hack/test` started.

/// Each named body as one test per runtime.
macro_rules! on_both_runtimes {
    ($($body:ident),+ $(,)?) => {
        mod runc {
            $(#[tokio::test] async fn $body() -> anyhow::Result<()> { super::$body(e2e::Runtime::Runc).await })+
        }
        mod podshim {
            $(#[tokio::test] async fn $body() -> anyhow::Result<()> { super::$body(e2e::Runtime::Podshim).await })+
        }
    };
}

mod budgets;
mod cgroup_paths;
mod checkpoint;
mod configurations;
mod exits;
mod harness;
mod installed;
mod logging;
mod pid_namespaces;
mod runtime_errors;
mod shim_process;
mod tasks;
mod user_namespaces;
