#!/usr/bin/env bash
# Prints the path of axe-core if the report can be tested in a browser here, and fetches axe-core the first time. Says what to
# install if not, and installs Chromium only in CI.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
version=$(sed -n 's/.*"axe-core": "\(.*\)".*/\1/p' package.json)
tools=${XDG_CACHE_HOME:-$HOME/.cache}/winpool/tools/axe-core-$version
axe=$tools/node_modules/axe-core/axe.min.js

has_browser() {
    command -v chromium >/dev/null || command -v google-chrome >/dev/null
}

if ! has_browser && [ -n "${CI:-}" ] && command -v apt-get >/dev/null; then
    root=""
    if [ "$(id -u)" -ne 0 ]; then root=sudo; fi
    echo "==> apt-get install --no-install-recommends chromium" >&2
    $root apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive $root apt-get install --no-install-recommends chromium -y -qq >/dev/null
fi
if ! has_browser; then
    echo "no browser: Chromium is not installed (Debian: apt-get install --no-install-recommends chromium)" >&2
    exit 1
fi
if [ ! -f "$axe" ]; then
    if ! command -v npm >/dev/null; then
        echo "no axe-core: npm is not installed (Debian: apt-get install --no-install-recommends npm)" >&2
        exit 1
    fi
    echo "==> npm fetches axe-core $version, once, into $tools" >&2
    mkdir -p "$tools"
    cp package.json package-lock.json "$tools"
    npm ci --prefix "$tools" --ignore-scripts --no-audit --no-fund --silent >&2
fi
echo "$axe"
