/* Progress: the client of a server in another process hears how far a request has come, gives up the rest, and has what is final. */
#include <pthread.h>

#include "holder.h"

enum { LENGTH = 300000, HALF = LENGTH / 2 };

static struct place place;
static unsigned char *mine, theirs[LENGTH]; /* the client's buffer, and what the server fills it with */
static struct native buffer;
static uint64_t number;
static io_request_t request;

static void submit(uint32_t direction, io_scheme_t scheme) {
    memset(mine, 'm', LENGTH);
    struct io_buffer_header *bufv[] = {native(&buffer, direction, scheme, mine, LENGTH)};
    number = place.next_number++;
    buffer.header.out_arg = &number;
    buffer.header.out_arg_length = sizeof number;
    CHECK(io_request(place.server, HOLD, 1, bufv, IO_FOREVER, &request) == IO_PENDING);
    if (direction == IO_IN)
        tell(&place, WRITE, number, 0, 0, theirs, LENGTH);
}

static void come_to(size_t length) { tell(&place, PROGRESS, number, 0, 0, NULL, length); }
static void reply(int how) { tell(&place, (uint64_t)how, number, 0, 0, NULL, 0); }

/* The first bytes of the buffer are the server's, and no others. */
static void has(size_t length) {
    for (size_t i = 0; i < LENGTH; i++)
        CHECK(mine[i] == (i < length ? theirs[i] : 'm'));
}

/* The client hears of so many bytes, of which it had heard of fewer. */
static void hears(size_t before, size_t length) {
    size_t come = 0;
    CHECK(io_wait_for_progress(request, 0, before, IO_FOREVER, &come) == IO_PENDING && come == length);
}

/* What is final is told in parts, and is all that comes when the client gives up the rest. */
static void parts_come(io_scheme_t scheme) {
    size_t come = 1;
    submit(IO_IN, scheme);
    CHECK(io_wait_for_progress(request, 0, 0, 0, &come) == IO_PENDING && come == 0);
    CHECK(io_wait_for_progress(request, 0, 0, 1000000, NULL) == IO_PENDING);
    for (size_t part = 1; part < LENGTH; part += HALF - 1) {
        come_to(part);
        hears(come, part);
        come = part;
    }
    has(0); /* it is a number, no data */
    FAILS(EBUSY, io_free(mine));
    CHECK(io_abort(request) == 1 && buffer.actual == come);
    has(come);
    FAILS(EBADF, io_wait_for_progress(request, 0, 0, 0, &come));
}

/* Word of progress ends a wait, and so does the reply. A success that says nothing of a buffer passes what is final. */
static void *come_later(void *nothing) {
    usleep(10000);
    come_to(HALF);
    return nothing;
}
static void *reply_later(void *nothing) {
    usleep(10000);
    reply(REPLY);
    return nothing;
}
static void waits_end(uint32_t direction) {
    pthread_t thread;
    size_t come = 0;
    submit(direction, IO_EMULATED_COPY);
    CHECK(pthread_create(&thread, NULL, come_later, NULL) == 0);
    hears(0, HALF);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, reply_later, NULL) == 0);
    OK(io_wait_for_progress(request, 0, HALF, IO_FOREVER, &come));
    CHECK(pthread_join(thread, NULL) == 0 && come == HALF);
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    CHECK(buffer.actual == HALF);
    has(direction == IO_IN ? HALF : 0);
}

