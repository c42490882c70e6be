/* Makes wrong requests of a server of texts, kills it, and prints what each failure says; ask.rs prints the same.
 *
 *     ask NAME PID
 */
#include <signal.h>

#include "check.h"

/* Prints the errno with which the server has replied, or 0, and the sentence. */
static void failed(int returned) {
    CHECK(returned == -1);
    printf("%d: %s\n", strncmp(io_error_text(), "the server replied", 18) == 0 ? errno : 0, io_error_text());
}

/* Stops a process that is no child of this one, and waits until it has stopped. */
static void stop(pid_t pid) {
    char path[40], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    OK(kill(pid, SIGSTOP));
    while (state != 'T') {
        FILE *stat = fopen(path, "r");
        CHECK(stat && fscanf(stat, "%*d (%*[^)]) %c", &state) == 1);
        fclose(stat);
    }
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    pid_t pid = atoi(argv[2]);
    io_server_t server;
    OK(io_connect(0, argv[1], 60000000000, &server));
    int reverse = io_service(server, "reverse"), digest = io_service(server, "digest");
    CHECK(reverse >= 0 && digest >= 0);
    failed(io_service(server, "shout"));

    char text[] = "text", room[80];
    struct native out, in;
    struct io_buffer_header *bufv[] = {native(&out, IO_OUT, IO_COPY, text, 4), native(&in, IO_IN, IO_COPY, room, 5)};
    failed(io_request(server, 2, 0, NULL, IO_FOREVER, NULL));
    failed(io_request(server, (uint32_t)digest, 0, NULL, IO_FOREVER, NULL));
    failed(io_request(server, (uint32_t)digest, 1, bufv + 1, IO_FOREVER, NULL));
    failed(io_request(server, (uint32_t)reverse, 1, bufv, IO_FOREVER, NULL));
    failed(io_request(server, (uint32_t)reverse, 2, bufv, IO_FOREVER, NULL));
    out.header.in_arg = room;
    out.header.in_arg_length = 5;
    failed(io_request(server, (uint32_t)digest, 1, bufv, IO_FOREVER, NULL));

    /* The server is stopped, so that it is killed with the request in its hands. */
    out.header.in_arg_length = sizeof room;
    stop(pid);
    io_request_t request;
    CHECK(io_request(server, (uint32_t)digest, 1, bufv, IO_FOREVER, &request) == IO_PENDING);
    OK(kill(pid, SIGKILL));
    failed(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    failed(io_request(server, (uint32_t)digest, 1, bufv, IO_FOREVER, NULL));
    return 0;
}
