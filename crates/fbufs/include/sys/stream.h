#ifndef FBUFS_SYS_STREAM_H
#define FBUFS_SYS_STREAM_H

#include <fbufs.h>

/* streams: modules and messages of STREAMS, for programs that use libfbufs.
 *
 * This file is made from the library's sources; do not edit it.
 *
 * A module that was written for the STREAMS of UNIX System V finds its structures and routines here, by their names and with their
 * meaning; the manuals of System V describe them (DDI/DKI, sections D3 and D4). A message is a chain of blocks (b_cont); a block names the
 * bytes between b_rptr and b_wptr of a buffer, and several blocks may name one buffer. Here a buffer is an fbuf (allocb, uf_allocb,
 * uf_esballoc), or memory of the program's own (esballoc). uf_putmsg writes a message, and uf_msgbuf makes it an fbuf.
 *
 * A stream is a driver with modules above it (struct streamtab), each with two queues. uf_stream_open, uf_stream_push and uf_stream_run
 * do what the kernel of System V does: they build streams and run service procedures, in the program's thread. What reaches over
 * the edges of streams, or needs an interrupt, is absent: multiplexors, flow control of single bands, bufcall, timeouts, and ioctl.
 *
 * One thread at a time uses a message, and one a stream. Blocks of one buffer may be in several threads' hands; while there are several, none of
 * them stores into the buffer. The library calls functions of these names by others, so that a program may have functions of
 * its own that are called so. Where a routine fails for want of memory, errno and uf_error_text say why.
 *
 * In a child made by fork, the messages of its parent have zeros where fbufs were. It can free them, and uf_putmsg and
 * uf_msgbuf refuse them (ESTALE).
 */

typedef unsigned char uchar_t;
typedef unsigned short ushort_t;
typedef unsigned int uint_t;
typedef unsigned long ulong_t;

/* Credentials of whoever opens; NULL here. */
typedef struct cred cred_t;

struct queue;

/* No message comes to a module before its open procedure is called, nor after its close procedure was. */
#define qprocson(q) ((void)(q))
#define qprocsoff(q) ((void)(q))

// Data.
#define M_DATA 0

// Control information, perhaps with data behind it.
#define M_PROTO 1

// A request to a driver to send a break.
#define M_BREAK 8

// A request to send a signal.
#define M_SIG 11

// A request for a delay on output.
#define M_DELAY 12

// Control between modules.
#define M_CTL 13

// A request by ioctl.
#define M_IOCTL 14

// Options of the stream head.
#define M_SETOPTS 16

// The first type of high priority.
#define QPCTL 128

// An ioctl was done.
#define M_IOCACK 129

// An ioctl was refused.
#define M_IOCNAK 130

// Control information of high priority.
#define M_PCPROTO 131

// A request to send a signal, of high priority.
#define M_PCSIG 132

// The program reads.
#define M_READ 133

// A request to flush queues; the first byte says which.
#define M_FLUSH 134

// A request to stop output.
#define M_STOP 135

// A request to start output.
#define M_START 136

// The line is gone.
#define M_HANGUP 137

// An error for all later calls.
#define M_ERROR 138

// A request to copy from the program.
#define M_COPYIN 139

// A request to copy to the program.
#define M_COPYOUT 140

// Data of an ioctl.
#define M_IOCDATA 141

// Priorities of allocation, which make no difference here.
#define BPRI_LO 1

// The same.
#define BPRI_MED 2

// The same.
#define BPRI_HI 3

// The queue is enabled: its service procedure is to run.
#define QENAB 1

// The service procedure has found the queue empty, and is to run when there is a message.
#define QWANTR 2

// A module has found the queue full, and is to be enabled when it is not.
#define QWANTW 4

// The queue is full.
#define QFULL 8

// It is a read queue.
#define QREADR 16

// Messages do not enable the queue, but those of high priority.
#define QNOENB 64

// In the first byte of M_FLUSH: read queues.
#define FLUSHR 1

// In the first byte of M_FLUSH: write queues.
#define FLUSHW 2

// Of flushq: messages of data alone.
#define FLUSHDATA 0

// Of flushq: all messages.
#define FLUSHALL 1

// The greatest length of packets, where there is none.
#define INFPSZ -1

// What qi_qopen is told where a module is pushed.
#define MODOPEN 1

