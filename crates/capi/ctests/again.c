/* Servers that go and come again, and options of connecting. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static const struct io_service_mapping services[] = {{.name = "other", .flags = 0}, {.name = "any", .flags = IO_READ}};
static char name[40];

/* A server that begins when it is told, and serves until it is killed. Its first reply is its number. */
struct later {
    pid_t pid;
    int go;
};
static struct later later(char number, const struct io_service_mapping *with, size_t count) {
    int go[2];
    char told;
    OK(pipe(go));
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(go[1]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (read(go[0], &told, 1) != 1)
            _exit(0);
        io_server_t server;
        OK(io_server_register(name, count, with, 0, &server));
        struct io_message message;
        while (io_server(server, NULL, &message, 1) == 0) {
            struct io_reply_message reply = {.request = message.request, .argument = &number, .argument_length = message.room};
            if (message.what == IO_REQUEST)
                OK(io_server(server, &reply, NULL, 0));
        }
        _exit(1);
    }
    close(go[0]);
    return (struct later){pid, go[1]};
}
static void begin(const struct later *server) { CHECK(write(server->go, "g", 1) == 1); }
static void end(const struct later *server) {
    OK(kill(server->pid, SIGKILL));
    CHECK(waitpid(server->pid, NULL, 0) == server->pid);
    close(server->go);
}

/* Which of the servers replies, which must be one that was begun later. */
static char ask(io_server_t server, uint32_t service) {
    char number = 0;
    struct io_buffer_header header = {.in_arg = &number, .in_arg_length = 1};
    struct io_buffer_header *bufv[] = {&header};
    /* The death may not have been seen when the request is made; then it may have been done, as far as the client knows. */
    while (io_request(server, service, 1, bufv, IO_FOREVER, NULL) != 0)
        CHECK(errno == ECONNRESET);
    return number;
}

/* The inode of the memory object that lies at an address of a process; or, if `object` is not 0, whether that process has the object
 * mapped anywhere. */
static unsigned long mapped(pid_t pid, const void *address, unsigned long object) {
    char path[40], line[4096];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "r");
    CHECK(maps);
    unsigned long found = 0, from, to, inode;
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &from, &to, &inode) == 3 &&
            (object ? inode == object : from <= (unsigned long)address && (unsigned long)address < to))
            found = inode;
    fclose(maps);
    return found;
}

int main(void) {
    snprintf(name, sizeof name, "again-%d", (int)getpid());
    struct later first = later('1', services, 2), second = later('2', services, 2), third = later('3', services, 1);
    struct io_connect_options options = {.size = sizeof options, .wait = 60000000000, .flags = IO_RECONNECTING};
    io_server_t server, plain, untrusted;
    begin(&first);
    OK(io_connect_with(0, name, &options, &server));
    OK(io_connect_with(0, name, NULL, &plain));
    int service = io_service(server, "any");
    CHECK(service == 1 && ask(server, 1) == '1' && ask(plain, 1) == '1');

    /* The same number names the server that comes next; a connection that is not to be made anew stays at its end. */
    end(&first);
    begin(&second);
    CHECK(ask(server, 1) == '2' && ask(server, 1) == '2' && io_is_gone(server) == 0);
    while (!io_is_gone(plain))
        usleep(1000);
    FAILS(EPIPE, io_request(plain, 1, 0, NULL, IO_FOREVER, NULL));
    OK(io_disconnect(plain));

    /* Nothing is shown to a server that is not trusted: the kernel copies. */
    struct io_connect_options careful = {.size = sizeof careful, .wait = IO_FOREVER, .timeout = 60000000000, .flags = IO_UNTRUSTED};
    OK(io_connect_with(0, name, &careful, &untrusted));
    const size_t length = 1u << 20;
    unsigned char *bytes = io_allocate(0, length);
    memset(bytes, 7, length);
    struct native out;
    struct io_buffer_header *bufv[] = {native(&out, IO_OUT, IO_EMULATED_COPY, bytes, length)};
    out.element.flags = IO_HELD;
    unsigned long object = mapped(getpid(), bytes, 0);
    CHECK(object != 0);
    OK(io_request(untrusted, 1, 1, bufv, IO_FOREVER, NULL));
    CHECK(!mapped(second.pid, NULL, object));
    OK(io_request(server, 1, 1, bufv, IO_FOREVER, NULL));
    CHECK(out.receipt.copied == 0 && mapped(second.pid, NULL, object));

    /* A buffer that is given by value goes along when the request is made anew. */
    out.element.flags = IO_OWNED;
    OK(io_request(server, 1, 1, bufv, IO_FOREVER, NULL));
    CHECK(out.receipt.copied == 0 && out.element.location.native.addr == bytes);
    OK(io_disconnect(untrusted));
    OK(io_free(bytes));

    /* A server that does not answer is waited for as long as the caller says. */
    struct io_connect_options hasty = {.size = sizeof hasty, .timeout = 1000000};
    int status;
    CHECK(kill(second.pid, SIGSTOP) == 0 && waitpid(second.pid, &status, WUNTRACED) == second.pid && WIFSTOPPED(status));
    FAILS(EHOSTDOWN, io_connect_with(0, name, &hasty, &plain));
    OK(kill(second.pid, SIGCONT));

    /* What is wrong. */
    FAILS(EINVAL, io_connect_with(0, name, &(struct io_connect_options){.size = 8}, &plain));
    FAILS(EINVAL, io_connect_with(0, name, &(struct io_connect_options){.size = sizeof options, .flags = 4}, &plain));
    FAILS(EINVAL, io_connect_with(0, NULL, &options, &plain));
    FAILS(EBADF, io_connect_with(77777, name, &options, &plain));
    FAILS(ENOENT, io_connect_with(0, "nobody-at-all", &hasty, &plain));

    /* A server with other services under these numbers is not asked for them. */
    end(&second);
    begin(&third);
    while (!io_is_gone(server))
        usleep(1000);
    FAILS(ENOENT, io_request(server, 1, 0, NULL, IO_FOREVER, NULL));
    OK(io_disconnect(server));
    FAILS(EBADF, io_request(server, 1, 0, NULL, IO_FOREVER, NULL));
    end(&third);
    return 0;
}
