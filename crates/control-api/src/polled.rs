//! A connection to a shim for a program without an async runtime that waits for many shims in one `poll`.
//!
//! Owns the bytes of a connection: connecting, asking and reading never block, and at most one Inspect and one Events are under way.
//! How long an answer may take is the caller's. Every text of an answer comes out of here printable (`text`). Decides nothing of what
//! an answer means.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use protobuf::Message;
use ttrpc::Code;
use ttrpc::proto::{MESSAGE_HEADER_LENGTH, MESSAGE_LENGTH_MAX, MESSAGE_TYPE_REQUEST, MESSAGE_TYPE_RESPONSE};

use crate::client::{ClientError, SERVICE, connected, failure, milliseconds, understood};
use crate::{EventsRequest, EventsResponse, InspectRequest, InspectResponse, VERSION, text};

/// How many messages may come at once: an honest shim answers each of the two calls once.
const MESSAGES: usize = 16;

/// What a shim has answered.
#[derive(Debug)]
pub enum Answer {
    /// The pod as it is.
    Inspect(Box<InspectResponse>),
    /// What has happened since.
    Events(EventsResponse),
}

/// A connection to a pod's shim.
#[derive(Debug)]
pub struct PolledClient {
    stream: UnixStream,
    limit: Duration,
    received: Vec<u8>,
    last: u32,
    /// The calls under way.
    inspect: Option<u32>,
    events: Option<u32>,
}

impl AsFd for PolledClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl PolledClient {
    /// Connects to the shim at that socket. `limit` is how long its caller lets an answer take: for the text of an error.
    ///
    /// # Errors
    /// [`ClientError::Dead`] if no process listens, [`ClientError::NoAnswer`] if the shim has not accepted earlier connections.
    pub fn connect(socket: &Path, limit: Duration) -> Result<Self, ClientError> {
        let stream = UnixStream::from(connected(socket, limit)?);
        let broken = |source| ClientError::Connect { socket: socket.to_owned(), source };
        stream.set_nonblocking(true).map_err(broken)?;
        Ok(Self { stream, limit, received: Vec::new(), last: 0, inspect: None, events: None })
    }