// Credentials of whoever opens; NULL here.
struct cred;

// What a module counts; nothing here does.
struct module_stat;

// How memory of the program's is freed.
struct free_rtn {
    // What frees it.
    void (*free_func)(char*);
    // With what it is called.
    char *free_arg;
};

// A data block: a buffer.
struct datab {
    // How the buffer is freed, if it is the program's.
    struct free_rtn *db_frtnp;
    // Where it begins.
    unsigned char *db_base;
    // Where it ends.
    unsigned char *db_lim;
    // How many message blocks name it.
    unsigned int db_ref;
    // The type of the message.
    unsigned char db_type;
};

// A message block: a part of a buffer.
struct msgb {
    // The next message on a queue.
    struct msgb *b_next;
    // The one in front on a queue.
    struct msgb *b_prev;
    // The next block of the message.
    struct msgb *b_cont;
    // Where the block's bytes begin.
    unsigned char *b_rptr;
    // Where they end.
    unsigned char *b_wptr;
    // The buffer.
    struct datab *b_datap;
    // The message's priority band.
    unsigned char b_band;
    // Flags of the message, for modules.
    unsigned short b_flag;
};

// A message block: a part of a buffer. A message is known by its first one.
typedef struct msgb mblk_t;

// How memory of the program's is freed.
typedef struct free_rtn frtn_t;

// What a module is like.
struct module_info {
    // Its number.
    unsigned short mi_idnum;
    // Its name.
    char *mi_idname;
    // The least length of packets.
    ssize_t mi_minpsz;
    // The greatest length of packets.
    ssize_t mi_maxpsz;
    // From how many bytes on a queue is full.
    size_t mi_hiwat;
    // With how many bytes a queue that was full takes more.
    size_t mi_lowat;
};

// The procedures of a module, for one of its queues. Those to open and to close are of the read queue.
struct qinit {
    // Takes a message.
    int (*qi_putp)(struct queue*, struct msgb*);
    // Serves the messages of the queue; or NULL.
    int (*qi_srvp)(struct queue*);
    // Opens; returns 0 or an error's number; or NULL.
    int (*qi_qopen)(struct queue*, dev_t*, int, int, struct cred*);
    // Closes; or NULL.
    int (*qi_qclose)(struct queue*, int, struct cred*);
    // Is not called.
    int (*qi_qadmin)(void);
    // What the module is like.
    struct module_info *qi_minfo;
    // What it counts.
    struct module_stat *qi_mstat;
};

// A queue.
struct queue {
    // Its procedures.
    struct qinit *q_qinfo;
    // The first message.
    struct msgb *q_first;
    // The last message.
    struct msgb *q_last;
    // The next module's queue.
    struct queue *q_next;
    // The next queue that is enabled.
    struct queue *q_link;
    // The module's own.
    void *q_ptr;
    // How many bytes its messages have.
    size_t q_count;
    // QFULL and others.
    unsigned int q_flag;
    // The least length of packets.
    ssize_t q_minpsz;
    // The greatest length of packets.
    ssize_t q_maxpsz;
    // From how many bytes on it is full.
    size_t q_hiwat;
    // With how many bytes it takes more, when it was full.
    size_t q_lowat;
};

// A queue.
typedef struct queue queue_t;

// A module or a driver.
struct streamtab {
    // Of the read queue.
    struct qinit *st_rdinit;
    // Of the write queue.
    struct qinit *st_wrinit;
    // The lower read queue of a multiplexor. There are no multiplexors here.
    struct qinit *st_muxrinit;
    // The lower write queue of a multiplexor.
    struct qinit *st_muxwinit;
};

