/* A server that keeps what it is sent: it stores and fetches, holds requests, and fails. */
#ifndef KEEPER_H
#define KEEPER_H

#include <pthread.h>

#include "check.h"

enum { STORE, FETCH, HOLD, RELEASE, FAIL, GREET };
static const struct io_service_mapping keeper_services[] = {
    {.name = "store", .flags = IO_READ},
    {.name = "fetch", .flags = IO_WRITE},
    {.name = "hold", .flags = IO_READ | IO_WRITE}, /* keeps the request */
    {.name = "release", .flags = 0},               /* replies to all that are kept, with what they output */
    {.name = "fail", .flags = 0},
    {.name = "greet", .flags = 0},
};
#define KEPT_MOST (64u << 20)

struct kept {
    unsigned char *bytes;
    size_t length;
    struct io_message held[64];
    size_t held_count;
};

/* Reads what a request outputs, and fills its inputs with that; replies. */
static inline void keep_and_reply(io_server_t server, struct kept *kept, const struct io_message *message, int stores) {
    size_t actual[16] = {0};
    for (size_t i = 0; i < message->bufc && i < 16; i++) {
        if (message->bufv[i].direction == IO_OUT) {
            CHECK(message->bufv[i].length <= KEPT_MOST);
            actual[i] = gather(&message->bufv[i], kept->bytes);
            if (stores)
                kept->length = actual[i];
        } else {
            OK(io_ready(server, message->request, i));
            actual[i] = scatter(&message->bufv[i], 0, kept->bytes, kept->length);
        }
    }
    struct io_reply_message reply = {.request = message->request, .actualc = message->bufc, .actualv = actual};
    OK(io_server(server, &reply, NULL, 0));
}

/* Serves until it is unregistered. */
static inline void keeper_serve(io_server_t server) {
    struct kept *kept = calloc(1, sizeof *kept);
    kept->bytes = malloc(KEPT_MOST);
    struct io_message message;
    while (io_server(server, NULL, &message, 1) == 0) {
        if (message.what == IO_ABORT) {
            for (size_t i = 0; i < kept->held_count; i++)
                if (kept->held[i].request == message.request) {
                    struct io_reply_message reply = {.request = message.request, .error = ECANCELED};
                    OK(io_server(server, &reply, NULL, 0));
                    kept->held[i] = kept->held[--kept->held_count];
                    break;
                }
        }
        if (message.what != IO_REQUEST)
            continue;
        struct io_reply_message reply = {.request = message.request};
        switch (message.service) {
        case STORE:
        case FETCH:
            keep_and_reply(server, kept, &message, message.service == STORE);
            break;
        case HOLD:
            CHECK(kept->held_count < 64);
            kept->held[kept->held_count++] = message;
            break;
        case RELEASE:
            for (size_t i = 0; i < kept->held_count; i++)
                keep_and_reply(server, kept, &kept->held[i], 1);
            kept->held_count = 0;
            OK(io_server(server, &reply, NULL, 0));
            break;
        case FAIL:
            reply.error = ENOSPC;
            reply.error_text = "the disk is full";
            OK(io_server(server, &reply, NULL, 0));
            break;
        case GREET: {
            char greeting[100];
            int length = snprintf(greeting, sizeof greeting, "hello %.*s", (int)message.argument_length,
                                  message.argument_length ? (const char *)message.argument : "");
            reply.argument = greeting;
            reply.argument_length = (size_t)length;
            if (message.room < (size_t)length)
                FAILS(EMSGSIZE, io_server(server, &reply, NULL, 0));
            else
                OK(io_server(server, &reply, NULL, 0));
            break;
        }
        }
    }
    CHECK(errno == ECANCELED || errno == EBADF); /* unregistered while this thread waited, or before */
    free(kept->bytes);
    free(kept);
}

static inline void *keeper_thread(void *server) {
    keeper_serve(*(io_server_t *)server);
    return NULL;
}

/* Starts a keeper in a thread; other processes find it under the name, if there is one. */
static inline pthread_t keeper_start(const char *name, io_server_t *server) {
    pthread_t thread;
    OK(io_server_register(name, sizeof keeper_services / sizeof *keeper_services, keeper_services, 0, server));
    CHECK(pthread_create(&thread, NULL, keeper_thread, server) == 0);
    return thread;
}

static inline void keeper_end(io_server_t *server, pthread_t thread) {
    OK(io_server_unregister(*server));
    pthread_join(thread, NULL);
}

#endif
