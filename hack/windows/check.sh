#!/usr/bin/env bash
# Installs winpool in a cluster with one Windows node, checks what it does there, and removes it. It runs on Linux, and in
# Git Bash on Windows:
#
#   hack/windows/check.sh DIRECTORY NODE BUILD
#
# control-plane.sh has written admin.kubeconfig to DIRECTORY, and winpool, winpool-operator and kubectl are in
# DIRECTORY/bin. BUILD is the build of the node's kernel, such as 20348. The report is DIRECTORY/logs/report.md. A check
# "not run" does not fail: the network of the machine prevented it.
set -euo pipefail

directory=$(cd "$1" && { pwd -W 2> /dev/null || pwd; })
node=$2
build=$3
PATH=$(cd "$1/bin" && pwd):$PATH
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# Git Bash must not translate arguments that look like paths.
export MSYS_NO_PATHCONV=1 MSYS2_ARG_CONV_EXCL='*' MSYS2_ENV_CONV_EXCL=KUBECONFIG
export KUBECONFIG=$directory/admin.kubeconfig

logs=$directory/logs
report=$logs/report.md
namespace=winpool-windows
handler=runhcs-wcow-process
# Windows Server pulls and unpacks an image in minutes, not seconds.
pull=600
operator=
failures=0

# The image of the node's build, and one of a build that the node cannot run.
case $build in
    17763) version=2019 tag=1809 wrong=ltsc2022 ;;
    20348) version=2022 tag=ltsc2022 wrong=ltsc2025 ;;
    26100) version=2025 tag=ltsc2025 wrong=1809 ;;
    *) echo "no container image of Windows is known for build $build" >&2; exit 1 ;;
esac
nanoserver=mcr.microsoft.com/windows/nanoserver
host_process=mcr.microsoft.com/oss/kubernetes/windows-host-process-containers-base-image:v1.0.0
class=windows-$version

stop_operator() {
    [ -n "$operator" ] || return 0
    kill "$operator" 2> /dev/null || true
    wait "$operator" 2> /dev/null || true
    operator=
}

# Writes the objects of the cluster to the logs.
dump() {
    local kinds=nodes,pods,events,runtimeclasses.node.k8s.io,windowspools.winpool.dev
    [ -e "$logs/cluster.yaml" ] || kubectl get "$kinds" -A -o yaml > "$logs/cluster.yaml" || true
}

finish() {
    dump
    stop_operator
}
trap finish EXIT

# record RESULT CHECK [WHY]
record() {
    echo "$1: $2${3:+: $3}"
    printf '| %s | %s%s |\n' "$2" "$1" "${3:+: $(tr '\r\n|' '   ' <<< "$3")}" >> "$report"
    [ "$1" != FAILED ] || failures=$((failures + 1))
}

# expect CHECK EXPECTED ACTUAL
expect() {
    if [ "$2" = "$3" ]; then record passed "$1"; else record FAILED "$1" "expected '$2', got '$3'"; fi
}

# expect_text CHECK PATTERN TEXT
expect_text() {
    if grep -Eq -- "$2" <<< "$3"; then record passed "$1"; else record FAILED "$1" "no '$2' in: $3"; fi
}

# within SECONDS COMMAND...: tries the command until it succeeds.
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 1
    done
}

# field OBJECT JSONPATH: empty if there is no such object.
field() {
    kubectl get "$1" -n "$namespace" -o "jsonpath=$2" --ignore-not-found
}

has_build_label() {
    [ "$(field "node/$node" '{.metadata.labels.node\.kubernetes\.io/windows-build}')" = "10.0.$build" ]
}

# A node has a taint until the controller manager has seen that it is Ready.
has_no_taints() {
    [ -z "$(field "node/$node" '{.spec.taints}')" ]
}

# create_pod NAME IMAGE SPEC...: each SPEC is a line of the pod's specification.
create_pod() {
    local name=$1 image=$2
    shift 2
    {
        cat << END
apiVersion: v1
kind: Pod
metadata: {name: $name}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  containers:
  - {name: main, image: "$image", command: [cmd, /c, ver]}
END
        printf '  %s\n' "$@"
    } | kubectl create -n "$namespace" -f -
}