    /// Asks for the pod as it is, unless that is asked already.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ask_inspect(&mut self) -> Result<(), ClientError> {
        if self.inspect.is_none() {
            let request = InspectRequest { version: VERSION, ..Default::default() };
            self.inspect = Some(self.ask("Inspect", &request, Duration::ZERO)?);
        }
        Ok(())
    }

    /// Asks for the events after the one of that number, unless that is asked already. If there is none yet, the shim waits for one, at
    /// most `wait`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ask_events(&mut self, after: u64, wait: Duration) -> Result<(), ClientError> {
        if self.events.is_none() {
            let request =
                EventsRequest { version: VERSION, after, wait_ms: milliseconds(wait), ..Default::default() };
            self.events = Some(self.ask("Events", &request, wait)?);
        }
        Ok(())
    }

    fn ask(&mut self, method: &str, request: &impl Message, wait: Duration) -> Result<u32, ClientError> {
        let unusable = |error: protobuf::Error| ClientError::Protocol(error.to_string());
        let request = ttrpc::Request {
            service: SERVICE.to_owned(),
            method: method.to_owned(),
            // The shim's own limits end a call sooner.
            timeout_nano: i64::try_from((wait + Duration::from_secs(60)).as_nanos()).unwrap_or(i64::MAX),
            payload: request.write_to_bytes().map_err(unusable)?,
            ..Default::default()
        };
        let payload = request.write_to_bytes().map_err(unusable)?;
        // A client's calls have odd numbers.
        let call = if self.last == 0 { 1 } else { self.last.wrapping_add(2) };
        self.last = call;
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let mut message = [length.to_be_bytes(), call.to_be_bytes()].concat();
        message.extend([MESSAGE_TYPE_REQUEST, 0]);
        message.extend(payload);
        match self.stream.write(&message) {
            Ok(written) if written == message.len() => Ok(call),
            // The shim has not read what it was asked before.
            Ok(_) => Err(ClientError::NoAnswer { limit: self.limit }),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(ClientError::NoAnswer { limit: self.limit })
            }
            Err(error) => Err(ClientError::Protocol(error.to_string())),
        }
    }

    /// The answers that have come. Those that came before the end of the connection are given first, the end by the next call.
    ///
    /// # Errors
    /// The shim refused a call, its answers cannot be used, or the connection has ended.
    pub fn read(&mut self) -> Result<Vec<Answer>, ClientError> {
        let end = self.receive();
        let answers = self.answers()?;
        match end {
            Some(error) if answers.is_empty() => Err(error),
            _ => Ok(answers),
        }
    }

    /// Reads as much as one message may have; the rest is read with the next poll. Returns why nothing more comes.
    fn receive(&mut self) -> Option<ClientError> {
        let mut chunk = [0; 16 << 10];
        while self.received.len() < MESSAGE_HEADER_LENGTH + MESSAGE_LENGTH_MAX {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Some(ClientError::Protocol("the connection has ended".to_owned())),
                Ok(length) => self.received.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Some(ClientError::Protocol(error.to_string())),
            }
        }
        None
    }

    /// The answers in the whole messages that have been received.
    fn answers(&mut self) -> Result<Vec<Answer>, ClientError> {
        let received = std::mem::take(&mut self.received);
        let (mut rest, mut answers, mut messages) = (received.as_slice(), Vec::new(), 0);
        while let Some((message, after)) = first_message(rest)? {
            messages += 1;
            if messages > MESSAGES {
                return Err(ClientError::Protocol("more messages than answers".to_owned()));
            }
            if message.kind == MESSAGE_TYPE_RESPONSE {
                answers.extend(self.answer(message.call, message.payload)?);
            }
            rest = after;
        }
        self.received = rest.to_vec();
        Ok(answers)
    }

    fn answer(&mut self, call: u32, payload: &[u8]) -> Result<Option<Answer>, ClientError> {
        let unusable = |error: protobuf::Error| ClientError::Protocol(error.to_string());
        let response = ttrpc::Response::parse_from_bytes(payload).map_err(unusable)?;
        let is_inspect = self.inspect.take_if(|asked| *asked == call).is_some();
        let is_events = !is_inspect && self.events.take_if(|asked| *asked == call).is_some();
        if let Some(status) = response.status.into_option().filter(|status| status.code() != Code::OK) {
            let method = if is_inspect { "Inspect" } else { "Events" };
            return Err(failure(ttrpc::Error::RpcStatus(status), method, self.limit));
        }
        if is_inspect {
            let mut answer = InspectResponse::parse_from_bytes(&response.payload).map_err(unusable)?;
            text::of_inspection(&mut answer);
            return understood(answer.version).map(|()| Some(Answer::Inspect(Box::new(answer))));
        }
        if is_events {
            let mut answer = EventsResponse::parse_from_bytes(&response.payload).map_err(unusable)?;
            text::of_events(&mut answer);
            return understood(answer.version).map(|()| Some(Answer::Events(answer)));
        }
        // Of a call that was given up.
        Ok(None)
    }
}

/// A message.
struct Received<'a> {
    call: u32,
    kind: u8,
    payload: &'a [u8],
}

