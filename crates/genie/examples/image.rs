//! A picture that the crate `image` has made is passed as it is: the program's allocator has put it into a region.
//!
//!     cargo run --release -p genie --features allocator --example image

use std::process::ExitCode;

use genie::{In, Interface, Out, ServerHandle, memory};
use image::{ImageBuffer, Rgba};

#[global_allocator]
static ALLOCATOR: genie::Allocator = genie::Allocator::new();

fn main() -> ExitCode {
    match pass() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("image: {error}");
            ExitCode::FAILURE
        }
    }
}

fn pass() -> Result<(), genie::Error> {
    let genie = Interface::open()?;
    let server = ServerHandle::new(memory::Memory::customized());

    // 16 MiB, which `image` keeps in a `Vec<u8>`.
    let picture = ImageBuffer::from_fn(2048, 2048, |x, y| Rgba([x as u8, y as u8, (x ^ y) as u8, 255]));
    let store = genie.request(&server, memory::STORE).out(Out::emulated_copy(&picture)).argument(b"picture");
    println!("out: {}", store.send()?.receipt());

    let mut copy = ImageBuffer::<Rgba<u8>, _>::new(2048, 2048);
    let fetch =
        genie.request(&server, memory::FETCH).input(In::emulated_copy(&mut copy)).argument(b"picture");
    println!("in: {}", fetch.send()?.receipt());
    println!("{}", if copy == picture { "the pictures are the same" } else { "the picture is damaged" });
    Ok(())
}
