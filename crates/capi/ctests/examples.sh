#!/usr/bin/env bash
# Runs the examples and checks what they print. Ends with 1 when something is wrong.
#
#   examples.sh DIR [PREFIX]      DIR has the programs PREFIXserver, PREFIXclient and so on; PREFIX is example_ if it is not given
set -euo pipefail

if (($# < 1 || $# > 2)); then
    echo "usage: $0 DIR [PREFIX]" >&2
    exit 2
fi
program="$1/${2-example_}"
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# Wrong arguments, and servers that are not there.
expect 2 '^usage: ' "${program}server"
expect 2 '^usage: ' "${program}client" text
expect 2 '^usage: ' "${program}client" text shout
expect 2 '^usage: ' "${program}event_loop" now
expect 2 '^usage: ' "${program}copy_semantics" share
expect 1 'No such file' "${program}client" text digest "$scratch/missing"
expect 1 'io_connect: .*start the server' "${program}client" text digest
expect 1 "cannot be a server's name" "${program}server" a/b

# The server and its client.
"${program}server" text 2>"$scratch/server.err" &
server=$!
printf 'one\ntwo\n' >"$scratch/short"
expect 0 '^8 bytes, 2 lines$' "${program}client" text digest "$scratch/short"
expect 0 '^owt$' "${program}client" text reverse "$scratch/short"
expect 0 '^0 bytes, 0 lines$' "${program}client" text digest
expect 0 '^0 bytes out and in' "${program}client" text reverse
[[ ! -s $scratch/out ]] || fail "something came back for nothing"
[[ "$(printf abc | "${program}client" text reverse 2>/dev/null)" == cba ]] || fail "abc is not reversed"
head -c 9000001 /dev/urandom >"$scratch/long"
expect 0 '^9000001 bytes out and in; 0 and ' "${program}client" text reverse "$scratch/long"
cp "$scratch/out" "$scratch/reversed"
cmp -s "$scratch/long" "$scratch/reversed" && fail "the file came back as it was"
expect 0 '^9000001 bytes out and in' "${program}client" text reverse "$scratch/reversed"
cmp "$scratch/long" "$scratch/out" || fail "reversed twice it is not the file"
expect 1 'another process|running|serves' "${program}server" text
kill -TERM "$server"
status=0
wait "$server" || status=$?
server=""
[[ $status == 0 ]] || fail "the server ended with $status"
[[ ! -s $scratch/server.err ]] || fail "the server complained: $(cat "$scratch/server.err")"
expect 1 'io_connect' "${program}client" text digest "$scratch/short"

# One process.
expect 0 '^100 replies, [1-9][0-9]* of them after' "${program}event_loop"

# Progress, and the rest given up.
expect 0 '^success: [0-9]+ of 67108864 bytes came$' "${program}progress"

# A pool of the server's own.
expect 0 '^16 packets: 32 pages changed places, 0 bytes copied; 16 buffers are free again$' "${program}device"

# Networks, by as many copies as they say.
expect 0 '^2 copies: 1000 of 1000 packets came back; 3000000 bytes copied out, 3000000 in$' "${program}network"
grep -q '^0 copies: .*; 0 bytes copied out, 0 in$' "$scratch/out" || fail "the network without copies copies"

# Copy, and what means the same.
expect 0 '^held output: .*yes; 8388608 bytes copied$' "${program}copy_semantics" copy
expect 0 '^held output: .*yes; 0 bytes copied$' "${program}copy_semantics" emulated-copy
[[ "$(grep -c ' yes' "$scratch/out")" == 4 ]] || fail "copy_semantics said less than 4 times yes"
[[ -z "$(ls -A "$GENIE_RUNTIME_DIR")" ]] || fail "the servers left files: $(ls -A "$GENIE_RUNTIME_DIR")"

# The documentation shows the examples as they are.
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
page="$here/../../../docs/c.md"
if [[ -r $page ]]; then
    python3 - "$page" "$here/../examples" "$here" <<'EOF'
import pathlib, re, sys
page, examples, tests = map(pathlib.Path, sys.argv[1:])
found = {"c": examples.glob("*.c"), "cpp": [*examples.glob("*.cpp"), *tests.glob("*.cpp")]}
sources = {language: [path.read_text() for path in paths] for language, paths in found.items()}
blocks = re.findall(r"^```(c|cpp)\n(.*?)^```$", page.read_text(), re.M | re.S)
wrong = [code for language, code in blocks if not any(code in source for source in sources[language])]
for code in wrong:
    print("docs/c.md shows what is in no example:", code, sep="\n", file=sys.stderr)
sys.exit(1 if wrong or not blocks else 0)
EOF
fi
echo "examples: all is well"
