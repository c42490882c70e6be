//! Data: when it is sent, acknowledged and offered room.

use std::time::Duration;

use genie_tcp::{Config, KeepAlive};

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
fn short_data_waits_while_something_is_unacknowledged_unless_told_not_to() {
    established(
        plain(),
        "+0   send 10
         +0   > P. 1:11(10) ack 1
         +0   send 10
         +0   send 10
         +.1  < . 1:1(0) ack 11
         +0   > P. 11:31(20) ack 1
         +0   send 1500
         +0   > . 31:1031(1000) ack 1
         +.1  < . 1:1(0) ack 1031
         +0   > P. 1031:1531(500) ack 1",
    );
    established(
        Config { nagle: false, ..plain() },
        "+0   send 10
         +0   > P. 1:11(10) ack 1
         +0   send 10
         +0   > P. 11:21(10) ack 1",
    );
}

#[test]
fn each_reference_comes_back_once_when_all_of_it_is_acknowledged() {
    established(
        plain(),
        "+0   send 700
         +0   > P. 1:701(700) ack 1
         +0   send 700
         +0   send 700
         +0   > . 701:1701(1000) ack 1
         +.1  < . 1:1(0) ack 701
         +0   released 1
         +.1  < . 1:1(0) ack 1401
         +0   released 2
         +0   < . 1:1(0) ack 1701
         +0   > P. 1701:2101(400) ack 1
         +.1  < . 1:1(0) ack 2101
         +0   released 3",
    );
}

#[test]
fn a_segment_has_no_more_references_than_the_adapter_gathers() {
    established(
        Config { gather: 2, ..plain() },
        "+0   send 1
         +0   > P. 1:2(1) ack 1
         +0   send 100
         +0   send 100
         +0   send 100
         +0   send 100
         +0   send 100
         +.1  < . 1:1(0) ack 2
         +0   > . 2:202(200) ack 1
         +.1  < . 1:1(0) ack 202
         +0   > . 202:402(200) ack 1
         +.1  < . 1:1(0) ack 402
         +0   > P. 402:502(100) ack 1",
    );
}

#[test]
fn every_second_segment_is_acknowledged_and_others_in_a_while() {
    established(
        plain(),
        "+0   < . 1:1001(1000) ack 1
         +0   < . 1001:2001(1000) ack 1
         +0   > . 1:1(0) ack 2001
         +0   < . 2001:3001(1000) ack 1
         +.04 > . 1:1(0) ack 3001",
    );
    // Never later than in half a second.
    established(
        Config { ack_delay: Duration::from_secs(3), ..plain() },
        "+0   < . 1:1001(1000) ack 1
         +.499 > . 1:1(0) ack 1001",
    );
    established(
        Config { ack_delay: Duration::ZERO, ..plain() },
        "+0   < . 1:1001(1000) ack 1
         +0   > . 1:1(0) ack 1001",
    );
}

#[test]
fn an_acknowledgment_goes_along_with_data() {
    established(
        plain(),
        "+0   < P. 1:11(10) ack 1
         +.01 send 20
         +0   > P. 1:21(20) ack 11
         +.2  < . 11:11(0) ack 21",
    );
}

#[test]
fn what_comes_at_once_is_acknowledged_at_once_and_together() {
    let mut table = genie_tcp::Table::new(genie_tcp::Secret::random());
    let (ours, theirs) = crate::pair::established(&mut table, Config::default());
    let segments = crate::pair::flight(&mut table, theirs, 10);
    assert_eq!(segments.len(), 10);
    for out in &segments {
        table.on_segment(out.path.reversed(), &out.segment, crate::pair::NOW);
    }
    let answers: Vec<_> = std::iter::from_fn(|| table.poll_transmit(crate::pair::NOW)).collect();
    assert_eq!(answers.len(), 1);
    assert_eq!(table.get(ours).unwrap().readable(), 14_480);
}

