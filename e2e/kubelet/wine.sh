#!/usr/bin/env bash
# Succeeds if real kubelets can run here. Says what to install if not, and installs it only in CI.
set -euo pipefail

packages="wine64 gcc-mingw-w64-x86-64"

is_installed() {
    [ -x /usr/lib/wine/wine64 ] && [ -x /usr/lib/wine/wineserver64 ] && command -v x86_64-w64-mingw32-gcc >/dev/null
}

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "no real kubelets: Wine runs kubelet.exe on Linux on amd64 only" >&2
    exit 1
fi
if is_installed; then
    exit 0
fi
install="apt-get install --no-install-recommends $packages"
if [ -n "${CI:-}" ] && command -v apt-get >/dev/null; then
    root=""
    if [ "$(id -u)" -ne 0 ]; then root=sudo; fi
    echo "==> $install"
    $root apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $root $install -y -qq >/dev/null
    is_installed && exit 0
fi
echo "no real kubelets: Wine is not installed (Debian 12 or later, Ubuntu 24.04 or later: $install)" >&2
exit 1
