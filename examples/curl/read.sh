#!/usr/bin/env bash
# Reads a record twice: read.sh COLLECTION ID. See ../README.md.
set -euo pipefail
url=${HOTROW_URL:-http://127.0.0.1:8080}/$1/$2
head=$(mktemp)
trap 'rm -f "$head"' EXIT

credential=()
# On standard input, because other users can see the arguments of a process.
[[ -z ${HOTROW_KEY:-} ]] || credential=(--header @-)

# get FIELD...: prints the body, and writes the head to a file. Ends the program on an error.
get() {
  local body status fields=()
  local field
  for field in "$@"; do fields+=(--header "$field"); done
  body=$(printf 'Authorization: Bearer %s\n' "${HOTROW_KEY:-}" |
    curl --silent --show-error --compressed --dump-header "$head" \
      "${credential[@]}" "${fields[@]}" "$url")
  status=$(awk 'NR == 1 { print $2 }' "$head")
  case $status in
    200) printf '%s\n' "$body" ;;
    304) echo unchanged ;;
    *) echo "$status: $body" >&2; exit 1 ;;
  esac
}

# field NAME: prints a header field of the answer.
field() {
  awk -v name="$1:" 'tolower($1) == name { print $2 }' "$head" | tr -d '\r'
}

get
position=$(field hotrow-position)
echo "position $position"
get "Hotrow-Min-Position: $position" "If-None-Match: $(field etag)"
