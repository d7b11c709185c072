# lib.sh: sourced by the scripts. Finds the repository, installs what is lacking, builds.
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

build_packages=(build-essential pkg-config meson ninja-build libgrpc-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler
  libh2o-evloop-dev liblmdb-dev libjansson-dev libssl-dev libsqlite3-dev libyaml-dev libjemalloc-dev check)
run_packages=(etcd-client python3-grpcio python3-protobuf protobuf-compiler-grpc curl procps)
test_packages=(etcd-server iproute2 postgresql prometheus systemd g++ "${run_packages[@]}")
# Other people's clients; only for the part e2e. A node that is there already, from wherever, will do.
e2e_packages=(golang-go golang-etcd-server-dev python3-etcd3 python3-etcd3gw patroni)
command -v node >/dev/null && command -v npm >/dev/null || e2e_packages+=(nodejs npm)

# install_packages NAME...: by apt, only what is not there yet (a tenth of a second when nothing is lacking).
install_packages() {
  local missing=() p
  local have
  have=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null | awk '$1 == "ii" { print $2 }')
  for p in "$@"; do
    grep -qx "$p" <<<"$have" || missing+=("$p")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  local sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  echo "installing: ${missing[*]}" >&2
  # Debian starts packaged servers on installation; ours are started by the tests themselves.
  local policy=/usr/sbin/policy-rc.d made=
  if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy >/dev/null && $sudo chmod +x $policy && made=1
  fi
  { $sudo apt-get update -q && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"; } >&2
  local rc=$?
  [ -z "$made" ] || $sudo rm -f $policy
  return $rc
}

# build_in DIR [meson options...]: configures when needed, then compiles. One at a time: two ninjas in one place spoil each other's objects.
build_in() {
  mkdir -p "$1"
  (
    flock 9
    build_alone "$@"
  ) 9<"$1"
}

build_alone() {
  local dir=$1
  shift
  if [ ! -f "$dir/build.ninja" ]; then
    meson setup "$dir" "$top" "$@" >"$dir.log" 2>&1 || { cat "$dir.log" >&2; return 1; }
    rm -f "$dir.log"
  fi
  ninja -C "$dir" >"$dir/build.log" 2>&1 9<&- || { cat "$dir/build.log" >&2; return 1; }
}
