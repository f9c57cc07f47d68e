//! A small API server: pods that can be listed, watched and given conditions; events with the bounds of `events.k8s.io/v1`. It can be
//! away, slow, or refuse. Owns no truth about Kubernetes: what it checks is in its API's documentation.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";

/// How it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    Answers,
    /// It closes each connection.
    Away,
    /// It answers writes with this status.
    Refuses(u16),
    /// It takes writes and gives no answer; when it behaves otherwise again their connections are closed.
    Hangs,
    /// It answers writes after this time.
    Slow(Duration),
}

#[derive(Debug)]
struct State {
    behaviour: Behaviour,
    version: u64,
    /// By namespace and name.
    pods: BTreeMap<(String, String), Value>,
    events: BTreeMap<(String, String), Value>,
    /// What a watch sends: each change with its version.
    changes: Vec<(u64, Value)>,
    writes: Vec<String>,
    /// How many writes have hung.
    hung: usize,
    /// How many lists were read to their end.
    lists: usize,
    bad: Vec<String>,
}

/// The server, and its state.
#[derive(Clone)]
pub struct ApiServer {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct Request {
    method: String,
    path: String,
    query: String,
    content_type: String,
    body: Value,
}

impl ApiServer {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = State {
            behaviour: Behaviour::Answers,
            version: 1,
            pods: BTreeMap::new(),
            events: BTreeMap::new(),
            changes: Vec::new(),
            writes: Vec::new(),
            hung: 0,
            lists: 0,
            bad: Vec::new(),
        };
        let server = Self { address: listener.local_addr().unwrap(), state: Arc::new(Mutex::new(state)) };
        let own = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let own = own.clone();
                thread::spawn(move || {
                    let _ = own.serve(&stream);
                });
            }
        });
        server
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn behaves(&self, behaviour: Behaviour) {
        self.state().behaviour = behaviour;
    }

    /// Adds a pod, or replaces one of its name.
    pub fn pod(&self, pod: Value) {
        self.state().put_pod(pod);
    }

    pub fn delete_pod(&self, namespace: &str, name: &str) {
        self.state().delete_pod(&(namespace.to_owned(), name.to_owned()));
    }

    /// The agent's condition of a pod: status, reason and message.
    pub fn condition(&self, namespace: &str, name: &str) -> Option<(String, String, String)> {
        self.condition_of_type(namespace, name, "podshim.io/Started")
    }

    /// A condition of a pod: status, reason and message.
    pub fn condition_of_type(
        &self,
        namespace: &str,
        name: &str,
        kind: &str,
    ) -> Option<(String, String, String)> {
        let state = self.state();
        let pod = state.pods.get(&(namespace.to_owned(), name.to_owned()))?;
        let conditions = pod["status"]["conditions"].as_array()?;
        let own = conditions.iter().find(|it| it["type"] == kind)?;
        let text = |key: &str| own[key].as_str().unwrap_or_default().to_owned();
        Some((text("status"), text("reason"), text("message")))
    }

    /// How many writes have got no answer.
    pub fn hung(&self) -> usize {
        self.state().hung
    }

    /// How often all pods were listed.
    pub fn lists(&self) -> usize {
        self.state().lists
    }

    /// What `kubectl describe pod` lists of the pod with that uid: type, reason, how often, note.
    pub fn described(&self, uid: &str) -> Vec<String> {
        let state = self.state();
        let of_pod = state.events.values().filter(|event| event["regarding"]["uid"] == uid);
        let mut events: Vec<&Value> = of_pod.collect();
        events.sort_by_key(|event| event["eventTime"].as_str());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let line = |event: &&Value| {
            let count = event["series"]["count"].as_u64().map_or(String::new(), |count| format!(" x{count}"));
            format!("{} {}{count} {}", text(&event["type"]), text(&event["reason"]), text(&event["note"]))
        };
        events.iter().map(line).collect()
    }

    pub fn events(&self) -> Vec<Value> {
        self.state().events.values().cloned().collect()
    }

    /// All writes so far that were answered.
    pub fn writes(&self) -> Vec<String> {
        self.state().writes.clone()
    }

    /// What the API would not have taken.
    pub fn bad(&self) -> Vec<String> {
        self.state().bad.clone()
    }

    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        while let Some(request) = read(&mut reader)? {
            if self.state().behaviour == Behaviour::Away {
                return Ok(());
            }
            if request.query.contains("watch=") {
                return self.watch(stream, &request);
            }
            if request.method != "GET" && self.hangs() {
                return Ok(());
            }
            let (status, body) = self.answer(&request);
            write_answer(stream, status, &body)?;
        }
        Ok(())
    }

    /// Returns when it hangs no more, if it does.
    fn hangs(&self) -> bool {
        if self.state().behaviour != Behaviour::Hangs {
            return false;
        }
        self.state().hung += 1;
        while self.state().behaviour == Behaviour::Hangs {
            thread::sleep(Duration::from_millis(10));
        }
        true
    }

    fn answer(&self, request: &Request) -> (u16, Value) {
        let behaviour = self.state().behaviour;
        let is_write = request.method != "GET";
        match behaviour {
            Behaviour::Refuses(status) if is_write => return failure(status, "refused by the test"),
            Behaviour::Slow(time) if is_write => thread::sleep(time),
            _ => {}
        }
        let mut state = self.state();
        if is_write {
            state.writes.push(format!("{} {}", request.method, request.path));
        }
        let parts: Vec<&str> = request.path.trim_matches('/').split('/').collect();
        match (request.method.as_str(), &parts[..]) {
            ("GET", ["api", "v1", "pods"]) => (200, state.list(&request.query)),
            ("POST", ["apis", "events.k8s.io", "v1", "namespaces", namespace, "events"]) => {
                state.create_event(namespace, &request.body)
            }
            ("PATCH", ["apis", "events.k8s.io", "v1", "namespaces", namespace, "events", name]) => {
                state.patch_event(namespace, name, request)
            }
            ("PATCH", ["api", "v1", "namespaces", namespace, "pods", name, "status"]) => {
                state.patch_status(namespace, name, request)
            }
            _ => {
                state.bad.push(format!("{} {}", request.method, request.path));
                failure(404, "no such resource")
            }
        }
    }

    fn watch(&self, mut stream: &TcpStream, request: &Request) -> io::Result<()> {
        let from = request.query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
        let mut version: u64 = from.and_then(|text| text.parse().ok()).unwrap_or_default();
        stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        )?;
        loop {
            let new: Vec<(u64, Value)> = {
                let state = self.state();
                if state.behaviour == Behaviour::Away {
                    return Ok(());
                }
                state.changes.iter().filter(|(at, _)| *at > version).cloned().collect()
            };
            for (at, change) in new {
                version = at;
                if is_selected(&request.query, &change["object"]) {
                    let line = format!("{change}\n");
                    write!(stream, "{:x}\r\n{line}\r\n", line.len())?;
                }
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// `fieldSelector=spec.nodeName=...`, which every request must have.
fn is_selected(query: &str, pod: &Value) -> bool {
    let query = query.replace("%3D", "=");
    let node = query.split('&').find_map(|pair| pair.strip_prefix("fieldSelector=spec.nodeName="));
    node.is_some() && pod["spec"]["nodeName"].as_str() == node
}

fn failure(code: u16, message: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message,
        "reason": message, "code": code});
    (code, status)
}

