//! The command as a user meets it, run as a program.

mod calibrate;
mod doctor;
mod explain;
mod lab;
mod running;
mod stream;
mod tables;
mod transfer;
