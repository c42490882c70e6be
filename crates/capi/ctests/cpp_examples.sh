#!/usr/bin/env bash
# Runs the examples in C++ and checks what they print. Ends with 1 when something is wrong.
#
#   cpp_examples.sh DIR [PREFIX]      DIR has the programs PREFIXbits and so on; PREFIX is example_ if it is not given
set -euo pipefail

if (($# < 1 || $# > 2)); then
    echo "usage: $0 DIR [PREFIX]" >&2
    exit 2
fi
program="$1/${2-example_}"
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# The first program.
expect 2 '^usage: ' "${program}bits" now
expect 1 'start the server' "${program}bits"
"${program}bits" serve 2>"$scratch/server.err" &
server=$!
expect 0 '^8388608 bytes came back; 0 were copied$' "${program}bits"
expect 1 'another process|running|serves' "${program}bits" serve
[[ ! -s $scratch/server.err ]] || fail "the server complained: $(cat "$scratch/server.err")"
echo "examples in C++: all is well"
