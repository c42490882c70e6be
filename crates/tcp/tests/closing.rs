//! How connections end.

use genie_tcp::Config;

use crate::handshake::plain;
use crate::script::play;

const ESTABLISHED: &str = "0    connect
         +0   > S 0:0(0)
         +.1  < S. 0:0(0) ack 1 win 50000 <mss 1000>
         +0   > . 1:1(0) ack 1
         +0   event Connected\n";

fn established(config: Config, script: &str) {
    play(config, &format!("{ESTABLISHED}{script}"));
}

#[test]
fn who_closes_first_lingers() {
    established(
        plain(),
        "+0   finish
         +0   > F. 1:1(0) ack 1
         +0   state FinWait1
         +.1  < . 1:1(0) ack 2
         +0   state FinWait2
         // The other half is still open.
         +.1  < P. 1:501(500) ack 2
         +.04 > . 2:2(0) ack 501
         +0   event Readable
         +0   read 500
         1    < F. 501:501(0) ack 2
         +0   > . 2:2(0) ack 502
         +0   end
         +0   state TimeWait
         +0   event Readable
         +0   event PeerFinished
         +0   event Ended(Closed)
         // Our acknowledgment was lost: it is sent again, and the time begins anew.
         30   < F. 501:501(0) ack 2
         +0   > . 2:2(0) ack 502
         89   state TimeWait
         90   state Closed
         +0   release
         +0   gone",
    );
}

#[test]
fn who_closes_second_does_not_linger() {
    established(
        plain(),
        "+0   < F. 1:1(0) ack 1
         +0   > . 1:1(0) ack 2
         +0   state CloseWait
         +0   event Readable
         +0   event PeerFinished
         +0   send 1500
         +0   > . 1:1001(1000) ack 2
         +0   finish
         +0   > FP. 1001:1501(500) ack 2
         +0   state LastAck
         +.1  < . 2:2(0) ack 1502
         +0   event Ended(Closed)
         +0   state Closed
         +0   released 1",
    );
}

#[test]
fn both_may_close_at_once() {
    established(
        plain(),
        "+0   finish
         +0   > F. 1:1(0) ack 1
         +0   < F. 1:1(0) ack 1
         +0   > . 2:2(0) ack 2
         +0   state Closing
         +.1  < . 2:2(0) ack 2
         +0   state TimeWait",
    );
}

#[test]
fn a_fin_that_is_acknowledged_with_the_peers_leads_to_time_wait_at_once() {
    established(
        plain(),
        "+0   finish
         +0   > F. 1:1(0) ack 1
         +0   < F. 1:1(0) ack 2
         +0   > . 2:2(0) ack 2
         +0   state TimeWait",
    );
}

#[test]
fn a_lost_fin_is_sent_again() {
    established(
        plain(),
        "+0   send 10
         +0   > P. 1:11(10) ack 1
         +0   finish
         +0   > F. 11:11(0) ack 1
         +.1  < . 1:1(0) ack 11
         +.25 > F. 11:11(0) ack 1
         +.1  < . 1:1(0) ack 12
         +0   state FinWait2",
    );
}

#[test]
fn a_fin_out_of_order_waits_for_what_is_before_it() {
    established(
        plain(),
        "+0   < F. 501:501(0) ack 1
         +0   > . 1:1(0) ack 1
         +0   state Established
         +0   < . 1:501(500) ack 1
         +0   > . 1:1(0) ack 502
         +0   state CloseWait
         +0   read 500
         +0   end",
    );
}

#[test]
fn an_abort_resets_the_peer_and_gives_everything_back() {
    established(
        plain(),
        "+0   send 1500
         +0   send 10
         +0   > . 1:1001(1000) ack 1
         +0   abort
         +0   > R. 1001:1001(0) ack 1
         +0   event Ended(Aborted)
         +0   released 2
         +0   state Closed
         +0   < . 1:1(0) ack 1001
         +0   > R 1001:1001(0)",
    );
}

#[test]
fn a_reset_at_the_next_sequence_number_ends_the_connection_and_others_are_challenged() {
    established(
        plain(),
        "+0   < R 2:2(0)
         +0   > . 1:1(0) ack 1
         +0   < R 70000:70000(0)
         // Challenges are rare.
         +.4  < R 2:2(0)
         +.1  < R 2:2(0)
         +0   > . 1:1(0) ack 1
         +0   state Established
         +0   < R 1:1(0)
         +0   event Ended(Reset)
         +0   state Closed",
    );
}

