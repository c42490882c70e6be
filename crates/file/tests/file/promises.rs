//! The file server keeps the promises that every server does.

use genie_conformance::{Buffering, Granules, Guard, Servers, Setup, Store, Subject};
use genie_file::{self as file, File};
use genie_io::ServerHandle;
use genie_memory::GranuleKind;

fn keeps_its_promises(name: &str, open: impl Fn(File) -> File + Sync) {
    let root = tempfile::tempdir().expect("a directory");
    let subject = Subject::new(name, |_, _| {
        let server = File::open(root.path(), 16 * file::BLOCK).map_err(|error| error.to_string())?;
        let server = ServerHandle::new(open(server));
        Ok(Servers::storing(Store::new(server, file::STORE, file::FETCH, |name| file::at(name, 0))))
    });
    let plain = Setup::new(Granules::Base, Guard::Never, Buffering::Customized);
    subject
        .report(&[plain, Setup::allowed(GranuleKind::Base), Setup::allowed(GranuleKind::Collapsed)])
        .assert_kept();
}

#[test]
fn the_file_server_keeps_its_promises() {
    keeps_its_promises("the file server", |server| server);
}

#[test]
fn the_file_server_keeps_its_promises_with_mapped_access() {
    keeps_its_promises("the file server, mapped", File::mapped);
}
