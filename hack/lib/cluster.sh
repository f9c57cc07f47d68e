# The control plane of hack/cluster: its network, certificates and processes. Needs lib/common.sh and lib/kubernetes.sh.
# In a cluster's directory are: certificates (pki), a kubeconfig, a log and a pid for each process, `nodes` with the
# number of nodes.
# shellcheck shell=bash disable=SC2034 # variables for the caller

# The network of the control plane and its nodes, in namespaces of their own: every cluster has the same addresses.
CONTROL_ADDRESS=10.87.0.1 SERVICES=10.96.0.0/16 PODS=10.88.0.0/16
API_SERVER=https://$CONTROL_ADDRESS:6443

node_address() { echo "10.87.0.$((10 + $1))"; }
node_pods() { echo "10.88.$1.0/24"; }

# Beside the cluster's directory: the instance's cgroup has the directory's last name, which must be the only one of that
# name on the machine.
node_dir() { echo "$1-node-$2"; }

# in_control DIR COMMAND...: in the namespaces of the control plane, in the same working directory.
in_control() {
    local dir=$1 holder
    if ! holder=$(holder_pid "$dir") || ! alive "$holder"; then die "$dir: no cluster is up there"; fi
    shift
    nsenter --target "$holder" --mount --net "--wd=$PWD" "$@"
}

# kubectl DIR ARGUMENT...: as the cluster's administrator. HOME: it keeps a cache there.
kubectl() {
    local dir=$1
    shift
    in_control "$dir" env "HOME=$dir" "KUBECONFIG=$dir/admin.kubeconfig" "$(kubernetes_program kubectl)" "$@"
}

# start_network DIR: namespaces with a bridge for the nodes. etcd's files are in memory, as etcd waits for the disk at
# each write.
start_network() {
    local dir=$1
    mkdir -p "$dir/etcd"
    rm -f "$dir/network-ready"
    setsid unshare --mount --net --propagation private sh -c '
        set -e
        mount -t tmpfs -o mode=0700 podshim-cluster "$1/etcd"
        ip link set lo up
        ip link add name cluster0 type bridge
        ip addr add "$2/24" dev cluster0
        ip link set cluster0 up
        touch "$1/network-ready"
        exec sleep infinity' sh "$dir" "$CONTROL_ADDRESS" >>"$dir/network.log" 2>&1 </dev/null &
    echo $! >"$dir/holder.pid"
    disown
    wait_until 10 "the control plane's network" test -e "$dir/network-ready"
}

# make_certificates DIR NODES: a certificate authority, and a certificate for each party.
make_certificates() (
    dir=$1 nodes=$2
    umask 077
    mkdir -p "$dir/pki"
    cd "$dir/pki" || return
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -days 30 \
        -subj /CN=podshim-cluster 2>/dev/null || return
    # Tokens of service accounts need a key of RSA, or one of SEC1's form, which openssl no longer writes by itself.
    openssl genrsa -out accounts.key 2048 2>/dev/null && openssl rsa -in accounts.key -pubout -out accounts.pub 2>/dev/null
    names="IP:$CONTROL_ADDRESS,IP:127.0.0.1,IP:10.96.0.1,DNS:localhost"
    certificate kube-apiserver /CN=kube-apiserver "$names,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
    certificate kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
    certificate admin /O=system:masters/CN=admin
    certificate kube-controller-manager /CN=system:kube-controller-manager
    certificate kube-scheduler /CN=system:kube-scheduler
    for node in $(seq "$nodes"); do
        certificate "node-$node" "/O=system:nodes/CN=system:node:node-$node" "IP:$(node_address "$node"),DNS:node-$node"
    done
    for user in admin kube-controller-manager kube-scheduler $(seq -f node-%g "$nodes"); do
        kubeconfig "$dir" "$user" >"$dir/$user.kubeconfig"
    done
)

# certificate NAME SUBJECT [ALTERNATIVE_NAMES]: NAME.key and NAME.crt, signed by the authority in this directory.
certificate() {
    local extensions="extendedKeyUsage=clientAuth,serverAuth"
    [ -z "${3:-}" ] || extensions+=$'\n'"subjectAltName=$3"
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.csr" -subj "$2" 2>/dev/null &&
        openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -out "$1.crt" -days 30 \
            -extfile <(echo "$extensions") 2>/dev/null || die "openssl makes no certificate for $1"
    rm "$1.csr"
}

