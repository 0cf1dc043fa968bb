#!/usr/bin/env bash
# Installs what lab/by_hand.py needs and is missing: nginx and ab.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
die() { echo "bench/lab/setup.sh: $*" >&2; exit 1; }
LOGS=$(mktemp -d)
trap 'rm -rf "$LOGS"' EXIT
. scripts/install.sh
need ab apache2-utils nginx nginx-light