/// The first whole message, and what follows it.
fn first_message(received: &[u8]) -> Result<Option<(Received<'_>, &[u8])>, ClientError> {
    let Some((head, rest)) = received.split_first_chunk::<MESSAGE_HEADER_LENGTH>() else {
        return Ok(None);
    };
    let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let length = usize::try_from(number(0)).unwrap_or(usize::MAX);
    if length > MESSAGE_LENGTH_MAX {
        return Err(ClientError::Protocol(format!("a message of {length} bytes")));
    }
    let whole = rest.split_at_checked(length);
    Ok(whole.map(|(payload, after)| (Received { call: number(4), kind: head[8], payload }, after)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(2);

    /// A client, and the shim's end of its connection.
    fn pair() -> (PolledClient, UnixStream) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shim");
        let listener = UnixListener::bind(&path).unwrap();
        let client = PolledClient::connect(&path, LIMIT).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn message(call: u32, response: &ttrpc::Response) -> Vec<u8> {
        let payload = response.write_to_bytes().unwrap();
        let length = u32::try_from(payload.len()).unwrap();
        let mut message = [length.to_be_bytes(), call.to_be_bytes()].concat();
        message.extend([MESSAGE_TYPE_RESPONSE, 0]);
        message.extend(payload);
        message
    }

    fn response(answer: &impl Message) -> ttrpc::Response {
        ttrpc::Response { payload: answer.write_to_bytes().unwrap(), ..Default::default() }
    }

    #[test]
    fn an_answer_may_come_in_parts_and_belongs_to_its_call() {
        let (mut client, mut shim) = pair();
        client.ask_events(0, Duration::from_secs(9)).unwrap();
        client.ask_inspect().unwrap();
        client.ask_inspect().unwrap();
        assert!(client.read().unwrap().is_empty());
        let pod = InspectResponse { version: VERSION, id: "a\nb".to_owned(), ..Default::default() };
        let whole = message(3, &response(&pod));
        shim.write_all(&whole[..15]).unwrap();
        assert!(client.read().unwrap().is_empty());
        shim.write_all(&whole[15..]).unwrap();
        // Of a call that was never made.
        shim.write_all(&message(7, &response(&pod))).unwrap();
        let events = EventsResponse { version: VERSION, lost: 4, ..Default::default() };
        shim.write_all(&message(1, &response(&events))).unwrap();
        let answers = client.read().unwrap();
        let [Answer::Inspect(pod), Answer::Events(events)] = answers.as_slice() else {
            panic!("{answers:?}")
        };
        assert_eq!((pod.id.as_str(), events.lost), ("a\\nb", 4));
        drop(shim);
        assert!(client.read().unwrap_err().may_be_its_end());
    }

    /// The last events of a pod come with the end of the connection.
    #[test]
    fn what_came_before_the_end_is_read_first() {
        let (mut client, mut shim) = pair();
        client.ask_inspect().unwrap();
        client.ask_events(0, Duration::ZERO).unwrap();
        let events = EventsResponse { version: VERSION, lost: 4, ..Default::default() };
        shim.write_all(&message(3, &response(&events))).unwrap();
        drop(shim);
        assert!(matches!(client.read().unwrap().as_slice(), [Answer::Events(_)]));
        assert!(client.read().unwrap_err().may_be_its_end());
    }

    /// A shim that lies: the largest message, and messages without number.
    #[test]
    fn what_no_one_asked_for_costs_little() {
        let (mut client, mut shim) = pair();
        let most = u32::try_from(MESSAGE_LENGTH_MAX).unwrap();
        let mut largest = [most.to_be_bytes(), 7_u32.to_be_bytes()].concat();
        largest.extend([0, 0]);
        largest.resize(largest.len() + MESSAGE_LENGTH_MAX, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| shim.write_all(&largest).unwrap());
            while client.received.len() < largest.len() {
                assert!(client.receive().is_none());
            }
        });
        assert!(client.answers().unwrap().is_empty() && client.received.is_empty());
        client.received = [0, 0, 0, 0, 0, 0, 0, 9, 0, 0].repeat(400_000);
        assert!(matches!(client.read(), Err(ClientError::Protocol(_))));
    }

    #[test]
    fn what_cannot_be_an_answer_is_an_error() {
        let (mut client, mut shim) = pair();
        shim.write_all(&[0xff; 10]).unwrap();
        assert!(matches!(client.read(), Err(ClientError::Protocol(_))));
        let (mut client, mut shim) = pair();
        client.ask_inspect().unwrap();
        let status = ttrpc::get_status(Code::NOT_FOUND, "no such pod");
        shim.write_all(&message(1, &ttrpc::Response { status: Some(status).into(), ..Default::default() }))
            .unwrap();
        assert!(matches!(client.read(), Err(ClientError::Refused { code: Code::NOT_FOUND, .. })));
        let (mut client, mut shim) = pair();
        client.ask_inspect().unwrap();
        let pod = InspectResponse { version: VERSION + 1, ..Default::default() };
        shim.write_all(&message(1, &response(&pod))).unwrap();
        assert!(matches!(client.read(), Err(ClientError::Version { .. })));
    }

    /// A shim that reads nothing, and one that is not there: no call blocks.
    #[test]
    fn no_shim_holds_up_its_caller() {
        let (mut client, _shim) = pair();
        let refused = (0..100_000).find_map(|_| {
            client.events = None;
            client.ask_events(0, Duration::ZERO).err()
        });
        let text = refused.map(|error| error.to_string());
        assert_eq!(text.as_deref(), Some("its shim does not answer within 2s"));
        let nowhere = PolledClient::connect(Path::new("/nowhere/shim"), LIMIT);
        assert!(matches!(nowhere, Err(ClientError::Dead { .. })), "{nowhere:?}");
    }
}
