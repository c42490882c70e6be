#ifndef FBUFS_H
#define FBUFS_H

#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

/* libfbufs: input and output by exchange of buffers.
 *
 * This file is made from the library's sources; do not edit it.
 *
 * The calls are those of M. N. Thadani and Y. A. Khalidi, An Efficient Zero-Copy I/O Framework for UNIX, SMLI TR-95-39, 1995.
 * Reading gives the program a buffer (an fbuf), writing takes one away. Processes that have joined a group (uf_join) pass fbufs
 * through channels without copying them, and Genie servers (uf_open) are given fbufs and give them; sockets, pipes and files work as
 * well, and uf_explain says what is copied.
 *
 * All functions may be called by any thread. Those that fail set errno, and uf_error_text has a sentence that says why. A child made
 * by fork has none of its parent's fbufs (zeros are there, and uf_write refuses them: EFAULT), channels, servers (ESTALE) or
 * groups: it joins and connects anew.
 *
 * No thread may be cancelled (pthread_cancel) while it is in a function of the library, and no callback of the library's may end its
 * thread (pthread_exit): either ends the process. A thread that may be cancelled disables that around its calls
 * (pthread_setcancelstate). No function of the library may be called in a signal handler.
 */

/* What uf_deallocate returns when it fails. */
#define UF_FAILED ((void *)-1)

/* A message of blocks, as of STREAMS: see sys/stream.h. */
typedef struct msgb mblk_t;

// In the result of uf_explain: uf_write of an fbuf passes it without a copy, if uf_allocate_for allocates such fbufs for the descriptor.
#define UF_PASSES_FBUFS 1

// In the result of uf_explain: uf_write of a mapped file passes its pages without a copy.
#define UF_PASSES_FILES 2

// In the result of uf_explain: uf_read gives the pages that were written, or that a server has filled, without a copy.
#define UF_PASSES_INPUT 4

