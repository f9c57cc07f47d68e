# Shared by the scripts in hack/: paths, messages, and looking at processes by pid.
# Sourced, never run. It may not change anything outside the shell that sources it.
# shellcheck shell=bash

# Tests call hack/ctr thousands of times: what it needs of this file starts no program.
HACK=$(cd "${BASH_SOURCE[0]%/*}/.." && pwd)
ROOT=${HACK%/*}
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
# The directory in which hack/build puts the programs.
NODE_BIN=$TARGET/node
export HACK ROOT TARGET NODE_BIN

# Progress goes to stderr: stdout is for results.
say() { printf '%s\n' "$*" >&2; }
die() {
    say "$(basename "$0"): $*"
    exit 1
}

# The comment block at the head of a script is its help text.
show_help() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0"; }

# without_links_to_sources DIRECTORY: the pages there are for readers who have no sources: the names of crates stay, and lead nowhere.
without_links_to_sources() { sed -i 's|\[\([^]]*\)\](\.\./crates/[^)]*)|\1|g' "$1"/*.md; }

need_root() { [ "$(id -u)" = 0 ] || die "must run as root (namespaces, mounts and cgroups)"; }

# need_rust: ends the script where the compiler is missing or too old. Debian's own cargo cannot even read Cargo.toml, and says
# that it "expected a boolean or an integer".
need_rust() {
    local wanted found
    command -v cargo >/dev/null && command -v rustc >/dev/null || die "Rust is missing: install it with rustup"
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml")
    found=$(cd "$ROOT" && rustc --version) || die "this Rust does not run: the error above says why"
    found=${found#rustc } found=${found%% *}
    [ "$(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1)" = "$wanted" ] ||
        die "needs Rust $wanted or later, and $(command -v rustc) is $found. A distribution's own is often too old:" \
            "install Rust with rustup, or update it: rustup update stable"
}

# A zombie counts as gone: not every init reaps at once.
alive() {
    local field status=''
    while read -r field status _; do
        [ "$field" != State: ] || break
    done 2>/dev/null <"/proc/$1/status" || return 1
    [ "$field" = State: ] && [ "$status" != Z ] && [ "$status" != X ]
}

# wait_until SECONDS WHAT COMMAND...: polls COMMAND until it succeeds, or ends the script with an error that names WHAT.
# Waits PODSHIM_PACE times longer on a machine that is so many times slower (hack/vm.d/e2e).
wait_until() {
    local deadline=$((SECONDS + $1 * ${PODSHIM_PACE:-1})) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || die "gave up waiting for $what"
        sleep 0.05
    done
}

# An instance (hack/containerd-up) is a directory; these files in it name its processes.
holder_pid() { pid_in "$1/holder.pid"; }
containerd_pid() { pid_in "$1/containerd.pid"; }
kubelet_pid() { pid_in "$1/kubelet.pid"; }

pid_in() {
    local pid
    { read -r pid <"$1"; } 2>/dev/null && echo "$pid"
}

# instance_path DIR: the search path of an instance: the shim under test, its release's own programs, the machine's.
instance_path() {
    echo "$(<"$1/bin"):$(<"$1/programs")/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}

# in_instance DIR COMMAND...: runs COMMAND in the mount and network namespace of an instance, with its search path.
in_instance() { (become_in_instance "$@"); }

# become_in_instance DIR COMMAND...: the same instead of the rest of the script.
become_in_instance() {
    local dir=$1 holder
    if ! holder=$(holder_pid "$dir") || ! alive "$holder"; then die "$dir: no instance is up there"; fi
    shift
    exec nsenter --target "$holder" --mount --net --wd=/ env "PATH=$(instance_path "$dir")" "$@"
}

# run_in_instance DIR NAME PROGRAM ARGUMENT...: in the background, with its log and pid in DIR/NAME.log and DIR/NAME.pid.
run_in_instance() {
    local dir=$1 name=$2
    shift 2
    # No job control here: setsid and nsenter exec without forking, so that $! is the program.
    setsid nsenter --target "$(holder_pid "$dir")" --mount --net --wd=/ \
        env "PATH=$(instance_path "$dir")" "$@" >>"$dir/$name.log" 2>&1 </dev/null &
    echo $! >"$dir/$name.pid"
    disown
}
