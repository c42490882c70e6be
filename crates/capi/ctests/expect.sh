# What scripts that run programs share: a run-time directory of their own, one server that is killed at the end, and what they expect.
scratch="$(mktemp -d)"
export GENIE_RUNTIME_DIR="$scratch/run"
mkdir "$GENIE_RUNTIME_DIR"
server=""

finish() {
    local status=$?
    trap - EXIT
    if [[ -n $server ]]; then
        kill -KILL "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$scratch"
    exit "$status"
}
trap finish EXIT

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

expect() { # expect STATUS PATTERN COMMAND...: COMMAND ends with STATUS, and what it prints matches PATTERN
    local status="$1" pattern="$2" found=0
    shift 2
    timeout 60 "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || found=$?
    if [[ $found != "$status" ]]; then
        head -c 500 "$scratch/out" "$scratch/err" | cat -v >&2
        fail "$* ended with $found, not $status"
    fi
    if ! grep -Eaq -- "$pattern" "$scratch/out" "$scratch/err"; then
        head -c 500 "$scratch/out" "$scratch/err" | cat -v >&2
        fail "$* did not print $pattern"
    fi
}
