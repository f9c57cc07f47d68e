//! A kubelet of `hack/kubelet`: Kubernetes 1.20, which knows no sidecars, standalone, on a private containerd with one
//! of the two shims as default runtime. Owns the kubelet's process; the pods are in [`crate::static_pod`].

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::instance::{self, SHARED_INSTANCE, own_arguments, own_directory};
use crate::{Containerd, Runtime, command};

/// The read-only port, on the loopback of the instance's network namespace.
const PORT: u16 = 10255;

/// How long the kubelet may take to answer.
const ANSWER: Duration = Duration::from_secs(30);

/// How often a kubelet that does not listen is polled.
const RETRY: Duration = Duration::from_millis(200);
const RETRIES: u32 = 150;

/// The list of pods. An answer that breaks off is [`ErrorKind::UnexpectedEof`]: the answers of HTTP 1.0 have no length.
fn ask_for_pods() -> std::io::Result<Value> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, PORT))?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(b"GET /pods HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(ErrorKind::UnexpectedEof)?;
    if !head.starts_with("HTTP/1.0 200") {
        return Err(std::io::Error::other(format!("the kubelet answers {head}")));
    }
    Ok(serde_json::from_str(body)?)
}

/// Whether the kubelet does not listen, or was killed while it answered.
fn is_away(error: &std::io::Error) -> bool {
    use ErrorKind::{ConnectionRefused, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | UnexpectedEof)
}

/// A running kubelet and its containerd.
#[derive(Debug)]
pub struct Kubelet {
    node: Containerd,
    runtime: Runtime,
}

impl Kubelet {
    /// The kubelet of this test run with that default runtime: that of the shared instance, or of the instance beside
    /// it, whose name ends in `-runc`. Without a shared instance it starts a kubelet of the test's own.
    ///
    /// # Errors
    /// If no kubelet is up there, or none can be started.
    pub async fn connect(runtime: Runtime) -> Result<Self> {
        let Some(mut directory) = std::env::var_os(SHARED_INSTANCE) else {
            return Self::start(runtime).await;
        };
        if runtime == Runtime::Runc {
            directory.push("-runc");
        }
        let kubelet = Self { node: Containerd::attach(Path::new(&directory))?, runtime };
        kubelet.pid().context("start it with hack/kubelet")?;
        Ok(kubelet)
    }

    /// Starts a kubelet of the test's own, for tests that kill it. It ends when the handle is dropped.
    ///
    /// # Errors
    /// If `hack/kubelet` fails; the error holds its output.
    pub async fn start(runtime: Runtime) -> Result<Self> {
        let script = command::script("kubelet");
        let mut arguments = own_arguments(&own_directory());
        arguments.extend([OsString::from("--default-runtime"), runtime.handler().into()]);
        let directory = command::run(&script, arguments).await?.success(&script)?;
        Ok(Self { node: Containerd::own(PathBuf::from(directory.trim())), runtime })
    }

    /// The shim it runs pods with.
    #[must_use]
    pub fn runtime(&self) -> Runtime {
        self.runtime
    }

    /// The containerd below it.
    #[must_use]
    pub fn node(&self) -> &Containerd {
        &self.node
    }

    /// The directory of manifests: the kubelet runs every manifest in it.
    #[must_use]
    pub fn manifests(&self) -> PathBuf {
        self.node.directory().join("manifests")
    }

    /// Kills the kubelet with SIGKILL and returns when it is gone. containerd and all pods live on.
    ///
    /// # Errors
    /// If it is still alive after 10 s.
    pub async fn kill(&self) -> Result<()> {
        instance::kill(self.pid()?, "the kubelet").await
    }

    /// Starts the kubelet again after [`kill`](Self::kill), and returns when it answers.
    ///
    /// # Errors
    /// If `hack/kubelet` fails.
    pub async fn start_again(&self) -> Result<()> {
        let script = command::script("kubelet");
        command::run(&script, [Path::new("--dir"), self.node.directory()]).await?.success(&script)?;
        Ok(())
    }

    /// A pod as the kubelet's API reports it; `None` if the kubelet knows no pod of that name.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn pod(&self, name: &str) -> Result<Option<Value>> {
        let mut list = self.pods().await?;
        // The kubelet omits an empty list.
        let Some(items) = list["items"].as_array_mut() else { return Ok(None) };
        Ok(items.iter_mut().find(|pod| pod["metadata"]["name"] == name).map(Value::take))
    }

    /// All pods, from the read-only port inside the instance's network namespace. A restarted kubelet may be slow.
    async fn pods(&self) -> Result<Value> {
        let ask_patiently = || -> Result<Value> {
            for _ in 0..RETRIES {
                match ask_for_pods() {
                    Err(error) if is_away(&error) => std::thread::sleep(RETRY),
                    answer => return Ok(answer?),
                }
            }
            Ok(ask_for_pods()?)
        };
        self.node.in_network(ask_patiently).await.context("the kubelet does not answer")
    }

    fn pid(&self) -> Result<libc::pid_t> {
        self.node.pid("kubelet.pid")
    }
}
