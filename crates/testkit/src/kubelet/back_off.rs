//! When a kubelet retries what has failed: after 10 s, doubled each time, 300 s at most. Owns only those figures.

use std::collections::BTreeMap;
use std::time::Duration;

use pod_lifecycle::PodTime;

/// The first wait.
const FIRST: Duration = Duration::from_secs(10);
/// The longest wait. After twice as long without a failure the waits start from the first one again.
const LONGEST: Duration = Duration::from_secs(300);

/// The waits of a pod's containers, each with its image: an updated image starts from the first wait.
#[derive(Clone, Debug, Default)]
pub(super) struct BackOff(BTreeMap<(usize, u32), Entry>);

#[derive(Clone, Copy, Debug)]
struct Entry {
    wait: Duration,
    updated: PodTime,
}

impl Entry {
    fn has_expired(self, since: PodTime) -> bool {
        since.since(self.updated) > 2 * LONGEST
    }
}

impl BackOff {
    /// Whether it is too early to retry what failed at `since`.
    pub(super) fn holds(&self, now: PodTime, key: (usize, u32), since: PodTime) -> bool {
        let entry = self.0.get(&key).filter(|entry| !entry.has_expired(since));
        entry.is_some_and(|entry| now < since + entry.wait)
    }

    /// Notes a retry.
    pub(super) fn next(&mut self, now: PodTime, key: (usize, u32), since: PodTime) {
        let known = self.0.get(&key).filter(|entry| !entry.has_expired(since));
        let wait = known.map_or(FIRST, |entry| (2 * entry.wait).min(LONGEST));
        self.0.insert(key, Entry { wait, updated: now });
    }

    /// A kubelet that restarts has forgotten all waits.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> PodTime {
        PodTime::after_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn the_first_restart_is_at_once_and_the_waits_double_up_to_five_minutes() {
        let (mut back_off, key) = (BackOff::default(), (0, 0));
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..8 {
            let died = now;
            while back_off.holds(at(now), key, at(died)) {
                now += 1;
            }
            back_off.next(at(now), key, at(died));
            waits.push(now - died);
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert!(
            !back_off.holds(at(now + 700), key, at(now + 700)),
            "after a long run the first one is at once again"
        );
        assert!(!back_off.holds(at(now), (0, 1), at(now)), "another image has its own");
    }
}
