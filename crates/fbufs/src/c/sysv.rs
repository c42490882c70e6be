//! STREAMS: messages, queues and modules as AT&T's System V has them, for modules in C that were written for it.
//!
//! How: the structures are the classic ones, in memory of the heap; what they name lies in fbufs, or is the program's own. `include/sys/stream.h`
//! is made from these files, and gives the functions their classic names; in the library they begin with `fbufs_`, since a program may
//! have functions of its own by such names as `getq`.
//! A stream (`streams`) is a list of modules (`modules`), each with two queues (`queues`).
//! Invariants: a data block exists while a message block names it, and has an fbuf, or memory of the program's and the way to free it.
//! Trust: none is checked. As in System V, pointers to messages are taken for what they are said to be; this file's callers have
//! promised them. AddressSanitizer and valgrind find uses of blocks that were freed.
//! Source: UNIX System V Release 4, DDI/DKI reference manual (SVR4), sections D3 and D4.

pub mod blocks;
pub mod messages;
pub mod modules;
pub mod queues;
pub mod streams;
