//! Transfers over every kind of adapter: bytes, order, and what was copied.

mod abandoned;
mod hostile;
mod link;
mod pages;
mod parts;
mod random;