# kubeconfig DIR USER
kubeconfig() {
    cat <<CONFIG
apiVersion: v1
kind: Config
clusters:
  - name: podshim
    cluster: {server: "$API_SERVER", certificate-authority: "$1/pki/ca.crt"}
users:
  - name: "$2"
    user: {client-certificate: "$1/pki/$2.crt", client-key: "$1/pki/$2.key"}
contexts:
  - name: podshim
    context: {cluster: podshim, user: "$2"}
current-context: podshim
CONFIG
}

# run_in_control DIR NAME ARGUMENT...: a program in the background, unless it runs already. Its log and pid are in
# DIR/NAME.log and DIR/NAME.pid.
run_in_control() {
    local dir=$1 name=$2 pid
    shift 2
    ! { pid=$(cat "$dir/$name.pid" 2>/dev/null) && alive "$pid"; } || return 0
    setsid nsenter --target "$(holder_pid "$dir")" --mount --net --wd=/ \
        "$(kubernetes_program "$name")" "$@" >>"$dir/$name.log" 2>&1 </dev/null &
    echo $! >"$dir/$name.pid"
    disown
}

# start_control_plane DIR: etcd, then what talks to it.
start_control_plane() {
    local dir=$1 pki=$1/pki name
    run_in_control "$dir" etcd --data-dir "$dir/etcd/data" --listen-client-urls http://127.0.0.1:2379 \
        --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 \
        --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster default=http://127.0.0.1:2380
    run_in_control "$dir" kube-apiserver --etcd-servers=http://127.0.0.1:2379 --cert-dir="$pki" \
        --advertise-address="$CONTROL_ADDRESS" --secure-port=6443 --insecure-port=0 \
        --tls-cert-file="$pki/kube-apiserver.crt" --tls-private-key-file="$pki/kube-apiserver.key" \
        --client-ca-file="$pki/ca.crt" --kubelet-certificate-authority="$pki/ca.crt" \
        --kubelet-client-certificate="$pki/kubelet-client.crt" --kubelet-client-key="$pki/kubelet-client.key" \
        --kubelet-preferred-address-types=InternalIP --service-cluster-ip-range="$SERVICES" \
        --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$pki/accounts.pub" \
        --service-account-signing-key-file="$pki/accounts.key" --authorization-mode=Node,RBAC \
        --enable-admission-plugins=NodeRestriction --allow-privileged=true
    wait_until 60 "the API server" kubectl "$dir" get --raw /readyz
    run_in_control "$dir" kube-controller-manager "$(authentication "$dir" kube-controller-manager)" \
        --kubeconfig="$dir/kube-controller-manager.kubeconfig" \
        --authorization-kubeconfig="$dir/kube-controller-manager.kubeconfig" \
        --leader-elect=false --bind-address=127.0.0.1 --port=0 --cert-dir="$pki" --root-ca-file="$pki/ca.crt" \
        --service-account-private-key-file="$pki/accounts.key" --use-service-account-credentials \
        --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key"
    run_in_control "$dir" kube-scheduler "$(authentication "$dir" kube-scheduler)" \
        --kubeconfig="$dir/kube-scheduler.kubeconfig" --authorization-kubeconfig="$dir/kube-scheduler.kubeconfig" \
        --leader-elect=false --bind-address=127.0.0.1 --port=0 --cert-dir="$pki"
}

authentication() { echo "--authentication-kubeconfig=$1/$2.kubeconfig"; }

# stop_control_plane DIR: ends every process in the control plane's namespaces, a kubectl of a user too. Found by a mount
# that only these have, never by name or by a pid that may be another process's by now.
stop_control_plane() {
    local dir=$1 deadline=$((SECONDS + 15)) pids
    while mapfile -t pids < <(control_processes "$dir") && [ ${#pids[@]} -gt 0 ]; do
        kill -KILL "${pids[@]}" 2>/dev/null || true
        [ "$SECONDS" -lt "$deadline" ] || die "these processes do not die: ${pids[*]}"
        sleep 0.05
    done
}

control_processes() {
    local pid
    # One search for all, as a cluster's machine has hundreds of processes. Some end meanwhile.
    { grep -lsF " $1/etcd " /proc/[0-9]*/mountinfo || true; } | cut -d/ -f3 | while read -r pid; do
        ! alive "$pid" || echo "$pid"
    done
}
