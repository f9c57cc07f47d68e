//! The shim's memory: small blocks from a heap that keeps its pages, large ones from the C library.
//!
//! musl's allocator maps and unmaps pages for every few objects, and its groups of equal sizes occupy more than they
//! use (docs/costs.md). dlmalloc's heap has neither cost, but it never shrinks: a request of megabytes must not become
//! permanent memory of the pod. A helper process is a fork that may allocate: a fork takes the heap's lock first.

use std::alloc::{GlobalAlloc, Layout, System};

use dlmalloc::GlobalDlmalloc;

/// From this size on, in bytes, a block comes from the C library, which returns it to the kernel when it is freed.
const LARGE: usize = 128 * 1024;

/// The shim's allocator.
pub(crate) struct ShimAllocator;

/// Lets a child of a fork allocate, whatever another thread was doing. Call it once, first of all.
pub(crate) fn hold_still_for_forks() {
    // SAFETY: no other thread is there yet.
    unsafe { dlmalloc::enable_alloc_after_fork() }
}

fn is_large(size: usize) -> bool {
    size >= LARGE
}

/// The allocator that owns blocks of this size.
fn owner(size: usize) -> &'static dyn GlobalAlloc {
    if is_large(size) { &System } else { &GlobalDlmalloc }
}

// SAFETY: both owners are allocators, and a block's size decides its owner, so a block returns to where it came from.
unsafe impl GlobalAlloc for ShimAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the owner requires what the caller of this function promises; so in the next two.
        unsafe { owner(layout.size()).alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { owner(layout.size()).alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { owner(layout.size()).dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if is_large(layout.size()) == is_large(new_size) {
            // SAFETY: the block stays with its owner.
            return unsafe { owner(new_size).realloc(block, layout, new_size) };
        }
        // SAFETY: the caller promises that the new size fits the alignment; the two blocks are separate, and each is at
        // least as long as what is copied.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests of this crate run with this allocator.
    #[test]
    fn a_block_keeps_its_content_over_the_border_of_sizes() {
        let mut bytes: Vec<u8> = Vec::new();
        for number in 0..4 * LARGE {
            bytes.push(number.to_le_bytes()[0]);
        }
        bytes.truncate(LARGE / 3);
        bytes.shrink_to_fit();
        assert!(bytes.iter().enumerate().all(|(number, byte)| *byte == number.to_le_bytes()[0]));
        assert!(vec![0u8; 2 * LARGE].iter().chain(&vec![0u8; LARGE / 2]).all(|byte| *byte == 0));
    }

    #[test]
    fn a_large_block_is_given_back() {
        let before = private_kb();
        let block = vec![1u8; 8 * 1024 * 1024];
        assert!(private_kb() > before + 7 * 1024, "{}", block.len());
        drop(block);
        assert!(private_kb() < before + 1024);
    }

    /// A thread that allocates all the time has the lock at some of the forks.
    #[test]
    fn a_child_of_a_fork_can_allocate() {
        hold_still_for_forks();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let busy = std::thread::spawn(move || {
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                drop(std::hint::black_box(vec![0u8; 64]));
            }
        });
        for _ in 0..300 {
            // SAFETY: the child allocates, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: a child that waits for ever ends with the alarm.
                unsafe { libc::alarm(5) };
                drop(std::hint::black_box(vec![0u8; 64]));
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(0) };
            }
            let mut status = 0;
            // SAFETY: a child of this test.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        }
        drop(stop);
        busy.join().unwrap();
    }

    fn private_kb() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}