#define allocb fbufs_allocb
#define esballoc fbufs_esballoc
#define dupb fbufs_dupb
#define copyb fbufs_copyb
#define freeb fbufs_freeb
#define datamsg fbufs_datamsg
#define freemsg fbufs_freemsg
#define dupmsg fbufs_dupmsg
#define copymsg fbufs_copymsg
#define linkb fbufs_linkb
#define unlinkb fbufs_unlinkb
#define rmvb fbufs_rmvb
#define msgdsize fbufs_msgdsize
#define adjmsg fbufs_adjmsg
#define pullupmsg fbufs_pullupmsg
#define msgpullup fbufs_msgpullup
#define putq fbufs_putq
#define putbq fbufs_putbq
#define insq fbufs_insq
#define getq fbufs_getq
#define rmvq fbufs_rmvq
#define flushq fbufs_flushq
#define qsize fbufs_qsize
#define qenable fbufs_qenable
#define noenable fbufs_noenable
#define enableok fbufs_enableok
#define canput fbufs_canput
#define canputnext fbufs_canputnext
#define putnext fbufs_putnext
#define qreply fbufs_qreply
#define putctl fbufs_putctl
#define putctl1 fbufs_putctl1
#define putnextctl fbufs_putnextctl
#define putnextctl1 fbufs_putnextctl1
#define RD fbufs_RD
#define WR fbufs_WR
#define OTHERQ fbufs_OTHERQ
#define backq fbufs_backq

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Allocates a block without bytes, in an fbuf with room for size bytes or more.
//
// Returns NULL if there is no room in the pool.
mblk_t *allocb(size_t size, unsigned int pri);

// Makes a block without bytes, with room for size bytes: those of the program's own from base on. When the last block that names them
// is freed, free_func is called with free_arg, both of *frtnp, which stays there until then.
//
// Returns NULL if base or frtnp is NULL.
mblk_t *esballoc(unsigned char *base, size_t size, unsigned int pri, frtn_t *frtnp);

// Makes another block of the same bytes, which shares the buffer.
mblk_t *dupb(mblk_t *bp);

// Makes another block of a buffer of its own, with a copy of the bytes, and as much room on either side.
//
// Returns NULL if there is no room in the pool.
mblk_t *copyb(mblk_t *bp);

// Frees a block, and its buffer if no other block names that.
void freeb(mblk_t *bp);

// Whether a message of this type holds data: M_DATA, M_PROTO, M_PCPROTO or M_DELAY.
int datamsg(unsigned char type);

// Frees all blocks of a message. NULL is no message, and nothing is done.
void freemsg(mblk_t *mp);

// Makes another message of the same bytes, which shares the buffers.
mblk_t *dupmsg(mblk_t *mp);

// Makes another message with a copy of the bytes.
//
// Returns NULL if there is no room in the pool.
mblk_t *copymsg(mblk_t *mp);

// Joins messages: the blocks of bp follow those of mp.
void linkb(mblk_t *mp, mblk_t *bp);

// Takes the first block out of a message; it becomes a message of one block, which is not freed.
//
// Returns the other blocks, or NULL if there are none.
mblk_t *unlinkb(mblk_t *mp);

// Takes the block bp out of a message; it becomes a message of one block, which is not freed.
//
// Returns the message, or NULL if nothing is left of it; or (mblk_t *)-1 if it has no such block, and then nothing has changed.
mblk_t *rmvb(mblk_t *mp, mblk_t *bp);

// Tells how many bytes of data a message has: those of its blocks of type M_DATA.
size_t msgdsize(mblk_t *mp);

// Leaves out the first length bytes of a message, or the last -length if length is negative, of those blocks in front that are of
// the first one's type. Blocks that have no bytes left stay.
//
// Returns 1; or 0 if these blocks have fewer bytes, and then nothing has changed.
int adjmsg(mblk_t *mp, ssize_t length);

// Makes the first length bytes of a message, or all if length is -1, lie in its first block, from a word's boundary on. Copies them, and
// the rest of the first block, into another buffer unless they do so already. Only those blocks in front count that are of the first
// one's type.
//
// Returns 1; or 0 if these blocks have fewer bytes, or there is no room in the pool, and then nothing has changed.
int pullupmsg(mblk_t *mp, ssize_t length);

// Makes another message of the same bytes, copied, the first length of which, or all if length is -1, lie in the first block, from a
// word's boundary on. Only those blocks in front count that are of the first one's type; those behind are copied as they are.
//
// Returns NULL if these blocks have fewer bytes, or there is no room in the pool.
mblk_t *msgpullup(mblk_t *mp, ssize_t length);

// Puts a message on a queue, behind all others of its priority and higher ones, and enables the queue if its service procedure has
// found it empty and noenable was not called; in any case for a message of high priority.
//
// Returns 1.
int putq(queue_t *q, mblk_t *mp);

// Puts a message back on a queue, in front of all others of its priority.
//
// Returns 1.
int putbq(queue_t *q, mblk_t *mp);

