#!/usr/bin/env bash
# Runs etcd, the API server, the scheduler and the controller manager on this machine, on Linux or in Git Bash on Windows:
#
#   hack/windows/control-plane.sh DIRECTORY NODE
#
# The programs are in DIRECTORY/bin. It writes certificates to DIRECTORY/pki, logs to DIRECTORY/logs, and the kubeconfigs of
# an administrator (admin.kubeconfig) and of the kubelet of NODE (node.kubeconfig). All ports are on 127.0.0.1. It ends
# when the file DIRECTORY/stop appears, and fails if one of the programs ends before that.
set -euo pipefail

cd "$1"
node=$2
# Git Bash must not translate arguments that look like paths.
export MSYS_NO_PATHCONV=1 MSYS2_ARG_CONV_EXCL='*'

port=${WINPOOL_PORT:-26443}
server=https://127.0.0.1:$port
etcd=http://127.0.0.1:$((port + 1))
peer=http://127.0.0.1:$((port + 2))
pids=()

# Nothing of this cluster is kept, so nothing has to end in order.
stop() {
    [ ${#pids[@]} -eq 0 ] || kill -KILL "${pids[@]}" 2> /dev/null || true
    wait 2> /dev/null
}
trap stop EXIT
trap 'exit 1' INT TERM

new_key() {
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "pki/$1.key" 2> pki/openssl.log
}

# Creates the authority that signs all certificates, and the key that signs the tokens of service accounts.
authority() {
    cat > pki/openssl.cnf << 'END'
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, digitalSignature
[server]
extendedKeyUsage = serverAuth
subjectAltName = IP:127.0.0.1, DNS:localhost, DNS:kubernetes.default.svc
[client]
extendedKeyUsage = clientAuth
END
    new_key sa
    openssl pkey -in pki/sa.key -pubout -out pki/sa.pub
    new_key ca
    openssl req -new -x509 -config pki/openssl.cnf -extensions ca -days 7 -subj /CN=winpool-windows -key pki/ca.key -out pki/ca.crt
}

# certificate NAME SUBJECT EXTENSIONS
certificate() {
    new_key "$1"
    openssl req -new -config pki/openssl.cnf -subj "$2" -key "pki/$1.key" -out "pki/$1.csr"
    openssl x509 -req -days 7 -in "pki/$1.csr" -CA pki/ca.crt -CAkey pki/ca.key -CAcreateserial \
        -extfile pki/openssl.cnf -extensions "$3" -out "pki/$1.crt" 2> pki/openssl.log
}

encoded() {
    base64 < "$1" | tr -d '\r\n'
}

# kubeconfig NAME USER [GROUP]
kubeconfig() {
    certificate "$1" "${3:+/O=$3}/CN=$2" client
    cat > "$1.kubeconfig" << END
apiVersion: v1
kind: Config
current-context: winpool
contexts: [{name: winpool, context: {cluster: winpool, user: $1}}]
clusters: [{name: winpool, cluster: {server: "$server", certificate-authority-data: $(encoded pki/ca.crt)}}]
users: [{name: $1, user: {client-certificate-data: $(encoded "pki/$1.crt"), client-key-data: $(encoded "pki/$1.key")}}]
END
}

# start NAME ARGUMENT...
start() {
    local name=$1
    shift
    "bin/$name" "$@" > "logs/$name.log" 2>&1 < /dev/null &
    pids+=($!)
    echo "$name: process $!"
}

# Fails with the end of its log if a program has ended.
check() {
    local i names=(etcd kube-apiserver kube-scheduler kube-controller-manager)
    for i in "${!pids[@]}"; do
        kill -0 "${pids[$i]}" 2> /dev/null && continue
        echo "${names[$i]} has ended:" >&2
        tail -n 20 "logs/${names[$i]}.log" >&2
        exit 1
    done
}

# wait_for WHAT COMMAND...: tries the command for 2 minutes.
wait_for() {
    local what=$1 end=$((SECONDS + 120))
    shift
    until "$@" > /dev/null 2>&1; do
        check
        [ $SECONDS -lt $end ] || { echo "timeout: $what" >&2; exit 1; }
        sleep 1
    done
    echo "$what"
}

rm -rf pki etcd ready stop ./*.kubeconfig
mkdir -p pki logs
authority
certificate server /CN=kube-apiserver server
kubeconfig admin admin system:masters
kubeconfig scheduler system:kube-scheduler
kubeconfig controller-manager system:kube-controller-manager
kubeconfig node "system:node:$node" system:nodes

start etcd --name=winpool --data-dir=etcd --unsafe-no-fsync --log-level=warn \
    --listen-client-urls="$etcd" --advertise-client-urls="$etcd" \
    --listen-peer-urls="$peer" --initial-advertise-peer-urls="$peer" --initial-cluster="winpool=$peer"
# A loopback address may not stand in an Endpoints object.
start kube-apiserver --etcd-servers="$etcd" --secure-port="$port" --bind-address=127.0.0.1 --advertise-address=127.0.0.1 \
    --endpoint-reconciler-type=none --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
    --allow-privileged=true --service-cluster-ip-range=10.0.0.0/24 --cert-dir=pki \
    --tls-cert-file=pki/server.crt --tls-private-key-file=pki/server.key --client-ca-file=pki/ca.crt \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=pki/sa.pub \
    --service-account-signing-key-file=pki/sa.key
wait_for "the API server is ready" bin/kubectl --kubeconfig=admin.kubeconfig get --raw=/readyz

component=(--bind-address=127.0.0.1 --tls-cert-file=pki/server.crt --tls-private-key-file=pki/server.key --leader-elect=false)
start kube-scheduler "${component[@]}" --secure-port=$((port + 3)) --kubeconfig=scheduler.kubeconfig
start kube-controller-manager "${component[@]}" --secure-port=$((port + 4)) --kubeconfig=controller-manager.kubeconfig \
    --service-account-private-key-file=pki/sa.key --root-ca-file=pki/ca.crt --use-service-account-credentials=true
wait_for "pods can be created" bin/kubectl --kubeconfig=admin.kubeconfig get serviceaccount default

touch ready
until [ -e stop ]; do
    check
    sleep 1
done
