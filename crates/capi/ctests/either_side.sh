#!/usr/bin/env bash
# Lets programs in C and in Rust be each other's client and server. Ends with 1 when something is wrong.
#
#   either_side.sh C RUST      the folders of the programs: example_server, example_client and test_ask; text and ask
set -euo pipefail

if (($# != 2)); then
    echo "usage: $0 C RUST" >&2
    exit 2
fi
c="$1" rust="$2"
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

start() { # start COMMAND...: starts a server of the name text, and waits until it answers
    local tries
    "$@" 2>"$scratch/server.err" &
    server=$!
    for tries in {1..30}; do # of two seconds each
        "$c/example_client" text digest </dev/null >/dev/null 2>&1 && return 0
    done
    fail "$* does not serve: $(cat "$scratch/server.err")"
}

ended() { # ended STATUS: waits for the server's end, and checks how it ended
    local status=0
    wait "$server" || status=$?
    server=""
    [[ $status == "$1" ]] || fail "the server ended with $status, not $1"
}

expect 2 '^usage: ' "$rust/text"
expect 2 '^usage: ' "$rust/text" client text shout
expect 1 'No such file' "$rust/text" client text digest "$scratch/missing"
expect 1 'start the server' "$rust/text" client text digest
printf 'one\ntwo\n' >"$scratch/short"
head -c 9000001 /dev/urandom >"$scratch/long"

for side in c rust; do
    serve=("$c/example_server" text)
    [[ $side == rust ]] && serve=("$rust/text" serve text)
    start "${serve[@]}"
    for client in "$c/example_client" "$rust/text client"; do
        expect 0 '^8 bytes, 2 lines$' $client text digest "$scratch/short"
        expect 0 '^owt$' $client text reverse "$scratch/short"
        expect 0 '^0 bytes, 0 lines$' $client text digest
        expect 0 '^0 bytes out and in' $client text reverse
        [[ ! -s $scratch/out ]] || fail "something came back for nothing"
        expect 0 '^9000001 bytes, ' $client text digest "$scratch/long"
        expect 0 '^9000001 bytes out and in; 0 and ' $client text reverse "$scratch/long"
        mv "$scratch/out" "$scratch/reversed"
        cmp -s "$scratch/long" "$scratch/reversed" && fail "the file came back as it was"
        expect 0 '^9000001 bytes out and in' $client text reverse "$scratch/reversed"
        cmp "$scratch/long" "$scratch/out" || fail "reversed twice it is not the file"
    done
    kill -TERM "$server"
    ended 0
    [[ ! -s $scratch/server.err ]] || fail "the server complained: $(cat "$scratch/server.err")"
    expect 1 'start the server' "$rust/text" client text digest "$scratch/short"

    # What fails has the same errno and sentence in both. Each has the server killed in the end.
    for client in "$c/test_ask" "$rust/ask"; do
        start "${serve[@]}"
        expect 0 '^22: the server replied with an error: the second buffer' "$client" text "$server"
        mv "$scratch/out" "$scratch/$side-$(basename "$client")"
        ended 137
    done
done
for asked in c-ask rust-test_ask rust-ask; do
    diff "$scratch/c-test_ask" "$scratch/$asked" || fail "failures differ: $asked"
done
grep -q 'whether it has done what was asked is not known$' "$scratch/c-ask" || fail "nothing said that the server was gone"
grep -q 'it was not asked$' "$scratch/c-ask" || fail "nothing said that the server was not asked"
echo "either side: all is well"