// Puts the message mp on a queue in front of emp, a message there, or behind all if emp is NULL.
//
// Returns 1; or 0 if it has another priority than a message may have there, and then nothing has changed.
int insq(queue_t *q, mblk_t *emp, mblk_t *mp);

// Takes the first message off a queue. When the queue has no more than q_lowat bytes and was found full, the nearest queue with a
// service procedure that feeds it is enabled.
//
// Returns the message, or NULL if there is none; then the next one enables the queue.
mblk_t *getq(queue_t *q);

// Takes a message off a queue on which it is.
void rmvq(queue_t *q, mblk_t *mp);

// Frees the messages of a queue: all (FLUSHALL), or those of data (FLUSHDATA).
void flushq(queue_t *q, int flag);

// Tells how many messages a queue has.
int qsize(queue_t *q);

// Has the service procedure of a queue run, if it has one.
void qenable(queue_t *q);

// Keeps messages from enabling a queue, but those of high priority.
void noenable(queue_t *q);

// Lets messages enable a queue again.
void enableok(queue_t *q);

// Tells whether there is room in the nearest queue from q on that has a service procedure, or in the last one of the stream.
//
// Returns 1; or 0 if it is full, and then the caller's queue is enabled when it is not any more.
int canput(queue_t *q);

// As canput, from the next module's queue on.
int canputnext(queue_t *q);

// Gives a message to the next module's put procedure, and returns what that returns. Where there is no next module, the message is freed.
int putnext(queue_t *q, mblk_t *mp);

// Gives a message to the next module in the other direction: putnext of the other queue.
int qreply(queue_t *q, mblk_t *mp);

// Gives the put procedure of q a message of this type, which is none of data but M_DELAY, without bytes.
//
// Returns 1; or 0 if the type is one of data, or there is no memory.
int putctl(queue_t *q, int type);

// As putctl, with a byte.
int putctl1(queue_t *q, int type, int param);

// As putctl, to the next module.
int putnextctl(queue_t *q, int type);

// As putctl1, to the next module.
int putnextctl1(queue_t *q, int type, int param);

// The read queue of a module.
queue_t *RD(queue_t *q);

// The write queue of a module.
queue_t *WR(queue_t *q);

// The other queue of a module.
queue_t *OTHERQ(queue_t *q);

// The queue that feeds q, or NULL.
queue_t *backq(queue_t *q);

// Opens a stream: a head above the driver. The program puts messages in by putnext of the head's write queue (WR), where canputnext
// tells whether there is room, and takes out by getq of its read queue what has come up; M_FLUSH flushes the head's queue and is
// sent down again for the write queues. A head is full from 64 KiB on; q_hiwat and q_lowat of its read queue can be changed.
//
// One thread at a time uses a stream and its queues; modules of one stream do not touch another's.
//
// Returns the head's read queue, by which the stream is known, or NULL with errno set.
//
// Errors: EINVAL (the driver lacks a put procedure, or what it is like), and what qi_qopen says.
queue_t *uf_stream_open(struct streamtab *driver, dev_t dev);

// Pushes a module on a stream, below its head.
//
// Returns 0, or -1 with errno set.
//
// Errors: EFAULT (head is NULL), EINVAL (the module lacks a put procedure, or what it is like), and what qi_qopen says.
int uf_stream_push(queue_t *head, struct streamtab *module);

// Closes the module below a stream's head, and takes it out. The messages on its queues are freed.
//
// Returns 0, or -1 with errno set.
//
// Errors: EFAULT (head is NULL), EINVAL (there is none but the driver).
int uf_stream_pop(queue_t *head);

// Runs the service procedures of a stream's queues that are enabled, each once, in the order in which they were. Those that are enabled
// meanwhile run by the next call. Procedures of modules do not push, pop or close.
//
// Returns how many there were, 0 if none; or -1 with errno set.
//
// Errors: EFAULT (head is NULL).
int uf_stream_run(queue_t *head);

// Closes a stream: its modules from the head on, then its driver. Messages on queues are freed; to have them served first, call
// uf_stream_run until it returns 0.
//
// Returns 0, or -1 with errno set.
//
// Errors: EFAULT (head is NULL).
int uf_stream_close(queue_t *head);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FBUFS_SYS_STREAM_H */
