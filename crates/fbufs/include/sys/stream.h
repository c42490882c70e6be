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
 * One thread at a time uses a message. Blocks of one buffer may be in several threads' hands; while there are several, none of
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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FBUFS_SYS_STREAM_H */