// What a pool is to be like. A zero stands for the usual value.
struct uf_settings {
    // The most bytes of fbufs of all processes that share the pool; 256 MiB. It counts for whoever makes the pool.
    size_t limit;
    // The most bytes of fbufs that this process may hold; as many as the limit.
    size_t quota;
    // Bytes of free fbufs that keep their memory; 32 MiB.
    size_t keep;
    // The most bytes of fbufs that are locked into memory for this process; none.
    size_t locked;
    // The most bytes of fbufs held by this process that are locked; as many as may be locked.
    size_t held_locked;
    // Whether a touch of an fbuf that the program does not have any more is trapped (SIGSEGV): 1, or 0. For debugging: it costs two
    // system calls for each fbuf. GENIE_FBUFS_TRAPS=1 in the environment does the same.
    int traps;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Gives the sentence about this thread's last failure: what was wrong, and what to do about it. It is valid until the thread's next
// failure, and empty if there was none.
const char *uf_error_text(void);

// Says what this process's pool is to be like; before the first call that needs the pool. A pool that is not configured has the
// usual values.
//
// Returns 0, or -1 with errno set.
//
// Errors: EBUSY (the process has its pool already), EFAULT (settings is NULL).
//
// Pointers: settings points to the settings, or is NULL.
int uf_configure(const struct uf_settings *settings);

// Joins the group of this name, of processes of the same user, or founds it: this process's fbufs are of the group's pool from now
// on, and uf_listen and uf_connect make channels with its other processes. Fbufs that the process has already stay what they are.
// A process that exits leaves its groups, and its fbufs go back to the pool.
//
// A group that the process is in already is not joined again; its fbufs are of that group's pool from now on.
//
// Returns 0, or -1 with errno set.
//
// Errors: EINVAL (the name is not 1 to 64 of A-Z a-z 0-9 . _ - with no dot in front; the directory of names is not the user's alone;
// members do not answer for 10 seconds, since they are stopped or lack descriptors), ENAMETOOLONG (directory and name have more than
// 107 bytes), EUSERS (the group has its 64 processes), EFAULT (name is NULL), EAGAIN (no thread can be made), ENOMEM, EMFILE.
//
// Pointers: name points to a string, or is NULL.
int uf_join(const char *name);

// Allocates an fbuf of size bytes, which are whatever they were. It begins at a page; it is the program's until uf_deallocate or
// uf_write takes it.
//
// Returns its address, or NULL with errno set.
//
// Errors: ENOMEM (the pool is used up), EDQUOT (the process has as much of it as uf_configure allows).
void *uf_allocate(size_t size);

// Allocates an fbuf of size bytes, as uf_allocate does, of the kind that uf_write passes without a copy to a descriptor: of the
// channel's pool for a channel, of memory that Genie servers are shown for a server (uf_open), and as uf_allocate for others. It may
// be written to other descriptors, too: see uf_explain.
//
// Returns its address, or NULL with errno set.
//
// Errors: ENOMEM, EDQUOT, EINVAL (fd is a listener, or a duplicate), ESTALE (it is the parent process's), EBADF.
void *uf_allocate_for(int fd,
                      size_t size);

// Returns an fbuf to its pool: all of it, whatever part of it ptr and size name. The program must not touch it any more.
//
// Returns NULL, or UF_FAILED with errno set; then nothing has changed.
//
// Errors: EFAULT (ptr is in no fbuf of this process), EINVAL (the fbuf has fewer than size bytes from there on, or is a mapped file).
void *uf_deallocate(void *ptr,
                    size_t size);

// Reads at most nbytes bytes of what there is to read, and gives an fbuf with them, which is the program's: its address is stored at
// *bufpp. Waits for something to read, unless the descriptor does not block.
//
// From a channel the fbuf itself comes that the other end has written; if it has more than nbytes bytes, the first of them are
// copied, and the others come next. A Genie server (uf_open) fills the fbuf, of at most 1 MiB, in place. From all other descriptors the
// bytes are copied by the kernel.
//
// Returns the number of bytes; 0 at the end, and then *bufpp is NULL; or -1 with errno set.
//
// Errors: EAGAIN, EFAULT (bufpp is NULL), ENOMEM and EDQUOT (as uf_allocate), EBADMSG (another process of the group has spoilt the
// channel), ESTALE (fd is the parent process's), EINVAL (it is a listener, or a duplicate), and those of read. Of a Genie server:
// EBADF (it was opened without a service that gives input), what the server says, EREMOTEIO (its code failed), ECONNRESET and EPIPE (it
// has ended), and others; uf_error_text says which it is.
//
// Pointers: bufpp points to a pointer, or is NULL.
ssize_t uf_read(int fd,
                void **bufpp,
                size_t nbytes);

// Reads as uf_read does, as much as there is to read now; from the kernel's descriptors, no more than a quarter of the pool, and no
// more than the process may still allocate (uf_configure). The rest comes next.
//
// Pointers: As uf_read.
ssize_t uf_get(int fd,
               void **bufpp);

// Writes nbytes bytes from bufp on, which are in an fbuf, or in a file that uf_mmap has mapped.
//
// When all are written, the fbuf is gone, all of it: the program must not touch it any more. What a touch finds is undefined; it is
// trapped (SIGSEGV) where uf_configure or the environment (GENIE_FBUFS_TRAPS=1) asks for that. A mapped file stays mapped.
//
// To a channel the fbuf itself goes, without a copy; it is copied if it is of another pool than the channel is, or a file. To a Genie
// server (uf_open) fbufs go without a copy that uf_allocate_for gave, or that were read from a Genie server, and others are copied; the
// call waits until the server has replied. To other descriptors the kernel copies the bytes of an fbuf, but passes the pages of a
// mapped file to pipes and sockets; what is stored into the file before it is read there may be seen there. See uf_explain.
//
// Returns the number of bytes written, which is nbytes unless the descriptor does not block or fails, or -1 with errno set. After
// fewer bytes than nbytes the fbuf is the program's still, from the first byte on that was not written; after -1, all of it.
//
// Errors: EFAULT (bufp is in no fbuf of this process; other memory is never written), EINVAL (the fbuf has fewer bytes from there
// on; fd is a listener, or a duplicate), EAGAIN, EPIPE (the other end is closed; of a kernel's descriptor, with SIGPIPE), EBADMSG,
// ESTALE, ENOMEM (no buffer for a copy), those of write and sendfile, and of a Genie server those of uf_read. If a server has ended
// or was given up with the fbuf in its hands (ECONNRESET, ETIMEDOUT), the fbuf may be gone: calls then refuse it (EFAULT).
ssize_t uf_write(int fd,
                 const void *bufp,
                 size_t nbytes);

// Maps len bytes of the file fd from off on, a multiple of the page's size, so that parts of them can be written by uf_write like
// fbufs. They can be loaded and not stored into: prot is PROT_READ. flags is MAP_SHARED or MAP_PRIVATE, and addr a hint, which is
// not taken. Where the file ends, or is shortened later, zeros are loaded.
//
// Returns the first address, or MAP_FAILED with errno set.
//
// Errors: EINVAL (len is 0, off is not a multiple of the page's size, or flags are others), EACCES (prot is not PROT_READ), EBADF,
// and those of mmap.
char *uf_mmap(char *addr,
              size_t len,
              int prot,
              int flags,
              int fd,
              off_t off);

// Unmaps what uf_mmap has mapped: all of it. What was written of it stays where it went.
//
// Returns 0, or -1 with errno set.
//
// Errors: EFAULT (addr is not the address of a mapped file), EINVAL (another length was mapped, or it is an fbuf).
int uf_unmap(void *addr, size_t len);

// Makes a channel, both of whose ends are this process's: what is written to one is read from the other.
//
// Channels are named by descriptors, for the calls of this library, uf_close among them, and for poll and epoll: POLLIN when the other
// end has written after uf_read failed with EAGAIN, POLLRDHUP when it is closed, and POLLOUT always. So an event loop makes the
// descriptor non-blocking, reads until EAGAIN, and then waits for POLLIN, or for EPOLLIN with EPOLLET; it may be woken once too often.
// For room, see uf_room. The descriptors are not passed to other calls, nor duplicated, nor used by children made by fork.
//
// Returns 0, or -1 with errno set.
//
// Errors: EUSERS (the pool has its 128 channels), EMFILE, EFAULT (fdv is NULL).
//
// Pointers: fdv points to two ints, or is NULL.
int uf_pair(int *fdv);

// Makes a socket at a path, at which other processes ask for channels by uf_connect: those of the same group (uf_join). A path at which
// a process has listened that is gone is taken over. uf_close removes the path, and a lock file beside it, whose name ends in .lock.
//
// Returns a descriptor, for uf_accept, uf_close and poll (POLLIN: somebody asks), or -1 with errno set.
//
// Errors: EADDRINUSE (another process listens at the path, or is a child made by fork of one that did; or there is something else than a
// socket), ENAMETOOLONG (it has more than 107 bytes), EFAULT (it is NULL), and those of open and bind.
//
// Pointers: path points to a string, or is NULL.
int uf_listen(const char *path);

// Makes a channel with the process that has waited longest at a listener. Waits for one, unless the listener does not block. Processes
// that have gone meanwhile are passed over. A process of another group cannot take its end: it is told so, and here the channel is at
// its end at once.
//
// Returns a descriptor, or -1 with errno set.
//
// Errors: EINVAL (it is no listener), EAGAIN, EUSERS (the pool has its 128 channels), ESTALE (it is the parent process's), EMFILE.
int uf_accept(int listener);

// Makes a channel with the process that listens at a path, which must be of the same group (uf_join). Waits until that accepts.
//
// Returns a descriptor, or -1 with errno set.
//
// Errors: ENOENT and ECONNREFUSED (nobody listens there), EACCES, EINVAL (the process is of another group), EPIPE (it has given up),
// EFAULT (path is NULL), EMFILE.
//
// Pointers: path points to a string, or is NULL.
int uf_connect(const char *path);

// Makes a channel as uf_connect does, with a process that may not listen yet: waits for that, and until it accepts, for at most
// timeout_ms milliseconds, or without a limit if that is negative.
//
// Returns a descriptor, or -1 with errno set.
//
// Errors: ENOENT and ECONNREFUSED (nobody has listened there in that time), ETIMEDOUT (the process that listens has not accepted in that
// time), and the others of uf_connect.
//
// Pointers: path points to a string, or is NULL.
int uf_connect_timeout(const char *path,
                       int timeout_ms);

// Opens a Genie server, in another process, as a descriptor: server is its name in the run-time directory ($GENIE_RUNTIME_DIR, or
// $XDG_RUNTIME_DIR/genie, or /tmp/genie-UID), read_service names the service that is asked for input by uf_read, and write_service the
// one that is given output by uf_write. One of the two may be NULL: that call fails then (EBADF).
//
// Each uf_read is a request with one input, and each uf_write a request with one output, without an argument; a reply without bytes is
// the end. The calls wait for the server's reply, so poll reports the descriptor ready at all times, as it does files. What holds for
// channels' descriptors holds for this one: it is passed to calls of this library and to poll alone, and closed by uf_close.
//
// Returns a descriptor, or -1 with errno set.
//
// Errors: ENOENT (nobody serves under that name, or has such a service), EACCES, EBUSY, EHOSTDOWN, EINVAL (no name, or none that a
// server can have), EFAULT (server is NULL), ENOMEM, EMFILE.
//
// Pointers: server, read_service and write_service point to strings, or are NULL.
int uf_open(const char *server,
            const char *read_service,
            const char *write_service);

// Gives a descriptor that poll and epoll report readable (POLLIN) when there is room in a channel, after uf_write or uf_putmsg on the
// channel failed with EAGAIN, or wrote less than all: when 64 fbufs have been read, so that a writer is not woken for each. It is reported
// when the other end is closed, too. It is for waiting alone, and the library's: uf_close of the channel closes it.
//
// Returns a descriptor, or -1 with errno set.
//
// Errors: EINVAL (fd is no channel's; for one of the kernel's, wait for POLLOUT), ESTALE (it is the parent process's), EBADF.
int uf_room(int fd);

// Closes a descriptor, of this library or of the kernel's. What was written to a channel can still be read at the other end, even by
// a process whose uf_connect has not returned yet; so it can when this process ends.
//
// A channel or a Genie server is closed by this call alone, never by close. If another thread's call uses it, it is closed when that
// returns, which this call does not bring about; until then, further calls on it fail.
//
// The writing end of a pipe that was taken over (uf_take_over) waits until no more is unread than a pipe holds, and leaves that in the
// pipe.
//
// Returns 0, or -1 with errno set. A pipe is closed then, too.
//
// Errors: EBADF (also after uf_close), EINVAL (uf_room gave it), EPIPE (nobody reads what was written), and those of close.
int uf_close(int fd);

// Says whether calls on a descriptor, of this library or of the kernel's, wait (nonblocking is 0, as for new ones), or fail with
// EAGAIN.
//
// Returns 0, or -1 with errno set.
//
// Errors: EBADF, ESTALE (it is the parent process's), EINVAL (it is a duplicate of one of the library's, or uf_room gave it), EOPNOTSUPP
// (it is a Genie server's: calls wait for the server's reply; or a pipe that uf_take_over has taken over).
int uf_set_nonblocking(int fd,
                       int nonblocking);

// Says whether data is passed without being copied by calls on a descriptor, and why not.
//
// Returns which of UF_PASSES_FBUFS, UF_PASSES_FILES and UF_PASSES_INPUT holds, or -1 with errno set. If textp is not NULL, *textp is
// a sentence with the reasons, which is valid until the thread's next call of uf_explain.
//
// Errors: EBADF, ESTALE (it is the parent process's), EINVAL (it is a listener, a duplicate of one of the library's, or
// uf_room gave it).
//
// Pointers: textp points to a pointer, or is NULL.
int uf_explain(int fd,
               const char **textp);

// Takes over one end of a pipe, by which a shell, or whoever has started this program, has connected it with another one: calls of this
// library on fd then pass fbufs without a copy if the program at the other end uses the library, too, and has called this. fd is most
// often 0 or 1. No other call takes a pipe over: a program that wants to have a stream over it calls this first, and then uf_fdopen.
//
// Until both have done so, and where the other program does not use the library, bytes go through the pipe, as they would without this
// call; uf_explain says which it is. The two are processes of one user. Unless this process has joined a group, its fbufs are of the
// writer's pool from when it reads what a writer passes, so that it can pass them on. Between the two, what is written by these calls
// does not keep its order with what is written to the pipe by others, write and children among them.
//
// Calls on fd wait, whatever uf_set_nonblocking says. It is closed by uf_close, never by close. For a descriptor that is no pipe, that does not block, or that is the library's already, this does nothing.
//
// When the reader ends before it has read all, as in `a | (b; c)`, the writer puts what is left into the pipe for the next reader, at its
// next call on fd: uf_close does so, too, and waits until no more is unread than a pipe holds. So a writer must call uf_close or fclose,
// as one that ends otherwise leaves nothing for a next reader. A reader that is killed in a read takes at most what this read was to
// return, as with any pipe.
//
// Take a pipe over only where one process at a time reads it, and where no other process uses this process's end of it meanwhile.
// Elsewhere it is no pipe any more. What a child program writes to the pipe is read when this process has closed its end, so that waiting
// for a child that writes more than a pipe holds, as system does, waits for ever; so does waiting for a child that is to read from
// it. Of several readers, and of a process and the children that it makes by fork, one gets fbufs, and the others may wait for ever. A
// duplicate of fd (dup) is the bare pipe, and is not refused.
//
// Returns 0, or -1 with errno set.
//
// Errors: EBADF, ESTALE (it is the parent process's), EINVAL (it is a duplicate of a channel's).
int uf_take_over(int fd);

// Makes an fbuf, of which nbytes bytes from bufp on are the bytes, a message of one block. The fbuf is not the program's any more. It
// begins and ends where db_base and db_lim say.
//
// Returns the message, or NULL with errno set.
//
// Errors: EFAULT (bufp is in no fbuf of this process), EINVAL (the fbuf has fewer bytes from there on, or is a mapped file).
mblk_t *uf_esballoc(void *bufp,
                    size_t nbytes);

// Makes a message an fbuf: its only block's, if no other block shares that, else a new one with a copy of all bytes. The message is
// gone.
//
// Returns the number of bytes, and stores the fbuf's address at *bufpp; or returns -1 with errno set, and the message is still there.
//
// Errors: EFAULT (mp or bufpp is NULL), EINVAL (a block's bytes are not in its buffer), ESTALE (a buffer is the parent process's), ENOMEM,
// EDQUOT.
//
// Pointers: mp is a message, or NULL; bufpp points to a pointer, or is NULL.
ssize_t uf_msgbuf(mblk_t *mp,
                  void **bufpp);

// Writes a message, all blocks of whatever type. When all is written, the message is gone. To a channel, or to a Genie server (uf_open),
// the fbufs of its blocks go, one after the other, if no other block shares them, else copies, as of memory that is no fbuf; which of
// them are passed without a copy is as for uf_write. To other descriptors the kernel copies.
//
// Returns the number of bytes written, which is all unless the descriptor does not block or fails, or -1 with errno set. After fewer
// bytes than the message had, and after -1, the message is still there, with all its blocks, which have left the bytes that were not written.
//
// Errors: EFAULT (mp is NULL), EINVAL (a block's bytes are not in its buffer), ESTALE (a buffer is the parent process's), and those of
// uf_write.
//
// Pointers: mp is a message, or NULL.
ssize_t uf_putmsg(int fd,
                  mblk_t *mp);

// Registers interest in a process that shares a pool with this one (uf_join): procref points to its number, a pid_t.
//
// When it has ended, its fbufs and channels are taken back, and proc_exit_callback is called, in a thread of the library's, with the
// handle that this call returns. The callback may call all functions of the library, uf_deregister among them; it returns, and does
// not call pthread_exit. If the process has ended already, it is called at once, perhaps before this call returns.
//
// Returns a handle on the pool, for uf_allocb and uf_deregister, or NULL with errno set.
//
// Errors: ESRCH (there is no such process, or none that shares a pool with this one and is in its PID namespace), EFAULT (a pointer is NULL), EAGAIN (there is no
// thread), EMFILE, ENOMEM.
//
// Pointers: procref points to a pid_t, or is NULL.
void *uf_register(void *procref,
                  void (*proc_exit_callback)(void*));

// Ends a registration: handle and proc_exit_callback are those of uf_register. When this call returns, the callback is not called
// any more, and has returned if another thread has called it. What was allocated by the handle stays what it is.
//
// From within a callback of uf_register, this call does not wait, since the other one might wait for this one: a callback that another
// thread of the library's has called already may still be running when it returns.
//
// If it fails it sets errno.
//
// Errors: EINVAL (there is no such registration; perhaps it has ended already).
void uf_deregister(void *handle,
                   void (*proc_exit_callback)(void*));

// Allocates a message of one block without bytes. Its room for size bytes is an fbuf of the pool that a handle of uf_register names,
// or of this process's pool if handle is NULL.
//
// Returns the message, which freemsg frees, or NULL with errno set.
//
// Errors: EINVAL (there is no such registration, or size is negative), ENOMEM, EDQUOT.
mblk_t *uf_allocb(void *handle,
                  int size);

// Opens a stream of the C library's over a descriptor, of this library or of the kernel's, as fdopen does: reading from it takes fbufs,
// and writing to it passes fbufs on. fclose closes the descriptor. The stream cannot be sought in, and fileno has no number for it. A
// pipe that was taken over before (uf_take_over) passes fbufs, too; uf_fdopen takes none over by itself.
// Let the descriptor wait: where it does not, what has no room is lost from the stream's buffer, as from those of fdopen, and fwrite and
// fflush fail (EAGAIN); fwrite without a buffer (setvbuf) says how much was written.
//
// Returns the stream, or NULL with errno set.
//
// Errors: EINVAL (mode is none of fopen's), EFAULT (it is NULL), EBADF, ENOMEM.
//
// Pointers: mode points to a string, or is NULL.
FILE *uf_fdopen(int fd,
                const char *mode);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FBUFS_H */
