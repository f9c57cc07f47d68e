//! No backtraces: the release binary has neither unwind tables (`release.ld`) nor symbols, so that one would be empty.
//!
//! The standard library prints a backtrace after a panic. For that it brings an unwinder and a reader of debug information, a
//! tenth of the binary. Where the walk of the stack ends at once nothing calls them, and the linker leaves them out.

use std::ffi::{c_int, c_void};

/// The walk is over.
const END_OF_STACK: c_int = 5;

/// In place of the unwinder's.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Backtrace(_frame: *const c_void, _argument: *mut c_void) -> c_int {
    END_OF_STACK
}

/// What the standard library names for a panic that unwinds, which does not happen here: it aborts.
macro_rules! never_called {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name() {
                std::process::abort()
            }
        )*
    };
}

never_called! {
    _Unwind_DeleteException _Unwind_FindEnclosingFunction _Unwind_GetCFA _Unwind_GetDataRelBase _Unwind_GetIP
    _Unwind_GetIPInfo _Unwind_GetLanguageSpecificData _Unwind_GetRegionStart _Unwind_GetTextRelBase
    _Unwind_RaiseException _Unwind_Resume _Unwind_SetGR _Unwind_SetIP
}
