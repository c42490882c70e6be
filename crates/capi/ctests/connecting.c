/* What io_connect fails with. */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static const struct io_service_mapping services[] = {{.name = "nothing", .flags = 0}};

/* Serves until it is killed; tells the parent when it can be connected to, and takes no request before it is told to. */
static pid_t serve(int *is_ready, int *go_on) {
    int ready[2], told[2];
    CHECK(pipe(ready) == 0 && pipe(told) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        io_server_t server;
        OK(io_server_register("one", 1, services, 0, &server));
        char byte;
        CHECK(write(ready[1], "", 1) == 1 && read(told[0], &byte, 1) == 1);
        struct io_message message;
        while (io_server(server, NULL, &message, 1) == 0) {
            struct io_reply_message reply = {.request = message.request};
            if (message.what == IO_REQUEST)
                OK(io_server(server, &reply, NULL, 0));
        }
        _exit(1);
    }
    *is_ready = ready[0];
    *go_on = told[1];
    return child;
}

/* A server takes so many clients of one user, and another one when one of them has left. */
static void crowd(void) {
    enum { MOST = 200 };
    io_server_t clients[MOST], other;
    int count = 0;
    while (count < MOST && io_connect(0, "one", 0, &clients[count]) == 0)
        count++;
    CHECK(count > 1 && count < MOST && errno == EBUSY && *io_error_text());
    FAILS(EBUSY, io_connect(0, "one", 0, &other));
    OK(io_disconnect(clients[--count]));
    OK(io_connect(0, "one", 20000000000, &other)); /* the server may not have seen yet that one has left */
    OK(io_request(other, 0, 0, NULL, IO_FOREVER, NULL));
    OK(io_disconnect(other));
    while (count > 0)
        OK(io_disconnect(clients[--count]));
}

int main(void) {
    char directory[] = "/tmp/genie-c-XXXXXX", command[100], byte;
    CHECK(mkdtemp(directory) && setenv("GENIE_RUNTIME_DIR", directory, 1) == 0);
    int is_ready, go_on;
    pid_t child = serve(&is_ready, &go_on); /* first: it forks */
    CHECK(read(is_ready, &byte, 1) == 1);
    io_server_t server;

    /* Clients come and go while no thread of the server's is in io_server. */
    for (int i = 0; i < 3; i++) {
        OK(io_connect(0, "one", 0, &server));
        OK(io_disconnect(server));
    }
    CHECK(write(go_on, "", 1) == 1);
    FAILS(ENOENT, io_connect(0, "two", 0, &server));
    FAILS(EINVAL, io_connect(0, "no/name", 0, &server));
    if (!is_brief()) /* valgrind has too few addresses for so many */
        crowd();

    int status;
    CHECK(kill(child, SIGSTOP) == 0 && waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    FAILS(EHOSTDOWN, io_connect(0, "one", 0, &server));
    CHECK(kill(child, SIGCONT) == 0);
    OK(io_connect(0, "one", 20000000000, &server));
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    FAILS(ENOENT, io_connect(0, "one", 0, &server));

    CHECK(chmod(directory, 0) == 0 && setenv("GENIE_RUNTIME_DIR", "/dev/null/nowhere", 1) == 0);
    FAILS(EACCES, io_connect(0, "one", 0, &server));

    CHECK(!io_allocate(0, (size_t)1 << 50) && errno == ENOMEM && *io_error_text());

    snprintf(command, sizeof command, "chmod 700 %s && rm -r %s", directory, directory);
    CHECK(system(command) == 0);
    return 0;
}
