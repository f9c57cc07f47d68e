//! The node's label `podshim.io/ready`, by which the scheduler finds nodes with podshim.
//!
//! Owns one request to the API server, through a `kubectl proxy` in the same pod: that has the token and speaks TLS. A TLS
//! stack of our own would make the command half as large again (docs/daemonset.md).

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The label's key.
pub const LABEL: &str = "podshim.io/ready";
/// How long the API server may take.
const LIMIT: Duration = Duration::from_secs(10);
/// A status line is shorter.
const MAX_ANSWER: u64 = 4096;

/// The value of the label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// Pods run on podshim there.
    Yes,
    /// They would fail.
    No,
}

/// Why the label could not be set.
#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    /// The proxy cannot be reached.
    #[error("cannot reach the kubectl proxy at {proxy}: {source}")]
    Proxy {
        /// Its address.
        proxy: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The API server, or the proxy, refused.
    #[error("the API server does not let this pod label node {node:?}: {answer:?}")]
    Refused {
        /// The node.
        node: String,
        /// The line with the reason.
        answer: String,
    },
}

/// Where the node is labelled.
#[derive(Clone, Debug)]
pub struct Labels {
    /// The address of the proxy.
    pub proxy: SocketAddr,
    /// The node's name.
    pub node: String,
}

impl Labels {
    /// Sets the label.
    ///
    /// # Errors
    /// It is not set.
    pub fn set(&self, ready: Ready) -> Result<(), LabelError> {
        let unreachable = |source| LabelError::Proxy { proxy: self.proxy, source };
        let answer = self.patch(ready).map_err(unreachable)?;
        let line = answer.lines().next().unwrap_or_default();
        match line.split(' ').nth(1) {
            Some("200") => Ok(()),
            _ => Err(LabelError::Refused { node: self.node.clone(), answer: line.to_owned() }),
        }
    }

    fn patch(&self, ready: Ready) -> io::Result<String> {
        let value = match ready {
            Ready::Yes => "true",
            Ready::No => "false",
        };
        let body = format!("{{\"metadata\":{{\"labels\":{{\"{LABEL}\":\"{value}\"}}}}}}");
        let mut stream = TcpStream::connect_timeout(&self.proxy, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        // kubectl proxy takes requests for itself only.
        let head = format!(
            "PATCH /api/v1/nodes/{} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/merge-patch+json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.node,
            body.len()
        );
        stream.write_all((head + &body).as_bytes())?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// A node's name, which goes into a path: as Kubernetes allows it.
///
/// # Errors
/// It is not one.
pub fn node_name(text: &str) -> Result<String, &'static str> {
    let is_valid =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.".contains(letter);
    match !text.is_empty() && text.chars().all(is_valid) && text.starts_with(|c: char| c != '.') {
        true => Ok(text.to_owned()),
        false => Err("not the name of a node: lower-case letters, digits, - and ."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// A proxy that answers one request with this line; what it was asked, and what the client says.
    fn proxied(line: &'static str, ready: Ready) -> (String, Result<(), LabelError>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let labels = Labels { proxy: listener.local_addr().unwrap(), node: "node-1".to_owned() };
        let proxy = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"}}}") {
                let mut part = [0; 512];
                let length = stream.read(&mut part).unwrap();
                asked.extend_from_slice(&part[..length]);
            }
            stream.write_all(format!("{line}\r\nContent-Length: 2\r\n\r\n{{}}").as_bytes()).unwrap();
            String::from_utf8(asked).unwrap()
        });
        let set = labels.set(ready);
        (proxy.join().unwrap(), set)
    }

    #[test]
    fn one_request_for_one_label_of_one_node() {
        for (ready, value) in [(Ready::Yes, "true"), (Ready::No, "false")] {
            let (asked, set) = proxied("HTTP/1.1 200 OK", ready);
            assert!(set.is_ok(), "{set:?}");
            assert!(asked.starts_with("PATCH /api/v1/nodes/node-1 HTTP/1.1\r\n"), "{asked}");
            let body =
                format!("\r\n\r\n{{\"metadata\":{{\"labels\":{{\"podshim.io/ready\":\"{value}\"}}}}}}");
            assert!(asked.ends_with(&body), "{asked}");
        }
    }

    #[test]
    fn a_refusal_has_the_reason() {
        let (_, set) = proxied("HTTP/1.1 403 Forbidden", Ready::Yes);
        let error = set.unwrap_err().to_string();
        assert!(error.contains("\"node-1\"") && error.contains("403 Forbidden"), "{error}");
        // No proxy listens on the port of a socket that is closed.
        let proxy = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let set = Labels { proxy, node: "node-1".to_owned() }.set(Ready::Yes);
        assert!(matches!(set, Err(LabelError::Proxy { .. })), "{set:?}");
    }

    #[test]
    fn a_name_is_no_path() {
        assert_eq!(node_name("ip-10-0-0-1.example"), Ok("ip-10-0-0-1.example".to_owned()));
        for name in ["", "..", "../secrets", "a b", "a\r\nHost: b", "A", "a%2fb"] {
            assert!(node_name(name).is_err(), "{name:?}");
        }
    }
}
