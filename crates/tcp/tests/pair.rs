//! Two ends in one table.

use std::time::Duration;

use genie_tcp::{Backlog, Config, Id, Outgoing, Path, Payload, Shared, Table, Time};

pub(crate) const NOW: Time = Duration::from_secs(1);

/// A connection, seen from who opened it and from who accepted it, whose segments go nowhere by themselves.
pub(crate) fn established(table: &mut Table<Shared>, config: Config) -> (Id, Id) {
    let path = Path { local: ([10, 0, 0, 1], 4000).into(), remote: ([10, 0, 0, 2], 80).into() };
    let config = std::sync::Arc::new(config);
    table.listen(path.remote, config.clone(), Backlog::default()).unwrap();
    let ours = table.connect(path, config, NOW).unwrap();
    exchange(table);
    let theirs = table.accept(path.remote).unwrap();
    (ours, theirs)
}

/// Has all segments arrive.
pub(crate) fn exchange(table: &mut Table<Shared>) {
    while let Some(out) = table.poll_transmit(NOW) {
        table.on_segment(out.path.reversed(), &out.segment, NOW);
    }
}

/// So many full segments of one connection.
pub(crate) fn flight(table: &mut Table<Shared>, id: Id, segments: usize) -> Vec<Outgoing<Shared>> {
    let data = Shared::new(vec![1; 1448 * segments]);
    assert_eq!(data.len() % segments, 0);
    table.with(id, |it| it.send(data).unwrap()).unwrap();
    std::iter::from_fn(|| table.poll_transmit(NOW)).collect()
}
