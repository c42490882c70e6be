/* Streams: a process prints lines, and its parent reads them. usage: lines PATH */
#define _POSIX_C_SOURCE 200809L
#include <fbufs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child has none of its parent's fbufs, channels and groups: it joins for itself. */
static FILE *child_stream(const char *path) {
    if (uf_join("lines") != 0)
        return NULL;
    return uf_fdopen(uf_connect(path), "w");
}

static FILE *parent_stream(int listener) {
    return uf_fdopen(uf_accept(listener), "r");
}

static void ensure(FILE *stream) {
    if (!stream) {
        fprintf(stderr, "%s\n", uf_error_text());
        exit(1);
    }
}

int main(int argc, char **argv) {
    char line[80];
    int listener;
    if (argc != 2)
        return 2;
    if (uf_join("lines") != 0 || (listener = uf_listen(argv[1])) < 0)
        ensure(NULL);
    if (fork() == 0) {
        FILE *out = child_stream(argv[1]);
        ensure(out);
        for (int i = 1; i <= 3; i++)
            fprintf(out, "line %d\n", i);
        exit(fclose(out) == 0 ? 0 : 1); /* which writes what is in the stream's buffer, and closes the channel */
    }
    FILE *in = parent_stream(listener);
    ensure(in);
    while (fgets(line, sizeof line, in))
        fputs(line, stdout);
    fclose(in);
    wait(NULL);
    return 0;
}
