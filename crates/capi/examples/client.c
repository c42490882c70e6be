/* A client of the server of texts: sends a file, or standard input, and prints what comes back.
 *
 *     server NAME
 *     client NAME reverse|digest [FILE]
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <genie.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *program;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s: %s\n", program, what, why);
    exit(1);
}

/* Memory of the library's, which can be passed without copying. */
static char *allocate(size_t length) {
    char *bytes = io_allocate(0, length);
    if (!bytes)
        fail("io_allocate", io_error_text());
    return bytes;
}

/* Reads all of a file. The buffer is just as long as a regular file: a whole buffer can be passed without copying, while a part of one
 * may have to be copied, since other data lies beside it. For a pipe the buffer grows. */
static char *read_all(FILE *file, const char *name, size_t *lengthp) {
    struct stat status;
    size_t length = 0, room = 1 << 20;
    if (fstat(fileno(file), &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0)
        room = (size_t)status.st_size;
    char *bytes = allocate(room);
    for (;;) {
        length += fread(bytes + length, 1, room - length, file);
        int next = length < room ? EOF : fgetc(file);
        if (next == EOF)
            break;
        char *longer = allocate(2 * room);
        memcpy(longer, bytes, length);
        longer[length++] = (char)next;
        io_free(bytes);
        bytes = longer;
        room *= 2;
    }
    if (ferror(file))
        fail(name, strerror(errno));
    *lengthp = length;
    return bytes;
}

static void print(const char *bytes, size_t length) {
    if (fwrite(bytes, 1, length, stdout) != length || fflush(stdout) != 0)
        fail("standard output", strerror(errno));
}

int main(int argc, char **argv) {
    program = argv[0];
    if (argc < 3 || argc > 4 || (strcmp(argv[2], "reverse") != 0 && strcmp(argv[2], "digest") != 0)) {
        fprintf(stderr, "usage: %s NAME reverse|digest [FILE]\n", program);
        return 2;
    }
    const char *name = argc == 4 ? argv[3] : "standard input";
    FILE *file = argc == 4 ? fopen(name, "rb") : stdin;
    if (!file)
        fail(name, strerror(errno));
    size_t length;
    char *text = read_all(file, name, &length);

    io_server_t server;
    if (io_connect(0, argv[1], 2000000000, &server) != 0) /* waits two seconds for a server that is just starting */
        fail("io_connect", io_error_text());
    int service = io_service(server, argv[2]);
    if (service < 0)
        fail("io_service", io_error_text());

    /* Buffer 0 goes to the server. No other thread stores into it before io_request returns, so it is held. */
    struct io_receipt sent = {0}, received = {0};
    struct io_scatter_gather data = {.scheme = IO_EMULATED_COPY, .flags = IO_HELD, .length = length, .receiptp = &sent};
    data.location.native.addr = text;
    struct io_buffer_header out = {.direction = IO_OUT, .first_sg = &data};
    if (strcmp(argv[2], "digest") == 0) {
        /* The reply is an argument, some bytes for which the header has room. */
        char digest[80];
        out.in_arg = digest;
        out.in_arg_length = sizeof digest;
        struct io_buffer_header *buffers[] = {&out};
        if (io_request(server, (uint32_t)service, 1, buffers, IO_FOREVER, NULL) != 0)
            fail("io_request", io_error_text());
        print(digest, out.in_arg_actual);
        print("\n", 1);
    } else {
        /* Buffer 1 comes from the server. */
        char *reversed = allocate(length ? length : 1);
        size_t actual = 0;
        struct io_scatter_gather room = {.scheme = IO_EMULATED_COPY, .length = length, .receiptp = &received};
        room.location.native.addr = reversed;
        struct io_buffer_header in = {.direction = IO_IN, .first_sg = &room, .actual_lengthp = &actual};
        struct io_buffer_header *buffers[] = {&out, &in};
        if (io_request(server, (uint32_t)service, 2, buffers, IO_FOREVER, NULL) != 0)
            fail("io_request", io_error_text());
        print(reversed, actual);
        io_free(reversed);
    }
    fprintf(stderr, "%zu bytes out and in; %zu and %zu copied\n", length, sent.copied, received.copied);
    io_free(text);
    io_disconnect(server);
    if (file != stdin)
        fclose(file);
    return 0;
}
