//! The callers' requests that the pod has not answered yet.
//!
//! Owns their ids and where each answer goes. What is answered, and when, is `pod-lifecycle`'s decision.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::Poll;

use pod_lifecycle::{Refusal, Reply, RequestId};

use crate::command::Answer;
use crate::details::CheckpointDetails;
use crate::error::ServiceError;

/// The requests that wait for an answer.
#[derive(Debug, Default)]
pub(crate) struct OpenRequests {
    last: u64,
    answers: BTreeMap<RequestId, Answer<Reply>>,
    /// What the Checkpoint requests among them ask for.
    checkpoints: BTreeMap<RequestId, Rc<CheckpointDetails>>,
}

impl OpenRequests {
    /// Adds a request.
    pub(crate) fn open(&mut self, answer: Answer<Reply>) -> RequestId {
        self.last += 1;
        let id = RequestId(self.last);
        self.answers.insert(id, answer);
        id
    }

    /// Adds a Checkpoint request.
    pub(crate) fn open_checkpoint(&mut self, details: CheckpointDetails, answer: Answer<Reply>) -> RequestId {
        let id = self.open(answer);
        self.checkpoints.insert(id, Rc::new(details));
        id
    }

    /// What an open Checkpoint request asks for.
    pub(crate) fn checkpoint(&self, id: RequestId) -> Option<Rc<CheckpointDetails>> {
        self.checkpoints.get(&id).cloned()
    }

    /// Answers a request. If its caller is gone, the effect stands all the same (DESIGN §3).
    pub(crate) fn answer(&mut self, id: RequestId, result: Result<Reply, Refusal>) {
        self.checkpoints.remove(&id);
        if let Some(answer) = self.answers.remove(&id) {
            let _ = answer.send(result.map_err(ServiceError::from));
        }
    }

    /// Whether the caller of a request still waits for its answer.
    pub(crate) fn is_awaited(&self, id: RequestId) -> bool {
        self.answers.get(&id).is_some_and(|answer| !answer.is_closed())
    }

    /// Waits for a request whose caller is gone (DESIGN §3) and removes it: a killed containerd leaves its Waits behind.
    pub(crate) async fn next_abandoned(&mut self) -> RequestId {
        let id = std::future::poll_fn(|context| {
            let mut answers = self.answers.iter_mut();
            let gone = answers.find_map(|(id, answer)| answer.poll_closed(context).is_ready().then_some(*id));
            gone.map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        self.answers.remove(&id);
        id
    }
}
