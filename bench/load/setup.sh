#!/usr/bin/env bash
# Installs the load generators without a package, oha and hey, into bench/target/tools/bin. Needs
# cargo, go and the network.
set -euo pipefail
readonly OHA=1.16.0 HEY=v0.1.5
cd "$(dirname "$(readlink -f "$0")")/.."
bin=$PWD/target/tools/bin
mkdir -p "$bin"
[[ -x $bin/oha ]] ||
  CARGO_TARGET_DIR=$PWD/target/tools/build \
    cargo install --locked --root "$PWD/target/tools" "oha@$OHA"
[[ -x $bin/hey ]] || GOBIN=$bin go install "github.com/rakyll/hey@$HEY"
