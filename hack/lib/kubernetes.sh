# The programs of Kubernetes 1.20: where they are kept, how they are built from Debian's source package, and what else a
# cluster needs of Debian. Sourced by hack/setup, which builds, and by hack/kubelet and hack/cluster, which only run them.
# Nothing here is installed. Needs lib/releases.sh.
# shellcheck shell=bash

# The last Debian release that has the full source of Kubernetes, and the compiler that builds it.
KUBERNETES_SUITE=bookworm KUBERNETES_COMPILER=1.19

# Where they are kept: in one directory for each version. The name is that of the first program that was kept there.
KUBERNETES=$RELEASES/kubelet

# What a cluster needs: built from the source, and from Debian's packages.
CLUSTER_BUILT=(kubelet kube-apiserver kube-controller-manager kube-scheduler kube-proxy)
CLUSTER_PACKAGES=(etcd-server kubernetes-client) CLUSTER_FETCHED=(etcd kubectl)

# What hack/conformance needs besides: Kubernetes' own tests, the program that runs them side by side, the programs of their
# images, and the files that those images have (a directory).
CONFORMANCE_BUILT=(e2e.test ginkgo agnhost nnp test-images)

# kubernetes_program NAME: its path. Fails if it was not built.
kubernetes_program() { realpath -qe "$KUBERNETES/current/$1"; }

kubelet_path() { kubernetes_program kubelet; }

# kubernetes_lacks NAME...: prints those that are missing.
kubernetes_lacks() {
    local program
    for program in "$@"; do kubernetes_program "$program" >/dev/null || echo "$program"; done
}

build_kubelet() { build_kubernetes kubelet; }

# build_cluster: builds and fetches what is missing of all that a cluster needs.
build_cluster() {
    fetch_cluster_packages
    build_kubernetes "${CLUSTER_BUILT[@]}"
}

# build_conformance: a cluster, and what tests it. All from one unpacked source.
build_conformance() {
    fetch_cluster_packages
    build_kubernetes "${CLUSTER_BUILT[@]}" "${CONFORMANCE_BUILT[@]}"
}

# build_kubernetes PROGRAM...: quick if they are built already. To build a newer version, remove the directory. A
# subshell, so that unfinished work is removed however it ends.
build_kubernetes() (
    mapfile -t programs < <(kubernetes_lacks "$@")
    [ ${#programs[@]} -gt 0 ] || exit 0
    need_package_tools
    begin=$SECONDS number=0
    mkdir -p "$KUBERNETES"
    scratch=$(mktemp -d "$KUBERNETES/build.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    say "setup: fetching the source of Kubernetes 1.20, and a compiler"
    attempt "$scratch" download_kubernetes "$scratch"
    version=$(basename "$scratch"/archives/kubernetes_*.dsc .dsc)
    mkdir -p "$KUBERNETES/$version"
    for program in "${programs[@]}"; do
        number=$((number + 1))
        say "setup: building $program ($number of ${#programs[@]}; some minutes, once), after $((SECONDS - begin)) s"
        attempt "$scratch" compile_kubernetes "$scratch" "$program"
        # Each when it is complete, so that a run that was interrupted goes on where it ended.
        mv "$scratch/$program" "$KUBERNETES/$version/"
        ln -sfn "$version" "$KUBERNETES/current"
    done
    say "setup: ${programs[*]}: built, after $((SECONDS - begin)) s"
)

# fetch_cluster_packages: etcd and kubectl, which Debian has as programs.
fetch_cluster_packages() (
    mapfile -t programs < <(kubernetes_lacks "${CLUSTER_FETCHED[@]}")
    [ ${#programs[@]} -gt 0 ] || exit 0
    need_package_tools
    mkdir -p "$KUBERNETES"
    scratch=$(mktemp -d "$KUBERNETES/fetch.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    say "setup: fetching ${CLUSTER_PACKAGES[*]} of Debian $KUBERNETES_SUITE"
    attempt "$scratch" download_packages "$scratch"
    # The client's package has the version of the source.
    version=kubernetes_$(basename "$scratch"/archives/kubernetes-client_*.deb | cut -d_ -f2)
    mkdir -p "$KUBERNETES/$version"
    for program in "${CLUSTER_FETCHED[@]}"; do mv "$scratch/root/usr/bin/$program" "$KUBERNETES/$version/"; done
    ln -sfn "$version" "$KUBERNETES/current"
)

need_package_tools() {
    local command
    for command in apt-get dpkg-deb dpkg-source; do
        command -v "$command" >/dev/null || die "$command is missing: Kubernetes cannot be built here"
    done
}

# attempt DIRECTORY FUNCTION [ARGUMENT...]: shows its output only if it fails.
attempt() {
    local log=$1/log
    shift
    "$@" >"$log" 2>&1 || {
        tail -n 50 "$log" >&2
        die "failed: $*"
    }
}

# download_packages DIRECTORY: their files in DIRECTORY/root.
download_packages() {
    local directory=$1 options
    private_apt "$KUBERNETES_SUITE" "$directory" || return
    apt-get "${options[@]}" update &&
        (cd "$directory/archives" && apt-get "${options[@]}" download "${CLUSTER_PACKAGES[@]}") &&
        extract_archives "$directory"
}

# download_kubernetes DIRECTORY: the source in DIRECTORY/go, the compiler in DIRECTORY/root.
download_kubernetes() {
    local directory=$1 options
    private_apt "$KUBERNETES_SUITE" "$directory" || return
    sed -i 's/^Types:.*/Types: deb deb-src/' "$directory/sources/debian.sources"
    sed -i 's/^deb \(.*\)/&\ndeb-src \1/' "$directory/sources/debian.list"
    apt-get "${options[@]}" update &&
        apt-get "${options[@]}" --no-install-recommends --download-only --yes install "golang-$KUBERNETES_COMPILER-go" &&
        (cd "$directory/archives" && apt-get "${options[@]}" --download-only source kubernetes) || return
    extract_archives "$directory" || return
    mkdir -p "$directory/go/src/k8s.io" &&
        dpkg-source --no-check --extract "$directory"/archives/kubernetes_*.dsc "$directory/go/src/k8s.io/kubernetes"
}

# in_kubernetes DIRECTORY COMMAND...: in the source, with the compiler's settings. GOGC: the compiler uses more memory,
# and less time for garbage collection.
in_kubernetes() (
    local directory=$1 goroot=$1/root/usr/lib/go-$KUBERNETES_COMPILER
    shift
    cd "$directory/go/src/k8s.io/kubernetes" || return
    nice env -i "PATH=$goroot/bin:$PATH" "HOME=$directory" "GOROOT=$goroot" "GOPATH=$directory/go" \
        "GOCACHE=$directory/gocache" "GOTMPDIR=$directory" GO111MODULE=off CGO_ENABLED=0 GOGC=400 "$@"
)

# compile_kubernetes DIRECTORY PROGRAM: DIRECTORY/PROGRAM. Without cloud providers, docker and cgo, which no test needs.
compile_kubernetes() {
    local directory=$1 program=$2
    case $program in
    e2e.test)
        # The tests of cloud providers are in the same program.
        generate_bindata "$directory" &&
            TAGS=dockerless go_kubernetes "$directory" test -vet=off -c -o "$directory/$program" ./test/e2e
        ;;
    ginkgo) go_kubernetes "$directory" build -o "$directory/$program" ./vendor/github.com/onsi/ginkgo/ginkgo ;;
    agnhost) go_kubernetes "$directory" build -o "$directory/$program" ./test/images/agnhost ;;
    nnp) go_kubernetes "$directory" build -o "$directory/$program" ./test/images/nonewprivs ;;
    test-images) cp -r "$directory/go/src/k8s.io/kubernetes/test/images" "$directory/$program" ;;
    kube-apiserver)
        generate_openapi "$directory" && go_kubernetes "$directory" build -o "$directory/$program" "./cmd/$program"
        ;;
    *) go_kubernetes "$directory" build -o "$directory/$program" "./cmd/$program" ;;
    esac
}

