#!/bin/sh
# The programs of docs/fbufs.md do what it says.
# usage: examples.sh DIRECTORY PATH-OF-THE-EXAMPLE-queue
set -eu
programs=$1 queue=$2
place=$(mktemp -d)
server=
# The server removes its own files.
trap '[ -z "$server" ] || { kill "$server"; wait "$server" || :; }; rm -r "$place"' EXIT
export GENIE_RUNTIME_DIR="$place"

"$programs/example_first" > "$place/said"
grep -qx hello "$place/said"
grep -q '^write copied: Linux does not tell' "$place/said"

"$programs/example_share" receive "$place/share" 3 > "$place/said" &
for count in 1 10 1000; do
    "$programs/example_share" send "$place/share" $count &
    senders="${senders:-} $!"
done
for sender in $senders; do wait "$sender"; done
until grep -qx "$((1011 * 65536)) bytes" "$place/said"; do sleep 0.01; done

"$programs/example_parts" > "$place/said"
printf '1: \na long\n2: \n payload\n' | diff - "$place/said"

"$programs/example_lines" "$place/lines" > "$place/said"
printf 'line 1\nline 2\nline 3\n' | diff - "$place/said"

"$queue" examples &
server=$!
until "$programs/example_opened" examples > "$place/said" 2> "$place/error"; do
    grep -q 'no server examples' "$place/error"
    sleep 0.01
done
grep -qx '1048576 bytes, in the pages that were written' "$place/said"
grep -q '^write passed: the server has the pages' "$place/said"