#[test]
fn a_shut_window_is_probed_ever_more_rarely_and_as_long_as_the_peer_answers() {
    established(
        plain(),
        "+0   send 3000
         +0   > . 1:1001(1000) ack 1
         +0   > . 1001:2001(1000) ack 1
         +0   > P. 2001:3001(1000) ack 1
         +.1  < . 1:1(0) ack 3001 win 0
         +0   send 500
         +.25 > . 3001:3002(1) ack 1
         +.1  < . 1:1(0) ack 3001 win 0
         +.4  > . 3001:3002(1) ack 1
         +.1  < . 1:1(0) ack 3001 win 0
         +.9  > . 3001:3002(1) ack 1
         +.1  < . 1:1(0) ack 3001 win 0
         +1.9 > . 3001:3002(1) ack 1
         +.1  < . 1:1(0) ack 3001 win 0
         +3.9 > . 3001:3002(1) ack 1
         +.1  < . 1:1(0) ack 3001 win 0
         +7.9 > . 3001:3002(1) ack 1
         +.1  < . 1:1(0) ack 3001 win 0
         +15.9 > . 3001:3002(1) ack 1
         +.1  < . 1:1(0) ack 3001 win 0
         +31.9 > . 3001:3002(1) ack 1
         +.1  < . 1:1(0) ack 3001 win 0
         +59.9 > . 3001:3002(1) ack 1
         +.1  < . 1:1(0) ack 3001 win 0
         +59.9 > . 3001:3002(1) ack 1
         +.1  < . 1:1(0) ack 3001 win 0
         +59.9 > . 3001:3002(1) ack 1
         +.1  < . 1:1(0) ack 3001 win 0
         +59.9 > . 3001:3002(1) ack 1
         +.1  < . 1:1(0) ack 3001 win 0
         +59.9 > . 3001:3002(1) ack 1
         +0   state Established
         // It opens: the rest goes along with the byte that was not taken.
         +.1  < . 1:1(0) ack 3001 win 5000
         +0   > P. 3001:3501(500) ack 1",
    );
}

#[test]
fn a_peer_that_answers_no_probe_is_given_up() {
    established(
        Config { user_timeout: Duration::from_secs(2), ..plain() },
        "+0   send 1000
         +0   > P. 1:1001(1000) ack 1
         +.1  < . 1:1(0) ack 1001 win 0
         +0   send 500
         +.25 > . 1001:1002(1) ack 1
         +.5  > . 1001:1002(1) ack 1
         +1   > . 1001:1002(1) ack 1
         +0   event Unresponsive
         +.5  > R. 1002:1002(0) ack 1
         +0   event Ended(TimedOut)",
    );
}

#[test]
fn a_window_that_shrinks_is_survived() {
    established(
        plain(),
        "+0   send 5000
         +0   > . 1:1001(1000) ack 1
         +0   > . 1001:2001(1000) ack 1
         +0   > . 2001:3001(1000) ack 1
         +0   > . 3001:4001(1000) ack 1
         +0   > P. 4001:5001(1000) ack 1
         +.1  < . 1:1(0) ack 1001 win 1500
         +0   send 500
         // Nothing new; what is under way is sent again.
         +.25 > . 1001:2001(1000) ack 1
         +.1  < . 1:1(0) ack 5001 win 1500
         +0   > P. 5001:5501(500) ack 1",
    );
}

#[test]
fn a_window_that_opens_by_little_is_not_filled_in_little_segments() {
    established(
        plain(),
        "+0   send 4000
         +0   > . 1:1001(1000) ack 1
         +0   > . 1001:2001(1000) ack 1
         +0   > . 2001:3001(1000) ack 1
         +0   > P. 3001:4001(1000) ack 1
         +.1  < . 1:1(0) ack 4001 win 0
         +0   send 2000
         +0   < . 1:1(0) ack 4001 win 100
         // The override timeout.
         +.25 > . 4001:4101(100) ack 1
         +.1  < . 1:1(0) ack 4101 win 1000
         +0   > . 4101:5101(1000) ack 1
         +.1  < . 1:1(0) ack 5101 win 1000
         +0   > P. 5101:6001(900) ack 1",
    );
}

