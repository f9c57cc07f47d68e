//! `podshim web` as its users run it. Owns the process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub struct Server {
    process: Child,
    /// Address and port.
    pub address: String,
}

impl Server {
    pub fn start(run_dir: &Path, history_dir: &Path) -> Self {
        Self::at("127.0.0.1:0", run_dir, history_dir)
    }

    #[expect(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    pub fn at(address: &str, run_dir: &Path, history_dir: &Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_podshim"))
            .args(["web", "--node", "node-1", "--listen", address, "--run-dir"])
            .arg(run_dir)
            .arg("--history-dir")
            .arg(history_dir)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("podshim: the page is at http://").expect(&line);
        Self { address: address.trim_end_matches('/').to_owned(), process }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// A connection that has sent this.
    pub fn sent(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// The whole answer to a request with these header lines.
    pub fn ask(&self, line: &str, headers: &str) -> String {
        let mut answer = String::new();
        self.sent(&format!("{line} HTTP/1.1\r\n{headers}\r\n")).read_to_string(&mut answer).unwrap();
        answer
    }

    /// Ends it by SIGTERM: its exit code.
    #[expect(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    pub fn end(&mut self) -> Option<i32> {
        kill(Pid::from_raw(self.process.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
        self.process.wait().unwrap().code()
    }
}

impl Drop for Server {
    #[expect(clippy::disallowed_methods, reason = "a test ends what it has started")]
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
