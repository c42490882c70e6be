#!/bin/sh
# What is installed can be used: by pkg-config, shared and static, and by CMake. Exports nothing but the header's calls, each of which
# has a manual page.
# usage: install.sh SOURCE BUILD
set -eu
source=$1 build=$2
prefix=$(mktemp -d)
trap 'rm -r "$prefix"' EXIT
cmake --install "$build" --prefix "$prefix" > /dev/null
lib=$(dirname "$(find "$prefix" -name libfbufs.so)")

objdump -p "$lib/libfbufs.so" | grep -q 'SONAME *libfbufs\.so\.0\.1$'
nm -D --defined-only "$lib/libfbufs.so" | awk '$2 == "T" { sub("@.*", "", $3); print $3 }' | sort > "$prefix/exported"
(grep -oh '\buf_[a-z_]*(' "$source/include/fbufs.h" "$source/include/sys/stream.h" | tr -d '('; grep -o '\bfbufs_[a-zA-Z0-9]*$' "$source/include/sys/stream.h") | sort -u > "$prefix/declared"
# Comments speak of no calls that are not there, so both are the same.
diff "$prefix/exported" "$prefix/declared"
(echo libfbufs; echo streams; grep '^uf_' "$prefix/exported" | grep -v '^uf_stream_') | sed 's/$/.3/' > "$prefix/pages"
find "$prefix" -name '*.3' -printf '%f\n' | sort | diff "$prefix/pages" -

cat > "$prefix/main.c" << 'END'
#include <fbufs.h>
int main(void) {
    void *bytes = uf_allocate(10);
    return !(bytes && uf_write(1, bytes, 0) == 0);
}
END
export PKG_CONFIG_PATH="$lib/pkgconfig"
cc -std=c11 -Wall -Wextra -Werror -pedantic $(pkg-config --cflags fbufs) "$prefix/main.c" -o "$prefix/shared" \
    $(pkg-config --libs fbufs)
LD_LIBRARY_PATH=$lib "$prefix/shared"
cc $(pkg-config --cflags fbufs) "$prefix/main.c" -o "$prefix/static" "$lib/libfbufs.a" -lpthread -ldl -lm -lgcc_s
"$prefix/static"

# The paper's programs, as they were installed.
for program in ttcp ftp filters; do
    source=$prefix/share/fbufs/examples/$program.c
    cc -std=c11 "$source" -o "$prefix/${program}_standard" -lpthread
    cc -std=c11 -DUF $(pkg-config --cflags fbufs) "$source" -o "$prefix/${program}_uf" $(pkg-config --libs fbufs) -lpthread
done
cc -std=c11 -DFBUFS $(pkg-config --cflags fbufs) "$source" -o "$prefix/filters_fbufs" $(pkg-config --libs fbufs)
LD_LIBRARY_PATH=$lib "$(dirname "$0")/programs.sh" "$prefix"

cat > "$prefix/CMakeLists.txt" << 'END'
cmake_minimum_required(VERSION 3.20)
project(user LANGUAGES C)
find_package(fbufs 0.1 REQUIRED)
add_executable(user main.c)
target_link_libraries(user fbufs::fbufs)
END
cmake -S "$prefix" -B "$prefix/made" -DCMAKE_PREFIX_PATH="$prefix" > /dev/null
cmake --build "$prefix/made" > /dev/null
"$prefix/made/user"
