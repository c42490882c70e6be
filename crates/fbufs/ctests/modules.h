/* Modules and a driver for tests of streams, and what the tests look at. */
#ifndef MODULES_H
#define MODULES_H

#include <sys/stream.h>

#define HEADER "header: "

/* Puts a header in front of what goes down, and takes it off what comes up. */
extern struct streamtab header_module;

/* Counts what passes; a counts structure is its queues' q_ptr. */
struct counts {
    size_t down, down_bytes, up, up_bytes;
};
extern struct streamtab count_module;

/* Queues what passes, either way, until the next one has room. */
extern struct streamtab queue_module;

/* A driver that sends up again what has come down. It serves so many messages more, and is opened by a number other than 0. */
extern struct streamtab loop_driver;
extern int loop_budget;
extern queue_t *loop_queue;
/* Which queues it was last told to flush, and where the bytes were that it served last. */
extern int loop_flushed;
extern unsigned char *loop_place;

#endif