# Prints what the pod waits for, or why it failed.
message() {
    field "pod/$1" '{.status.reason} {.status.message} {.status.containerStatuses[*].state.waiting.reason} {.status.containerStatuses[*].state.waiting.message} {.status.containerStatuses[*].state.terminated.message}'
    kubectl get events -n "$namespace" --field-selector="involvedObject.name=$1,type=Warning" -o 'jsonpath={range .items[*]} {.reason}: {.message}{end}'
}

# True for a message about the network of the machine, or between it and the registry.
is_network() {
    grep -Eq 'dial tcp|no such host|i/o timeout|TLS handshake|connection reset|toomanyrequests|failed to setup network' <<< "$1"
}

has_started() {
    case $(field "pod/$1" '{.status.phase}') in Running | Succeeded | Failed) return 0 ;; esac
    # A pod whose image does not exist for the node waits for ever.
    grep -q 'no match for platform' <<< "$(message "$1")"
}

# expect_start CHECK POD
expect_start() {
    within $pull has_started "$2" || true
    local phase why
    phase=$(field "pod/$2" '{.status.phase}')
    why=$(message "$2")
    case $phase in
        Running | Succeeded) record passed "$1" ;;
        *) if is_network "$why"; then record "not run" "$1" "$why"; else record FAILED "$1" "$phase $why"; fi ;;
    esac
}

has_failed() {
    [ "$(field "pod/$1" '{.status.phase}')" = Failed ] ||
        grep -Eq 'ErrImagePull|ImagePullBackOff|CreateContainerError|RunContainerError|FailedCreatePodSandBox' <<< "$(message "$1")"
}

is_refused() {
    [ "$(field "pod/$1" '{.status.reason}')" = PodOSNotSupported ]
}

is_unschedulable() {
    grep -q 'untolerated taint' <<< "$(field "pod/$1" '{.status.conditions[*].message}')"
}

# Writes a kubeconfig with the token of the operator's ServiceAccount: the operator has its own permissions only.
operator_kubeconfig() {
    local cluster='{.clusters[0].cluster'
    cat << END
apiVersion: v1
kind: Config
current-context: operator
contexts: [{name: operator, context: {cluster: winpool, user: operator, namespace: winpool-system}}]
clusters:
- name: winpool
  cluster:
    server: $(kubectl config view --raw -o "jsonpath=$cluster.server}")
    certificate-authority-data: $(kubectl config view --raw -o "jsonpath=$cluster.certificate-authority-data}")
users: [{name: operator, user: {token: "$(kubectl create token winpool -n winpool-system --duration=4h)"}}]
END
}

install() {
    kubectl apply -k hack/windows
    operator_kubeconfig > "$directory/operator.kubeconfig"
    KUBECONFIG=$directory/operator.kubeconfig winpool-operator run --listen 127.0.0.1:26450 > "$logs/winpool-operator.log" 2>&1 < /dev/null &
    operator=$!
    kubectl apply -f examples/windowspool.yaml
    if kubectl wait --for=condition=Ready winpool/default --timeout=120s; then
        record passed "the pool gets Ready"
    else
        record FAILED "the pool gets Ready" "$(field winpool/default '{.status.conditions}')"
    fi
}

check_node() {
    expect_text "the kubelet reports the build of the kernel" "^10\.0\.$build\." "$(field "node/$node" '{.status.nodeInfo.kernelVersion}')"
    if has_build_label; then
        record passed "the node has the build label of its kernel"
    else
        record FAILED "the node has the build label of its kernel" "$(field "node/$node" '{.metadata.labels}')"
    fi
    expect "the node has the taint os=windows:NoSchedule" windows:NoSchedule \
        "$(field "node/$node" '{range .spec.taints[?(@.key=="os")]}{.value}:{.effect}{end}')"
    expect "RuntimeClass $class has the handler $handler" "$handler" "$(field "runtimeclass/$class" '{.handler}')"
    kubectl label node "$node" node.kubernetes.io/windows-build-
    if within 10 has_build_label; then
        record passed "a removed build label is restored within 10 s"
    else
        record FAILED "a removed build label is restored within 10 s"
    fi
    expect_text "winpool why names the build of the node" "10\.0\.$build" "$(winpool why "node/$node" || true)"
    # Only for the report: kubelet and containerd decide if a Windows node lists its handlers.
    echo "handlers that the node reports: $(field "node/$node" '{.status.runtimeHandlers[*].name}')"
}