#[test]
fn a_window_is_offered_again_when_it_is_worth_it() {
    established(
        Config { receive_capacity: 4000, ..plain() },
        "+0   < . 1:1001(1000) ack 1
         +0   < . 1001:2001(1000) ack 1
         +0   > . 1:1(0) ack 2001 win 2000
         +0   < . 2001:3001(1000) ack 1
         +0   < P. 3001:4001(1000) ack 1
         +0   > . 1:1(0) ack 4001 win 0
         // A probe of the shut window is answered, and its byte is not taken.
         +1   < . 4001:4002(1) ack 1
         +0   > . 1:1(0) ack 4001 win 0
         +0   read 999
         +0   read 1
         +0   > . 1:1(0) ack 4001 win 1000
         +0   read 1000
         +0   read 1000
         +0   > . 1:1(0) ack 4001 win 3000
         +0   read 1000
         +0   < . 4001:5001(1000) ack 1
         +.04 > . 1:1(0) ack 5001 win 3000",
    );
}

#[test]
fn an_acknowledgment_in_a_probe_of_a_shut_window_counts() {
    established(
        Config { receive_capacity: 1000, ..plain() },
        "+0   < P. 1:1001(1000) ack 1
         +.04 > . 1:1(0) ack 1001 win 0
         +0   send 10
         +0   > P. 1:11(10) ack 1001 win 0
         +.1  < P. 1001:1002(1) ack 11
         +0   > . 11:11(0) ack 1001 win 0
         +0   released 1",
    );
}

#[test]
fn data_that_is_old_or_beyond_the_window_is_answered_and_dropped() {
    established(
        Config { receive_capacity: 2000, ..plain() },
        "+0   < . 1:1001(1000) ack 1
         +.04 > . 1:1(0) ack 1001
         +0   < . 1:1001(1000) ack 1
         +0   > . 1:1(0) ack 1001
         +0   < . 5001:6001(1000) ack 1
         +0   > . 1:1(0) ack 1001
         +0   readable 1000
         // What straddles an edge: the new part is taken.
         +0   < . 501:1501(1000) ack 1
         +0   < . 1501:2501(1000) ack 1
         +.04 > . 1:1(0) ack 2001 win 0
         +0   read 2000
         +0   > . 1:1(0) ack 2001 win 2000",
    );
}

#[test]
fn what_is_out_of_order_is_acknowledged_at_once_and_delivered_in_order() {
    established(
        plain(),
        "+0   < . 2001:3001(1000) ack 1
         +0   > . 1:1(0) ack 1
         +0   < . 1001:2001(1000) ack 1
         +0   > . 1:1(0) ack 1
         +0   readable 0
         +0   < . 1:1001(1000) ack 1
         +0   > . 1:1(0) ack 3001
         +0   event Readable
         +0   read 3000",
    );
}

#[test]
fn a_segment_without_acknowledgment_is_ignored_and_one_of_the_future_answered() {
    established(
        plain(),
        "+0   < P 1:11(10)
         +0   readable 0
         +0   < P. 1:11(10) ack 5
         +0   > . 1:1(0) ack 1
         +0   readable 0
         // Far in the past, too (RFC 5961 §5.2).
         +1   < P. 1:11(10) ack -70000
         +0   > . 1:1(0) ack 1
         +0   readable 0",
    );
}

