//! A caller's stop in the making (T12, T16): which containers callers have asked to end, and until when other stops may belong to
//! the same.
//!
//! A caller stops a pod container by container. Owns the one value that gathers these stops until it is decided what they are:
//! a stop of the pod, a stop of one container alone, or, once it is taken back, nothing. Knows no container. Decides nothing:
//! which stops are a stop of the pod is `rules::callers_stop`, which are a stop of one alone `rules::lone_stop`.

use crate::interface::time::PodTime;

/// The stop in the making, if one is.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallersStop(Option<Making>);

#[derive(Clone, Debug)]
struct Making {
    /// The members that were asked, in the order of the first request to each.
    asked: Vec<usize>,
    /// Until then other stops may follow.
    until: PodTime,
    window: Window,
}

/// How long podshim waits for other stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    Usual,
    /// After a timer that fired late: other stops may be late too.
    Doubled,
}

impl CallersStop {
    /// Until when other stops may follow, and which window that is.
    pub(crate) fn open(&self) -> Option<(PodTime, Window)> {
        self.0.as_ref().map(|making| (making.until, making.window))
    }

    /// Until when other stops may follow.
    pub(crate) fn until(&self) -> Option<PodTime> {
        self.open().map(|(until, _)| until)
    }

    /// The member that was asked, if it is the only one.
    pub(crate) fn only(&self) -> Option<usize> {
        match self.0.as_ref()?.asked[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// A caller asks for a member's end for the first time.
    pub(crate) fn ask(&mut self, member: usize, until: PodTime) {
        let making = self.0.get_or_insert(Making { asked: Vec::new(), until, window: Window::Usual });
        if !making.asked.contains(&member) {
            making.asked.push(member);
        }
        making.until = making.until.max(until);
    }

    /// A member is created again: its stop was one of its own.
    pub(crate) fn created_again(&mut self, member: usize) {
        let Some(making) = &mut self.0 else { return };
        making.asked.retain(|asked| *asked != member);
        if making.asked.is_empty() {
            self.0 = None;
        }
    }

    /// The timer fired late: the window is open a second time.
    pub(crate) fn wait_again(&mut self, until: PodTime) {
        if let Some(making) = &mut self.0 {
            (making.until, making.window) = (until, Window::Doubled);
        }
    }

    /// It is decided, or taken back.
    pub(crate) fn close(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// T16: each stop keeps the window open for the next one, and only the first request to a container counts.
    #[test]
    fn t16_one_window_for_all_stops() {
        let at = |seconds| PodTime::after_epoch(Duration::from_secs(seconds));
        let mut stop = CallersStop::default();
        stop.ask(3, at(2));
        assert_eq!((stop.only(), stop.until()), (Some(3), Some(at(2))));
        stop.ask(5, at(4));
        assert_eq!((stop.only(), stop.until()), (None, Some(at(4))));
        stop.created_again(5);
        assert_eq!((stop.only(), stop.until()), (Some(3), Some(at(4))));
        stop.wait_again(at(6));
        assert_eq!(stop.open(), Some((at(6), Window::Doubled)));
        stop.created_again(3);
        assert_eq!(stop.open(), None);
    }
}