impl State {
    fn put_pod(&mut self, mut pod: Value) {
        self.version += 1;
        pod["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let text = |key: &str| pod["metadata"][key].as_str().unwrap().to_owned();
        let key = (text("namespace"), text("name"));
        let kind = if self.pods.contains_key(&key) { "MODIFIED" } else { "ADDED" };
        self.changes.push((self.version, json!({"type": kind, "object": pod})));
        self.pods.insert(key, pod);
    }

    fn delete_pod(&mut self, key: &(String, String)) {
        let pod = self.pods.remove(key).unwrap();
        self.version += 1;
        self.changes.push((self.version, json!({"type": "DELETED", "object": pod})));
    }

    /// A page of the pods: `limit` of them after the one that `continue` names. As a real one's, all pages have the version of the first:
    /// what changes meanwhile comes by the watch.
    fn list(&mut self, query: &str) -> Value {
        let value = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key));
        let limit = value("limit=").and_then(|limit| limit.parse::<usize>().ok());
        if limit.is_none_or(|limit| limit > 5) {
            self.bad.push(format!("a list of pods of any size: {query}"));
        }
        let limit = limit.unwrap_or(usize::MAX);
        let token = value("continue=").map(|token| token.replace("%2F", "/"));
        let parts: Vec<&str> = token.iter().flat_map(|token| token.split('/')).collect();
        let (version, after) = match parts[..] {
            [version, namespace, name] => (version.to_owned(), Some((namespace.to_owned(), name.to_owned()))),
            _ => (self.version.to_string(), None),
        };
        let is_next = |key: &(String, String)| after.as_ref().is_none_or(|after| key > after);
        let mut rest = self.pods.iter().filter(|(key, pod)| is_next(key) && is_selected(query, pod));
        let page: Vec<_> = rest.by_ref().take(limit).collect();
        let mut metadata = json!({"resourceVersion": version});
        let is_last = rest.next().is_none();
        if let (Some(((namespace, name), _)), false) = (page.last(), is_last) {
            metadata["continue"] = json!(format!("{version}/{namespace}/{name}"));
        }
        let items: Vec<&Value> = page.iter().map(|(_, pod)| *pod).collect();
        let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items});
        self.lists += usize::from(is_last);
        list
    }

    fn create_event(&mut self, namespace: &str, event: &Value) -> (u16, Value) {
        let text = |key: &str| event[key].as_str().unwrap_or_default();
        let name = event["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let is_short = |key: &str| (1..=128).contains(&text(key).len());
        let is_good = is_short("action")
            && is_short("reason")
            && is_short("reportingInstance")
            && text("reportingController") == "podshim.io/agent"
            && text("note").len() <= 1024
            && !text("eventTime").is_empty()
            && matches!(text("type"), "Normal" | "Warning")
            && event["series"]["count"].as_u64().is_none_or(|count| count >= 2)
            && event["regarding"]["namespace"] == namespace
            && event["metadata"]["namespace"] == namespace;
        if !is_good {
            self.bad.push(event.to_string());
            return failure(422, "invalid");
        }
        let key = (namespace.to_owned(), name);
        if self.events.contains_key(&key) {
            return failure(409, "AlreadyExists");
        }
        self.events.insert(key, event.clone());
        (201, event.clone())
    }

    fn patch_event(&mut self, namespace: &str, name: &str, request: &Request) -> (u16, Value) {
        let patch = &request.body;
        if request.content_type != MERGE {
            self.bad.push(request.content_type.clone());
            return failure(415, "UnsupportedMediaType");
        }
        let Some(event) = self.events.get_mut(&(namespace.to_owned(), name.to_owned())) else {
            return failure(404, "NotFound");
        };
        let only_series = patch.as_object().is_some_and(|patch| patch.keys().eq(["series"]));
        if !only_series || patch["series"]["count"].as_u64().is_none_or(|count| count < 2) {
            self.bad.push(patch.to_string());
            return failure(422, "invalid");
        }
        event["series"] = patch["series"].clone();
        (200, event.clone())
    }

    fn patch_status(&mut self, namespace: &str, name: &str, request: &Request) -> (u16, Value) {
        let patch = &request.body;
        let key = (namespace.to_owned(), name.to_owned());
        let Some(mut pod) = self.pods.get(&key).cloned() else { return failure(404, "NotFound") };
        if patch["metadata"]["uid"] != pod["metadata"]["uid"] {
            return failure(409, "Conflict");
        }
        let new = patch["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let conditions = match request.content_type.as_str() {
            STRATEGIC => {
                let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
                conditions.retain(|own| new.iter().all(|new| own["type"] != new["type"]));
                conditions.extend(new);
                conditions
            }
            // It has no lists that are merged: this one takes the place of the kubelet's.
            MERGE => new,
            other => {
                self.bad.push(other.to_owned());
                return failure(415, "UnsupportedMediaType");
            }
        };
        pod["status"]["conditions"] = json!(conditions);
        self.put_pod(pod.clone());
        (200, pod)
    }
}

fn read(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (mut length, mut content_type) = (0, String::new());
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let header = header.trim().to_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or_default();
        }
        if let Some(value) = header.strip_prefix("content-type:") {
            value.trim().clone_into(&mut content_type);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    Ok(Some(Request {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        content_type,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    }))
}

fn write_answer(mut stream: &TcpStream, status: u16, body: &Value) -> io::Result<()> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes())
}
