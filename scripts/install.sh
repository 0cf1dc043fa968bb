# Functions that install missing programs: Debian's apt, rustup. For `./test` and `./hotrow`, which
# define `die MESSAGE` and the folder LOGS.

readonly RUST=1.95 NATS_SERVER=v2.15.2

as_root() {
  if [[ $EUID -eq 0 ]]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else
    die "to install packages this must run as root or with sudo: $*"
  fi
}

# apt_get PACKAGE...: installs packages quietly, without starting their services.
apt_get() {
  local policy=/usr/sbin/policy-rc.d ours=no
  command -v apt-get >/dev/null || die "missing: $*; install it, because there is no apt here"
  if [[ ! -e $policy ]]; then
    ours=yes
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null && as_root chmod +x "$policy"
  fi
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" \
    >"$LOGS/apt.log" 2>&1
  local status=$?
  [[ $ours = yes ]] && as_root rm -f "$policy"
  [[ $status -eq 0 ]] || { tail -n 20 "$LOGS/apt.log"; die "apt could not install: $*"; }
}

# need COMMAND PACKAGE [COMMAND PACKAGE]...: installs the packages whose commands are missing.
need() {
  local missing=()
  while [[ $# -ge 2 ]]; do
    PATH=$PATH:/usr/sbin command -v "$1" >/dev/null || missing+=("$2")
    shift 2
  done
  [[ ${#missing[@]} -eq 0 ]] || apt_get "${missing[@]}"
}

# need_postgresql: installs PostgreSQL without the cluster that Debian's package would create and
# start. Tests create their own.
need_postgresql() {
  local settings=/etc/postgresql-common/createcluster.d ours=no program folder
  for folder in $(printf '%s\n' "$PATH" | tr : ' ') /usr/lib/postgresql/*/bin; do
    folder=$(dirname "$(readlink -f "$folder/initdb")")
    for program in initdb postgres psql pg_basebackup; do
      [[ -x $folder/$program ]] || continue 2
    done
    return
  done
  [[ -d $settings ]] || ours=yes
  as_root mkdir -p "$settings"
  echo 'create_main_cluster = false' | as_root tee "$settings/hotrow-test.conf" >/dev/null
  # Includes pg_stat_statements.
  apt_get postgresql
  as_root rm -f "$settings/hotrow-test.conf"
  [[ $ours = yes ]] && as_root rmdir --ignore-fail-on-non-empty "$settings"
  return 0
}

# need_mysql: gets MySQL, which tests start beside MariaDB.
need_mysql() {
  scripts/mysql-server >/dev/null || die "tests over MySQL cannot run without it"
}

# need_modules: installs the modules of Varnish and nginx that examples/purge needs.
need_modules() {
  local missing=()
  compgen -G '/usr/lib/*/varnish/vmods/libvmod_xkey.so' >/dev/null || missing+=(varnish-modules)
  [[ -e /usr/lib/nginx/modules/ngx_http_lua_module.so ]] || missing+=(libnginx-mod-http-lua)
  [[ ${#missing[@]} -eq 0 ]] || apt_get "${missing[@]}"
}

# need_nats_server: installs NATS from its Go module, where tests look for it.
need_nats_server() {
  local folder=$HOME/go/bin
  [[ -x $folder/nats-server ]] || command -v nats-server >/dev/null && return
  need go golang-go
  GOBIN=$folder go install "github.com/nats-io/nats-server/v2@$NATS_SERVER" \
    >"$LOGS/go.log" 2>&1 && return
  tail -n 20 "$LOGS/go.log"
  die "go could not install nats-server $NATS_SERVER"
}

rust_is_new_enough() {
  local version
  version=$(cargo --version 2>/dev/null | cut -d' ' -f2) || return 1
  [[ -n $version && $(printf '%s\n' "$RUST" "$version" | sort -V | head -n 1) = "$RUST" ]] &&
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1
}

need_rust() {
  local parts=(--profile minimal --component rustfmt --component clippy)
  [[ -f ${CARGO_HOME:-$HOME/.cargo}/env ]] && . "${CARGO_HOME:-$HOME/.cargo}/env"
  rust_is_new_enough && return
  if command -v rustup >/dev/null; then
    rustup toolchain install "$RUST" "${parts[@]}" && export RUSTUP_TOOLCHAIN=$RUST
  else
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
      sh -s -- -y --no-modify-path --default-toolchain "$RUST" "${parts[@]}" &&
      . "${CARGO_HOME:-$HOME/.cargo}/env"
  fi
  rust_is_new_enough ||
    die "Rust $RUST or newer with rustfmt and clippy is needed; see https://rustup.rs"
}