# go_kubernetes DIRECTORY COMMAND ARGUMENT...: the compiler. The programs say the version of the package.
go_kubernetes() {
    local directory=$1 command=$2 version
    shift 2
    version=$(sed -nE 's/^Version: (.*really)?([0-9.]+)-.*/v\2/p' "$directory"/archives/kubernetes_*.dsc)
    in_kubernetes "$directory" go "$command" -tags "${TAGS:-providerless dockerless}" \
        -ldflags "-s -w -X k8s.io/kubernetes/vendor/k8s.io/component-base/version.gitVersion=$version" "$@"
}

# generate_bindata DIRECTORY: the source file of the tests that holds their data, which the package does not have. As the
# source's own hack/generate-bindata.sh does it.
generate_bindata() {
    in_kubernetes "$1" go build -o "$1/go-bindata" ./vendor/github.com/go-bindata/go-bindata/go-bindata &&
        in_kubernetes "$1" "$1/go-bindata" -nometadata -o test/e2e/generated/bindata.go -pkg generated \
            -ignore .jpg -ignore .png -ignore .md -ignore 'BUILD(\.bazel)?' \
            test/conformance/testdata/... test/e2e/testing-manifests/... test/e2e_node/testing-manifests/... \
            test/images/... test/fixtures/...
}

# generate_openapi DIRECTORY: the one source file of the API server that the package does not have. As the source's own
# Makefile.generated_files does it, which also compares the report with the known one.
generate_openapi() {
    local directory=$1 source=$1/go/src/k8s.io/kubernetes inputs
    in_kubernetes "$directory" go build -o "$directory/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen || return
    # With a slash at the end grep follows the links in vendor/k8s.io.
    inputs=$(cd "$source" &&
        grep -rl --include='*.go' '^// *+k8s:openapi-gen=' pkg cmd plugin vendor/k8s.io/*/ |
        grep -v -e /code-generator/ -e /sample-apiserver/ | xargs -n 1 dirname | LC_ALL=C sort -u |
            sed 's,^,k8s.io/kubernetes/,' | paste -sd,)
    in_kubernetes "$directory" "$directory/openapi-gen" --logtostderr -i "$inputs" \
        -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
        -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$directory/violations" &&
        diff "$directory/violations" "$source/api/api-rules/violation_exceptions.list"
}
