/* Emulated copy means what copy means. This program is the same for both, but for the scheme that its argument names:
 *
 *     copy_semantics copy
 *     copy_semantics emulated-copy
 *
 * A client stores into its output after io_request has returned and before the server reads it; the server gets the old data all the
 * same. The server fails after it has filled half of an input; the client's buffer is as it was. Receipts say what was copied.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <genie.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LENGTH = 8 << 20 };
enum { COUNT, FILL }; /* the services: */
static const struct io_service_mapping services[] = {
    {.name = "count", .flags = IO_READ}, /* counts the bytes that are 'a', and replies with that */
    {.name = "fill", .flags = IO_WRITE}, /* fills an input with 'z'; fails half way if there is an argument */
};

/* A call of the library's that must succeed. */
static int must(int returned, const char *call) {
    if (returned < 0) {
        fprintf(stderr, "%s: %s\n", call, io_error_text());
        exit(1);
    }
    return returned;
}
#define MUST(call) must(call, #call)

static void show(const char *what, int is_right, const struct io_receipt *receipt) {
    printf("%-56s %s", what, is_right ? "yes" : "NO");
    if (receipt)
        printf("; %zu bytes copied%s%s", receipt->copied, receipt->reason ? ": " : "", receipt->reason ? receipt->reason : "");
    printf("\n");
    if (!is_right)
        exit(1);
}

/* The server's process, until its client leaves. Of an output it reads nothing before a byte comes by the pipe. */
static int serve(const char *name, int pipe) {
    io_server_t server;
    MUST(io_server_register(name, 2, services, 0, &server));
    for (struct io_message message = {0}; message.what != IO_DEPARTURE;) {
        MUST(io_server(server, NULL, &message, 1));
        if (message.what != IO_REQUEST)
            continue;
        const struct io_server_buffer *buffer = message.bufv;
        struct io_reply_message reply = {.request = message.request};
        size_t count = 0;
        if (message.service == COUNT) {
            char go;
            if (read(pipe, &go, 1) != 1)
                return 1;
            for (size_t i = 0; i < buffer->segc; i++)
                for (size_t j = 0; j < buffer->segv[i].length; j++)
                    count += ((const char *)buffer->segv[i].addr)[j] == 'a';
            reply.argument = &count;
            reply.argument_length = sizeof count;
        } else {
            MUST(io_ready(server, message.request, 0));
            size_t wanted = message.argument_length > 0 ? buffer->length / 2 : buffer->length;
            for (size_t i = 0; i < buffer->segc && count < wanted; i++) {
                size_t part = buffer->segv[i].length < wanted - count ? buffer->segv[i].length : wanted - count;
                memset(buffer->segv[i].addr, 'z', part);
                count += part;
            }
            reply.error = message.argument_length > 0 ? EIO : 0;
            reply.error_text = "half of the data cannot be read";
            reply.actualc = 1;
            reply.actualv = &count; /* how much is passed, if this is a success */
        }
        MUST(io_server(server, &reply, NULL, 0));
    }
    return io_server_unregister(server) == 0 ? 0 : 1;
}

static int all(const char *bytes, char byte) {
    return bytes[0] == byte && memcmp(bytes, bytes + 1, LENGTH - 1) == 0;
}

static void ask(io_server_t server, io_scheme_t scheme, int pipe) {
    char *bytes = io_allocate(0, LENGTH);
    MUST(bytes ? 0 : -1);
    size_t count = 0;
    struct io_receipt receipt;
    struct io_scatter_gather element = {.scheme = scheme, .length = LENGTH, .receiptp = &receipt};
    element.location.native.addr = bytes;
    struct io_buffer_header header = {
        .direction = IO_OUT, .first_sg = &element, .in_arg = &count, .in_arg_length = sizeof count};
    struct io_buffer_header *headers[] = {&header};
    io_request_t request;

    memset(bytes, 'a', LENGTH);
    MUST(io_request(server, COUNT, 1, headers, IO_FOREVER, &request)); /* which returns at once */
    memset(bytes, 'b', LENGTH);
    if (write(pipe, "g", 1) != 1)
        exit(1);
    MUST(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    show("asynchronous output: the server got the old data", count == LENGTH && all(bytes, 'b'), &receipt);

    memset(bytes, 'a', LENGTH);
    element.flags = IO_HELD; /* nobody stores into it before this returns, so nothing has to be protected */
    if (write(pipe, "g", 1) != 1)
        exit(1);
    MUST(io_request(server, COUNT, 1, headers, IO_FOREVER, NULL));
    show("held output: the server got the data", count == LENGTH, &receipt);

    element.flags = 0;
    header = (struct io_buffer_header){.direction = IO_IN, .first_sg = &element, .out_arg = "fail", .out_arg_length = 4};
    int failed = io_request(server, FILL, 1, headers, IO_FOREVER, NULL) == -1 && errno == EIO;
    show("input of a server that failed: the buffer is as it was", failed && all(bytes, 'a'), NULL);

    header.out_arg_length = 0;
    MUST(io_request(server, FILL, 1, headers, IO_FOREVER, NULL));
    show("input: all of the data is there", all(bytes, 'z'), &receipt);
    MUST(io_free(bytes));
}

int main(int argc, char **argv) {
    if (argc != 2 || (strcmp(argv[1], "copy") != 0 && strcmp(argv[1], "emulated-copy") != 0)) {
        fprintf(stderr, "usage: %s copy|emulated-copy\n", argv[0]);
        return 2;
    }
    io_scheme_t scheme = strcmp(argv[1], "copy") == 0 ? IO_COPY : IO_EMULATED_COPY;
    char name[40];
    snprintf(name, sizeof name, "copy-semantics-%ld", (long)getpid());
    int ends[2];
    pid_t child = pipe(ends) == 0 ? fork() : -1; /* before the library is used */
    if (child < 0) {
        perror(argv[0]);
        return 1;
    }
    if (child == 0) {
        close(ends[1]); /* so that the read above ends if the parent does */
        return serve(name, ends[0]);
    }
    io_server_t server;
    MUST(io_connect(0, name, 20000000000, &server)); /* waits up to 20 seconds for the child */
    ask(server, scheme, ends[1]);
    MUST(io_disconnect(server)); /* which ends the child */
    int status;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