check_pods() {
    kubectl create namespace "$namespace"
    within 60 kubectl get serviceaccount default -n "$namespace" > /dev/null 2>&1

    create_pod host-process "$host_process" "runtimeClassName: $class" "hostNetwork: true" \
        'securityContext: {windowsOptions: {hostProcess: true, runAsUserName: "NT AUTHORITY\\SYSTEM"}}'
    create_pod right-build "$nanoserver:$tag" "runtimeClassName: $class"
    create_pod wrong-build "$nanoserver:$wrong" "runtimeClassName: $class"
    create_pod linux registry.k8s.io/pause:3.10.2 "nodeName: $node" "os: {name: linux}" "tolerations: [{operator: Exists}]"
    create_pod no-toleration registry.k8s.io/pause:3.10.2

    if within 60 is_unschedulable no-toleration; then
        record passed "the taint keeps a pod without toleration off the node"
    else
        record FAILED "the taint keeps a pod without toleration off the node" "$(field pod/no-toleration '{.status}')"
    fi
    if within 60 is_refused linux; then
        record passed "the kubelet refuses a Linux pod with PodOSNotSupported"
    else
        record FAILED "the kubelet refuses a Linux pod with PodOSNotSupported" "$(message linux)"
    fi
    expect_start "a HostProcess pod starts" host-process
    expect_start "a pod of class $class with nanoserver:$tag starts" right-build
    check_wrong_build
}

check_wrong_build() {
    local name="winpool why explains why nanoserver:$wrong does not start" why
    within $pull has_failed wrong-build || true
    why=$(winpool why pod/wrong-build -n "$namespace" 2>&1 || true)
    echo "$why" | tee "$logs/why-wrong-build.txt"
    if is_network "$(message wrong-build)"; then
        record "not run" "$name" "$(message wrong-build)"
    elif ! has_failed wrong-build; then
        record FAILED "$name" "the pod has not failed: $(field pod/wrong-build '{.status}')"
    else
        # The words are in crates/core/src/pod/errors.rs. Lines are broken for the terminal.
        expect_text "$name" "the image has no variant for this node|the image is for another Windows build than the node's" \
            "$(tr -s ' \n' ' ' <<< "$why")"
    fi
}

remove() {
    winpool status > "$logs/status.txt" 2>&1 || true
    dump
    kubectl delete namespace "$namespace" --timeout=300s || record FAILED "the pods end" "$(kubectl get pods -n "$namespace" 2>&1)"
    stop_operator
    # A process that is killed keeps its Lease for some seconds, and cleanup then says that an operator runs.
    if within 90 winpool-operator cleanup --yes; then
        record passed "winpool-operator cleanup succeeds"
    else
        record FAILED "winpool-operator cleanup succeeds"
    fi
    expect "the taints of the node are as before" "$taints" "$(field "node/$node" '{.spec.taints}')"
    expect "the node has no label and no annotation of winpool" "" \
        "$(kubectl get node "$node" -o yaml | grep -E '^ +(winpool\.dev/|[a-z.]*\.winpool\.dev/)' || true)"
    expect "no RuntimeClass of winpool is left" "" "$(kubectl get runtimeclass -l app.kubernetes.io/managed-by=winpool -o name)"
    if has_build_label; then record passed "the build label stays"; else record FAILED "the build label stays"; fi
    kubectl delete -f examples/windowspool.yaml --timeout=60s
    if kubectl delete -k hack/windows --timeout=120s; then
        record passed "the installation can be deleted"
    else
        record FAILED "the installation can be deleted"
    fi
}

mkdir -p "$logs"
rm -f "$logs/cluster.yaml"
kubectl wait --for=condition=Ready "node/$node" --timeout=300s
{
    echo "## winpool on Windows build $build"
    echo
    kubectl get node "$node" -o 'jsonpath={.status.nodeInfo.osImage} {.status.nodeInfo.kernelVersion}, kubelet {.status.nodeInfo.kubeletVersion}, {.status.nodeInfo.containerRuntimeVersion}{"\n"}'
    printf '\n| check | result |\n|---|---|\n'
} > "$report"
within 60 has_no_taints || true
taints=$(field "node/$node" '{.spec.taints}')

install
check_node
check_pods
remove
cat "$report"
[ -z "${GITHUB_STEP_SUMMARY:-}" ] || cat "$report" >> "$GITHUB_STEP_SUMMARY"
[ $failures -eq 0 ] || { echo "$failures checks failed" >&2; exit 1; }
