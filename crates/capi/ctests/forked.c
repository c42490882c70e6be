/* A child that neither execs nor exits keeps nothing of its parent's open: the parent's death is seen at once, and its server's name is
 * free. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static const struct io_service_mapping services[] = {{.name = "nothing", .flags = 0}};
static char name[40], childs[40];
static int end[2], ready[2]; /* children live until the test closes the first; they say on the second that they are there */

/* A child of the calling process that does nothing. */
static void leave_child(void) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        char byte;
        close(end[1]);
        CHECK(write(ready[1], "r", 1) == 1);
        ssize_t left = read(end[0], &byte, 1);
        _exit(left == 0 ? 0 : 1);
    }
}

static void await_child(void) {
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
}

static void reply(io_server_t server, const struct io_message *message) {
    struct io_reply_message reply = {.request = message->request};
    OK(io_server(server, &reply, NULL, 0));
}

static pid_t client(void) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        io_server_t server;
        OK(io_connect(0, name, 60000000000, &server));
        OK(io_request(server, 0, 0, NULL, IO_FOREVER, NULL));
        leave_child();
        pause();
        _exit(1);
    }
    return pid;
}

static pid_t served(void) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        io_server_t server;
        struct io_message message;
        OK(io_server_register(childs, 1, services, 0, &server));
        for (int served = 0;;) {
            OK(io_server(server, NULL, &message, 1));
            if (message.what != IO_REQUEST)
                continue;
            reply(server, &message);
            if (served++ == 0)
                leave_child();
        }
    }
    return pid;
}

static void kill_and_wait(pid_t pid) {
    OK(kill(pid, SIGKILL));
    CHECK(waitpid(pid, NULL, 0) == pid);
}

int main(void) {
    snprintf(name, sizeof name, "forked-%d", (int)getpid());
    snprintf(childs, sizeof childs, "forked-child-%d", (int)getpid());
    OK(pipe(end));
    OK(pipe(ready));
    pid_t asking = client(), serving = served();
    alarm(120); /* a death that is not seen would be waited for for ever */

    /* A server sees the death of its client. */
    io_server_t server, other;
    struct io_message message;
    OK(io_server_register(name, 1, services, 0, &server));
    do
        OK(io_server(server, NULL, &message, 1));
    while (message.what != IO_REQUEST);
    reply(server, &message);
    uint64_t number = message.client;
    await_child();
    kill_and_wait(asking);
    do
        OK(io_server(server, NULL, &message, 1));
    while (message.what != IO_DEPARTURE);
    CHECK(message.client == number);

    /* A client sees the death of its server, and another process can have the server's name. */
    OK(io_connect(0, childs, 60000000000, &other));
    OK(io_request(other, 0, 0, NULL, IO_FOREVER, NULL));
    await_child();
    kill_and_wait(serving);
    while (!io_is_gone(other))
        usleep(1000);
    OK(io_disconnect(other));
    OK(io_server_register(childs, 1, services, 0, &other));
    OK(io_server_unregister(other));
    OK(io_server_unregister(server));
    close(end[1]);
    return 0;
}
