# What hack/conformance does with Kubernetes' own tests: which run, how, and what their reports say. Needs lib/common.sh,
# lib/kubernetes.sh and lib/cluster.sh.
# shellcheck shell=bash

SUITE='\[Conformance\]|\[sig-node\]'

# network_config DIR SUBNET: the network of a node's pods. Other than that of hack/containerd-up it has ports of the host. Each
# pod has a link of its own to the node, not to a bridge, so that a pod can reach itself through a Service.
network_config() {
    cat <<CONFIG
{
  "cniVersion": "0.4.0",
  "name": "podshim-test",
  "plugins": [
    {
      "type": "ptp",
      "ipam": {
        "type": "host-local",
        "dataDir": "$1/addresses",
        "ranges": [[{"subnet": "$2"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}
  ]
}
CONFIG
}

# The CRI learns of an import through an event and then labels the image: only now may a pod name it.
images_known() {
    local images
    images=$("$HACK/ctr" --dir "$1" -n k8s.io images ls | grep '^podshim[.]test/') &&
        grep -q '/agnhost:' <<<"$images" && ! grep -v io.cri-containerd.image=managed <<<"$images"
}

# list_specs DIR FOCUS: the names of those that run in DIR/specs, of those that do not in DIR/skipped, after the reason.
list_specs() {
    local dir=$1 focus=$2 reason expression log=$1/list.log
    rm -rf "$dir/list"
    suite "$dir" "$(kubernetes_program e2e.test)" -ginkgo.dryRun -ginkgo.noColor "--report-dir=$dir/list" \
        --host=http://127.0.0.1:1 >"$log" 2>&1 || { tail "$log" >&2 && die "the tests do not say their names"; }
    names_of_report "$dir"/list/junit_*.xml | cut -d' ' -f2- | grep -E -e "$SUITE" | grep -E -e "$focus" | LC_ALL=C sort -u >"$dir/specs"
    : >"$dir/skipped"
    while IFS= read -r line; do
        [[ $line != '#'* && $line = *': '* ]] || continue
        reason=${line%%: *} expression=${line#*: }
        grep -E -e "$expression" "$dir/specs" | sed "s|^|$reason: |" >>"$dir/skipped" || true
        grep -vE -e "$expression" "$dir/specs" >"$dir/specs.rest" || true
        mv "$dir/specs.rest" "$dir/specs"
    done <"$HACK/conformance.d/skip"
    [ -s "$dir/specs" ] || die "no spec has such a name, or all are skipped"
}

# suite HOME COMMAND...: without the caller's environment, as proxies and settings of Kubernetes would change what the tests do.
suite() {
    local home=$1
    shift
    env -i "PATH=$PATH" "HOME=$home" "KUBE_TEST_REPO_LIST=$HACK/conformance.d/repositories.yaml" "$@"
}

# run_part CLUSTER WORK PART: the specs of the file WORK/PART, with their reports in WORK/PART.reports. Most of a test's time is
# waiting, so there may be more at the same time than processors.
run_part() {
    local cluster=$1 work=$2 part=$3 runner options
    runner=("$(kubernetes_program ginkgo)" "-nodes=$((3 * $(nproc)))" -noColor)
    [ "$part" != serial ] || runner=("$(kubernetes_program ginkgo)" -noColor)
    options=("--kubeconfig=$cluster/admin.kubeconfig" "--kubectl-path=$(kubernetes_program kubectl)" --provider=skeleton
        --num-nodes=2 --container-runtime=remote --disable-log-dump "--report-dir=$work/$part.reports"
        "--e2e-output-dir=$work")
    # The runner exits with 1 if a spec fails: the reports say which. nsenter's own --wd sets a directory outside the new mount
    # tree, which Go programs refuse.
    suite "$work" nsenter --target "$(holder_pid "$cluster")" --mount --net env --chdir=/ "${runner[@]}" \
        "-focus=$(expression_of "$work/$part")" "$(kubernetes_program e2e.test)" -- "${options[@]}" \
        >"$work/$part.log" 2>&1 </dev/null || true
    [ -n "$(ls "$work/$part.reports" 2>/dev/null)" ] || {
        tail -n 30 "$work/$part.log" >&2
        die "the tests wrote no report"
    }
}

# expression_of FILE: matches the names in it, and no others.
expression_of() {
    echo "^Kubernetes e2e suite (\\[Top Level\\] )?($(sed -e 's/[][\\.*^$+?(){}|]/\\&/g' "$1" | paste -sd'|'))\$"
}

# names_of_report FILE...: `passed name`, `failed name` or `skipped name` of each spec in reports of JUnit's form.
names_of_report() {
    awk '
        /<testcase / {
            name = $0
            sub(/.*<testcase name="/, "", name)
            sub(/" classname=.*/, "", name)
            gsub(/&#34;/, "\"", name); gsub(/&#39;/, "\047", name); gsub(/&lt;/, "<", name); gsub(/&gt;/, ">", name)
            gsub(/&amp;/, "\\&", name)
            state = "passed"
        }
        /<failure/ { state = "failed" }
        /<skipped/ { state = "skipped" }
        /<\/testcase>/ { print state, name }' "$@"
}

# results_of WORK: of a run that ended. What the suite itself did before and after the specs counts as well.
results_of() { names_of_report "$1"/*.reports/junit_*.xml | grep -v '^skipped ' | LC_ALL=C sort -u; }

# differing ONE OTHER: the names of specs whose results differ. One that skipped itself in only one run differs too.
differing() { LC_ALL=C comm -3 "$1" "$2" | sed -E 's/^\t?(passed|failed) //' | LC_ALL=C sort -u; }

# count DIR STATE RUNTIME SPEC: how often.
count() { cat "$1/$3" "$1/$3"-again-[0-9]* 2>/dev/null | grep -cxF "$2 $4" || true; }

tally() {
    echo "runc: $(count "$1" passed runc "$2") passed, $(count "$1" failed runc "$2") failed;" \
        "podshim: $(count "$1" passed podshim "$2") passed, $(count "$1" failed podshim "$2") failed"
}

# verdict DIR SPEC: worse, better, or flaky, after all runs. Worse: podshim never passed what runc passed, or it failed again
# what runc never failed.
verdict() {
    local runc_passed runc_failed podshim_passed podshim_failed
    runc_passed=$(count "$1" passed runc "$2") runc_failed=$(count "$1" failed runc "$2")
    podshim_passed=$(count "$1" passed podshim "$2") podshim_failed=$(count "$1" failed podshim "$2")
    if [ "$podshim_passed" = 0 ] || { [ "$runc_failed" = 0 ] && [ "$podshim_failed" -gt 1 ]; }; then
        echo worse
    elif [ "$runc_passed" = 0 ] || { [ "$podshim_failed" = 0 ] && [ "$runc_failed" -gt 1 ]; }; then
        echo better
    else
        echo flaky
    fi
}
