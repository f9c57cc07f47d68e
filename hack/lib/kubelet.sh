# The kubelet of Kubernetes 1.20: where it is kept, and how it is built from Debian's source package.
# Sourced by hack/setup, which builds, and by hack/kubelet, which only runs it. Nothing here is installed.
# Needs lib/releases.sh.
# shellcheck shell=bash

# The last Debian release that has the full source of a kubelet, and the compiler that builds it.
KUBELET_SUITE=bookworm KUBELET_COMPILER=1.19

# kubelet_path: the program. Fails if it was not built.
kubelet_path() { realpath -qe "$RELEASES/kubelet/current/kubelet"; }

# build_kubelet: quick if the kubelet is built already. To build a newer one, remove the directory. A subshell, so that
# unfinished work is removed however it ends.
build_kubelet() (
    ! kubelet_path >/dev/null || exit 0
    for command in apt-get dpkg-deb dpkg-source; do
        command -v "$command" >/dev/null || die "$command is missing: the kubelet cannot be built here"
    done
    directory=$RELEASES/kubelet begin=$SECONDS
    mkdir -p "$directory"
    scratch=$(mktemp -d "$directory/build.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    say "setup: fetching the source of kubelet 1.20, and a compiler"
    attempt download_kubelet "$scratch"
    say "setup: building the kubelet (some minutes, once)"
    attempt compile_kubelet "$scratch"
    version=$(basename "$scratch"/archives/kubernetes_*.dsc .dsc)
    rm -rf "${directory:?}/$version"
    mkdir "$directory/$version"
    mv "$scratch/kubelet" "$directory/$version/"
    # Only now, so that the next run finds nothing unfinished if this one is interrupted.
    ln -sfn "$version" "$directory/current"
    say "setup: the kubelet is built, after $((SECONDS - begin)) s"
)

# attempt FUNCTION DIRECTORY: shows its output only if it fails.
attempt() {
    "$@" >"$2/log" 2>&1 || {
        tail -n 50 "$2/log" >&2
        die "failed: $1"
    }
}

# download_kubelet DIRECTORY: the source in DIRECTORY/go, the compiler in DIRECTORY/root.
download_kubelet() {
    local directory=$1 options
    private_apt "$KUBELET_SUITE" "$directory" || return
    sed -i 's/^Types:.*/Types: deb deb-src/' "$directory/sources/debian.sources"
    sed -i 's/^deb \(.*\)/&\ndeb-src \1/' "$directory/sources/debian.list"
    apt-get "${options[@]}" update &&
        apt-get "${options[@]}" --no-install-recommends --download-only --yes install "golang-$KUBELET_COMPILER-go" &&
        (cd "$directory/archives" && apt-get "${options[@]}" --download-only source kubernetes) || return
    extract_archives "$directory" || return
    mkdir -p "$directory/go/src/k8s.io" &&
        dpkg-source --no-check --extract "$directory"/archives/kubernetes_*.dsc "$directory/go/src/k8s.io/kubernetes"
}

# compile_kubelet DIRECTORY: DIRECTORY/kubelet, in five minutes of one processor. Without cloud providers, docker and
# cgo, which no test needs.
compile_kubelet() (
    local directory=$1 version goroot
    version=$(sed -nE 's/^Version: (.*really)?([0-9.]+)-.*/v\2/p' "$directory"/archives/kubernetes_*.dsc)
    goroot=$directory/root/usr/lib/go-$KUBELET_COMPILER
    cd "$directory/go/src/k8s.io/kubernetes" || return
    # GOGC: the compiler uses more memory, and less time for garbage collection.
    nice env -i "PATH=$PATH" "HOME=$directory" "GOROOT=$goroot" "GOPATH=$directory/go" "GOCACHE=$directory/gocache" "GOTMPDIR=$directory" \
        GO111MODULE=off CGO_ENABLED=0 GOGC=400 "$goroot/bin/go" build -tags 'providerless dockerless' \
        -ldflags "-s -w -X k8s.io/kubernetes/vendor/k8s.io/component-base/version.gitVersion=$version" \
        -o "$directory/kubelet" ./cmd/kubelet
)