#[test]
fn an_idle_peer_is_probed_if_that_is_asked_for() {
    let keep_alive =
        KeepAlive { idle: Duration::from_secs(100), interval: Duration::from_secs(10), probes: 3 };
    established(
        Config { keep_alive: Some(keep_alive), ..plain() },
        "100.1 > . 0:0(0) ack 1
         // One lost answer is no matter.
         +10  > . 0:0(0) ack 1
         +1   < . 1:1(0) ack 1
         +0   send 10
         +0   > P. 1:11(10) ack 1
         +.1  < . 1:1(0) ack 11
         +99.9 send 10
         +0   > P. 11:21(10) ack 1
         // Not while something is under way.
         +.25 > P. 11:21(10) ack 1
         +.1  < . 1:1(0) ack 21
         +100 > . 20:20(0) ack 1
         +10  > . 20:20(0) ack 1
         +10  > . 20:20(0) ack 1
         +0   event Unresponsive
         +10  > R. 21:21(0) ack 1
         +0   event Ended(TimedOut)",
    );
}

#[test]
fn silence_is_given_up_after_the_user_timeout() {
    established(
        Config { user_timeout: Duration::from_secs(3), ..plain() },
        "+0   send 10
         +0   > P. 1:11(10) ack 1
         +.3  > P. 1:11(10) ack 1
         +.6  > P. 1:11(10) ack 1
         +1.2 > P. 1:11(10) ack 1
         +0   event Unresponsive
         +.9  > R. 11:11(0) ack 1
         +0   event Ended(TimedOut)
         +0   released 1",
    );
}

#[test]
fn segments_are_shorter_when_a_router_says_so() {
    established(
        plain(),
        "+0   send 1500
         +0   > . 1:1001(1000) ack 1
         +0   too-big 640 2000 // of what was not sent
         +0   too-big 640 1
         +0   > . 1:601(600) ack 1
         +0   > . 601:1201(600) ack 1
         +.1  < . 1:1(0) ack 1201
         +0   > P. 1201:1501(300) ack 1",
    );
}

#[test]
fn data_is_acknowledged_when_the_client_confirms_it() {
    let config = Config { acknowledge_on_confirmation: true, receive_capacity: 4000, ..plain() };
    established(
        config.clone(),
        "+0   unverified P. 1:1001(1000) ack 1
         +0   event Readable
         +0   unverified P. 1001:2001(1000) ack 1
         +1   read 2000
         +0   confirm 1000
         +.04 > . 1:1(0) ack 1001
         +0   confirm 1000
         +.04 > . 1:1(0) ack 2001 win 4000",
    );
    // What was wrong comes again; what is not next, or no data, is to be verified before.
    established(
        config,
        "+0   send 500
         +0   > P. 1:501(500) ack 1
         +0   unverified P. 1:1001(1000) ack 501
         +0   verify-first P. 2001:3001(1000) ack 501
         +0   verify-first F. 1001:1001(0) ack 501
         +0   verify-first . 1001:1001(0) ack 501
         +0   < P. 1001:2001(1000) ack 1
         +0   read 1500
         +0   reject
         +0   > . 501:501(0) ack 1
         +0   readable 0
         +0   released 0
         +0   unverified P. 1:1001(1000) ack 501
         +0   read 1000
         +0   confirm 1000
         +0   released 1
         +.04 > . 501:501(0) ack 1001",
    );
}

#[test]
fn a_peer_is_heard_though_what_it_has_sent_is_not_confirmed_and_fills_the_window() {
    let config = Config { acknowledge_on_confirmation: true, receive_capacity: 1000, ..plain() };
    established(
        config,
        "+0   send 500
         +0   > P. 1:501(500) ack 1
         +0   < P. 1:1001(1000) ack 1
         +.1  < . 1001:1001(0) ack 501
         +0   released 1
         +0   send 500
         +0   > P. 501:1001(500) ack 1
         // A probe: nothing of it is taken, and its acknowledgment is.
         +.1  < . 1001:1002(1) ack 1001
         +0   > . 1001:1001(0) ack 1 win 1000
         +0   released 2
         +0   read 1000
         +0   confirm 1000
         +0   > . 1001:1001(0) ack 1001 win 1000",
    );
}