#[test]
fn a_reset_is_taken_even_if_the_window_is_shut() {
    established(
        Config { receive_capacity: 1000, ..plain() },
        "+0   < P. 1:1001(1000) ack 1
         +.04 > . 1:1(0) ack 1001 win 0
         +0   < R. 1001:1001(0) ack 1
         +0   event Readable
         +0   event Ended(Reset)",
    );
}

#[test]
fn a_reset_may_have_data() {
    established(
        plain(),
        "+0   < R. 1:11(10) ack 1
         +0   event Ended(Reset)
         +0   readable 0",
    );
}

#[test]
fn a_syn_in_an_established_connection_is_challenged() {
    established(
        plain(),
        "+0   < S 1:1(0)
         +0   > . 1:1(0) ack 1
         +1   < S 70000:70000(0)
         +0   > . 1:1(0) ack 1
         +1   < S. 0:0(0) ack 1
         +0   > . 1:1(0) ack 1
         +0   state Established",
    );
}

#[test]
fn a_reset_does_not_end_time_wait() {
    established(
        plain(),
        "+0   finish
         +0   > F. 1:1(0) ack 1
         +0   < F. 1:1(0) ack 2
         +0   > . 2:2(0) ack 2
         +.1  < R 2:2(0)
         +0   state TimeWait",
    );
}

const LINGERING: &str = "0   listen
         +0   < S 0:0(0) win 5000
         +0   > S. 0:0(0) ack 1
         +0   < . 1:1(0) ack 1
         +0   accept
         +0   finish
         +0   > F. 1:1(0) ack 1
         +0   < F. 1:1(0) ack 2
         +0   > . 2:2(0) ack 2
         +0   state TimeWait
         +0   release\n";

#[test]
fn a_newer_syn_begins_a_new_connection_where_an_old_one_lingers() {
    play(
        plain(),
        &format!(
            "{LINGERING}
         +1   < S 2:2(0) // an old duplicate, within what was received
         +0   > . 2:2(0) ack 2
         +0   < S 1000:1000(0) win 5000
         +0   > S. 0:0(0) ack 1001
         +0   < . 1001:1001(0) ack 1
         +0   accept
         +0   state Established"
        ),
    );
}

#[test]
fn a_client_that_closes_with_data_unread_tells_that_it_is_lost() {
    established(
        plain(),
        "+0   < P. 1:101(100) ack 1
         +.01 close
         +0   > R. 1:1(0) ack 101
         +0   state Closed",
    );
    // Or that comes later.
    established(
        plain(),
        "+0   close
         +0   > F. 1:1(0) ack 1
         +0   < . 1:1(0) ack 2
         +0   < P. 1:101(100) ack 2
         +0   > R. 2:2(0) ack 1
         +0   state Closed",
    );
}

#[test]
fn a_client_that_has_closed_does_not_wait_forever_for_the_peer() {
    established(
        plain(),
        "+0   close
         +0   > F. 1:1(0) ack 1
         +0   < . 1:1(0) ack 2
         +59  state FinWait2
         +1   state Closed
         +0   event Ended(Closed)",
    );
}

#[test]
fn nothing_can_be_sent_after_the_end() {
    let mut table = genie_tcp::Table::new(genie_tcp::Secret::random());
    let path = genie_tcp::Path { local: ([10, 0, 0, 1], 1).into(), remote: ([10, 0, 0, 2], 2).into() };
    let id = table.connect(path, Default::default(), Default::default()).unwrap();
    table
        .with(id, |it| {
            it.finish();
            let back = it.send(genie_tcp::Shared::new(*b"late")).unwrap_err();
            assert_eq!((back.why, back.it.bytes()), (genie_tcp::Closing::Finished, &b"late"[..]));
        })
        .unwrap();
}

#[test]
fn an_established_connection_survives_what_icmp_says() {
    established(
        plain(),
        "+0   send 10
         +0   > P. 1:11(10) ack 1
         +0   unreachable hard 1
         +0   event Unreachable(Hard)
         +0   unreachable soft 500
         +0   event none
         +0   state Established",
    );
}