/* A failure passes nothing, and says how far it had come until the request has ended. */
static void failures_say_how_far(void) {
    size_t come = 0;
    submit(IO_IN, IO_EMULATED_COPY);
    come_to(HALF);
    reply(FAIL);
    OK(io_wait_for_progress(request, 0, SIZE_MAX, IO_FOREVER, &come));
    CHECK(come == HALF);
    FAILS(FAILURE, io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    CHECK(buffer.actual == 0);
    has(0);
    /* io_abort says why, too: once, it returned 0, and the sentence was that of an older failure. */
    submit(IO_IN, IO_EMULATED_COPY);
    reply(FAIL);
    OK(io_wait_for_progress(request, 0, SIZE_MAX, IO_FOREVER, &come));
    errno = 0;
    OK(io_abort(request));
    CHECK(errno == FAILURE && strstr(io_error_text(), "as it was told"));
}

/* A server that has its client's input filled by another one, and tells the client of progress, lets the request go when the other one has
 * failed: of what was said to be final nothing has come. */
static void *give_up(void *request_of) {
    CHECK(io_abort(*(io_request_t *)request_of) == 0);
    return NULL;
}
static void errors_passed_on_pass_nothing(void) {
    static const struct io_service_mapping service = {.name = "forward", .flags = IO_READ | IO_WRITE};
    io_server_t contractor, holder; /* of one interface */
    char name[40];
    snprintf(name, sizeof name, "holder-%d", (int)getpid());
    OK(io_connect(0, name, IO_FOREVER, &holder));
    OK(io_server_register(NULL, 1, &service, 0, &contractor));
    memset(mine, 'm', LENGTH);
    struct native whole, part = {0};
    struct io_buffer_header *wholes[] = {native(&whole, IO_IN, IO_COPY, mine, LENGTH)}, *parts[] = {&part.header};
    io_request_t asked;
    CHECK(io_request(contractor, 0, 1, wholes, IO_FOREVER, &asked) == IO_PENDING);
    struct io_message message;
    OK(io_server(contractor, NULL, &message, 1));
    number = place.next_number++;
    part.element = (struct io_scatter_gather){.scheme = IO_FRAGMENT, .length = HALF};
    part.element.location.fragment = (struct io_fragment_location){.server = contractor, .request = message.request};
    part.header = (struct io_buffer_header){.first_sg = &part.element, .direction = IO_IN, .out_arg = &number};
    part.header.out_arg_length = sizeof number;
    CHECK(io_request(holder, HOLD, 1, parts, IO_FOREVER, &request) == IO_PENDING);
    tell(&place, WRITE, number, 0, 0, theirs, HALF);
    come_to(1000);
    hears(0, 1000);
    OK(io_progress(contractor, message.request, 0, 1000));
    reply(FAIL);
    FAILS(FAILURE, io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, give_up, &asked) == 0);
    while (io_is_aborted(contractor, message.request) == 0)
        usleep(100);
    struct io_reply_message gone = {.request = message.request, .error = ECANCELED};
    OK(io_server(contractor, &gone, NULL, 0));
    CHECK(pthread_join(thread, NULL) == 0 && whole.actual == 0);
    has(0);
    OK(io_server_unregister(contractor));
    OK(io_disconnect(holder));
}

/* Wrong buffers, requests and servers, and what is the parent's. */
static void misuse(void) {
    submit(IO_OUT, IO_COPY);
    FAILS(EINVAL, io_wait_for_progress(request, 1, 0, IO_FOREVER, NULL));
    CHECK(strstr(io_error_text(), "no buffer 1"));
    FAILS(EBADF, io_wait_for_progress(request + 1000, 0, 0, 0, NULL));
    FAILS(EINVAL, io_progress(place.server, request, 0, 0)); /* the server is another program's */
    pid_t child = fork();
    if (child == 0) {
        FAILS(ECHILD, io_wait_for_progress(request, 0, 0, IO_FOREVER, NULL));
        FAILS(ECHILD, io_progress(place.server, request, 0, 0));
        execlp("true", "true", (char *)NULL); /* so that leaks are not looked for in what the parent's threads had */
        _exit(1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    come_to(HALF);
    hears(0, HALF); /* the parent notices nothing */
    reply(REPLY);
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
}

int main(void) {
    alarm(240); /* a wait that does not end would last for ever */
    struct io_options options = {.size = sizeof options, .abort_timeout = 60000000000};
    place_open(&place, 1, &options);
    mine = io_allocate(place.interface, LENGTH);
    CHECK(mine);
    for (size_t i = 0; i < LENGTH; i++)
        theirs[i] = (unsigned char)(i % 100);
    parts_come(IO_COPY);
    parts_come(IO_EMULATED_COPY);
    waits_end(IO_OUT);
    waits_end(IO_IN);
    failures_say_how_far();
    errors_passed_on_pass_nothing();
    misuse();
    OK(io_free(mine));
    place_close(&place);
    return 0;
}
