#!/bin/sh
# The paper's programs, and two filters of a pipeline, with the standard calls and with those of libfbufs, over TCP and within the machine: all bytes arrive.
# usage: programs.sh DIRECTORY [COUNT]; COUNT buffers of 8 KiB are sent (2048), and a file of 1 MB COUNT / 128 times
set -eu
programs=$1 count=${2:-2048}
place=$(mktemp -d)
trap 'rm -r "$place"' EXIT
export GENIE_RUNTIME_DIR="$place"
head -c 1000003 /dev/urandom > "$place/sent"
port=$((10000 + $$ % 20000))

expected=
for program in standard uf fbufs; do
    echo "filters, $program"
    found=$("$programs/filters_$program" make $((count / 64)) | "$programs/filters_$program" sum)
    # Programs of each kind understand all others, by bytes.
    mixed=$("$programs/filters_standard" make $((count / 64)) | "$programs/filters_$program" sum)
    [ "$found" = "${expected:=$found}" ] && [ "$mixed" = "$expected" ]
done

for program in standard uf; do
    for address in $((port += 1)) "$place/$program"; do
        rm -f "$place/$program"
        echo "ttcp over $address"
        "$programs/ttcp_$program" -r "$address" > "$place/ttcp" &
        "$programs/ttcp_$program" -t "$address" "$count"
        wait $!
        cat "$place/ttcp"
        grep -q "received $((count * 8192)) bytes" "$place/ttcp"

        rm -f "$place/$program"
        echo "ftp over $address"
        "$programs/ftp_$program" -r "$address" "$place/received" &
        "$programs/ftp_$program" -t "$address" "$place/sent"
        wait $!
        cmp "$place/sent" "$place/received"
        rm -f "$place/$program"
        "$programs/ftp_$program" -r "$address" /dev/null > "$place/ftp" &
        "$programs/ftp_$program" -t "$address" "$place/sent" $((count / 128))
        wait $!
        cat "$place/ftp"
        grep -q "received $((count / 128 * 1000003)) bytes" "$place/ftp"
    done
done
