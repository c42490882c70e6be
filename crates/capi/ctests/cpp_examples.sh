#!/usr/bin/env bash
# Runs the examples in C++ and checks what they print. Ends with 1 when something is wrong.
#
#   cpp_examples.sh DIR [PREFIX [RUST]]    DIR has the programs PREFIXbits and so on; PREFIX is example_ if it is not given. RUST has
#                                          the program thumbnails in Rust, if each client is to talk to each server
set -euo pipefail

if (($# < 1 || $# > 3)); then
    echo "usage: $0 DIR [PREFIX [RUST]]" >&2
    exit 2
fi
program="$1/${2-example_}"
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

stop() { # kills the server, which has not complained
    kill -KILL "$server"
    wait "$server" 2>/dev/null || true
    server=""
    [[ ! -s $scratch/server.err ]] || fail "the server complained: $(cat "$scratch/server.err")"
}

# The first program.
expect 2 '^usage: ' "${program}bits" now
expect 1 'start the server' "${program}bits"
"${program}bits" serve 2>"$scratch/server.err" &
server=$!
expect 0 '^8388608 bytes came back; 0 were copied$' "${program}bits"
expect 1 'another process|running|serves' "${program}bits" serve
stop

# Images of many sizes, long ones in place on both sides.
thumbnails=("${program}thumbnails")
[[ -z ${3-} ]] || thumbnails+=("$3/thumbnails")
expect 2 '^usage: ' "${program}thumbnails" ask images 1
for serving in "${thumbnails[@]}"; do
    "$serving" serve images 2>"$scratch/server.err" &
    server=$!
    for asking in "${thumbnails[@]}"; do
        expect 0 '^3 images of 24 bytes halved, all right' "$asking" ask images 3 3 2
        expect 0 '^40 images of 1210000 bytes halved, all right' "$asking" ask images 40 550 550
        expect 0 '^9 images of 16777216 bytes halved, all right; 0 bytes copied' "$asking" ask images 9 2048 2048
        expect 1 'the image is too large' "$asking" ask images 1 20000 2
    done
    stop
done
echo "examples in C++: all is well"
