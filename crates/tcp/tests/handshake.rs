//! How connections begin.

use std::time::Duration;

use genie_tcp::Config;

use crate::script::play;

/// Without options, which most scripts do not need.
pub(crate) fn plain() -> Config {
    Config { timestamps: false, sack: false, window_scaling: false, mtu: 1040, ..Config::default() }
}

#[test]
fn a_connection_is_accepted() {
    play(
        plain(),
        "0    listen
         +0   < S 0:0(0) win 5000 <mss 1460>
         +0   > S. 0:0(0) ack 1 win 65535 <mss 1000>
         +0   refused
         +.1  < . 1:1(0) ack 1 win 5000
         +0   accept
         +0   event Connected
         +0   state Established",
    );
}

#[test]
fn a_connection_is_opened() {
    play(
        plain(),
        "0    connect
         +0   > S 0:0(0) win 65535 <mss 1000>
         +.1  < S. 0:0(0) ack 1 win 5000 <mss 700>
         +0   > . 1:1(0) ack 1 <>
         +0   event Connected
         +0   send 1000
         +0   > . 1:701(700) ack 1",
    );
}

#[test]
fn without_an_mss_option_536_bytes_are_sent() {
    play(
        plain(),
        "0    connect
         +0   > S 0:0(0)
         +.1  < S. 0:0(0) ack 1 win 5000
         +0   > . 1:1(0) ack 1
         +0   send 1000
         +0   > . 1:537(536) ack 1",
    );
}

#[test]
fn all_options_are_negotiated() {
    play(
        Config { receive_capacity: 1 << 20, nagle: false, ..Config::default() },
        "0    connect
         +0   > S 0:0(0) win 65535 <mss 1460,wscale 5,sackOK,TS val 0 ecr 0>
         +.1  < S. 0:0(0) ack 1 win 12000 <mss 1460,wscale 7,sackOK,TS val 700 ecr 0>
         +0   > . 1:1(0) ack 1 win 32768 <TS val 100 ecr 700>
         +0   send 12900
         +0   > . 1:1449(1448) ack 1
         +0   > . 1449:2897(1448) ack 1
         +0   > . 2897:4345(1448) ack 1
         +0   > . 4345:5793(1448) ack 1
         +0   > . 5793:7241(1448) ack 1
         +0   > . 7241:8689(1448) ack 1
         +0   > . 8689:10137(1448) ack 1
         +0   > . 10137:11585(1448) ack 1
         +0   state Established
         // The window of the SYN is not scaled, that of the segment is.
         +.1  < . 1:1(0) ack 101 win 101 <TS val 800 ecr 100>
         +0   > P. 11585:12901(1316) ack 1 <TS val 200 ecr 800>",
    );
}

#[test]
fn what_the_peer_does_not_offer_is_not_used() {
    play(
        Config::default(),
        "0    listen
         +0   < S 0:0(0) win 65535 <mss 1460>
         +0   > S. 0:0(0) ack 1 win 65535 <mss 1460>
         +0   < . 1:1(0) ack 1
         +0   accept
         +0   < . 1001:1501(500) ack 1
         +0   > . 1:1(0) ack 1 win 65535 <>",
    );
}

#[test]
fn a_lost_syn_is_sent_again_in_twice_the_time_and_the_window_begins_with_one_segment() {
    play(
        plain(),
        "0    connect
         +0   > S 0:0(0)
         1    > S 0:0(0)
         3    > S 0:0(0)
         7    > S 0:0(0)
         +0   event Unresponsive
         7.1  < S. 0:0(0) ack 1 win 50000 <mss 1000>
         +0   > . 1:1(0) ack 1
         +0   cwnd 1000
         +0   send 3000
         +0   > . 1:1001(1000) ack 1
         // RFC 6298 (5.7): no sample, since the SYN was sent twice.
         +3   > . 1:1001(1000) ack 1",
    );
}

#[test]
fn a_peer_that_never_answers_is_given_up_after_three_minutes_and_not_before() {
    play(
        plain(),
        "0    connect
         +0   > S 0:0(0)
         1    > S 0:0(0)
         3    > S 0:0(0)
         7    > S 0:0(0)
         15   > S 0:0(0)
         31   > S 0:0(0)
         63   > S 0:0(0)
         123  > S 0:0(0)
         +0   event Unresponsive
         179.9 event none
         180  event Ended(TimedOut)
         +0   state Closed",
    );
}

#[test]
fn a_lost_answer_to_a_syn_is_sent_again() {
    play(
        plain(),
        "0    listen
         +0   < S 0:0(0) win 5000 <mss 1000>
         +0   > S. 0:0(0) ack 1
         // The peer asks again: it is answered again.
         .5   < S 0:0(0) win 5000 <mss 1000>
         +0   > S. 0:0(0) ack 1
         1    > S. 0:0(0) ack 1
         1.1  < . 1:1(0) ack 1 win 5000
         +0   accept",
    );
}

#[test]
fn both_may_open_at_once() {
    play(
        plain(),
        "0    connect
         +0   > S 0:0(0)
         +.1  < S 0:0(0) win 5000 <mss 1000>
         +0   > S. 0:0(0) ack 1
         +.1  < S. 0:0(0) ack 1 win 5000 <mss 1000>
         +0   event Connected
         +0   state Established
         +0   send 10
         +0   > P. 1:11(10) ack 1",
    );
}

#[test]
fn a_refused_connection_is_told_from_a_reset_one() {
    play(
        plain(),
        "0    connect
         +0   > S 0:0(0)
         +.1  < R. 0:0(0) ack 2 // acknowledges what was never sent
         +0   state SynSent
         +.1  < R. 0:0(0) ack 1
         +0   event Ended(Refused)",
    );
    // After a simultaneous open, too: the connection was opened from here.
    play(
        plain(),
        "0    connect
         +0   > S 0:0(0)
         +.1  < S 0:0(0) win 5000
         +0   > S. 0:0(0) ack 1
         +.1  < R. 1:1(0) ack 1
         +0   event Ended(Refused)",
    );
}

#[test]
fn a_listeners_connection_that_is_reset_is_forgotten() {
    play(
        plain(),
        "0    listen
         +0   < S 0:0(0) win 5000
         +0   > S. 0:0(0) ack 1
         +.1  < R 1:1(0)
         +0   gone
         +0   event none
         +0   < S 0:0(0) win 5000
         +0   > S. 0:0(0) ack 1",
    );
}

#[test]
fn segments_of_old_connections_are_answered_by_resets() {
    // RFC 9293 figure 8: an old SYN, its answer refused, and then the new one.
    play(
        plain(),
        "0    connect
         +0   > S 0:0(0)
         +.1  < S. 300:300(0) ack -9
         +0   > R -9:-9(0)
         +.1  < . 300:300(0) ack 9
         +0   > R 9:9(0)
         +.1  < S. 0:0(0) ack 1 win 5000
         +0   > . 1:1(0) ack 1",
    );
    // Without a connection, and at a listener.
    play(
        plain(),
        "0    < . 300:310(10) ack 55
         +0   > R 55:55(0)
         +0   < S 300:300(0)
         +0   > R. 0:0(0) ack 301
         +0   < P 300:310(10)
         +0   > R. 0:0(0) ack 310
         +0   < R 300:300(0)
         +0   listen
         +0   < . 300:300(0) ack 55
         +0   > R 55:55(0)
         +0   < R 300:300(0)
         +0   < F 300:300(0)",
    );
    // In SYN-RECEIVED: what acknowledges nothing of ours.
    play(
        plain(),
        "0    listen
         +0   < S 0:0(0) win 5000
         +0   > S. 0:0(0) ack 1
         +0   < . 1:1(0) ack 7
         +0   > R 7:7(0)
         +0   < . 1:1(0) ack 1
         +0   accept",
    );
}

#[test]
fn data_that_comes_with_a_syn_is_delivered_after_the_handshake() {
    play(
        plain(),
        "0    listen
         +0   < S 0:10(10) win 5000 <mss 1000>
         +0   > S. 0:0(0) ack 11
         +0   < . 11:11(0) ack 1 win 5000
         +0   accept
         +0   event Connected
         +0   event Readable
         +0   read 10",
    );
}

#[test]
fn a_syn_that_is_answered_by_a_cookie_makes_a_connection_when_it_is_acknowledged() {
    play(
        Config { receive_capacity: 1 << 20, ..Config::default() },
        "0    listen cookies
         +0   < S 0:0(0) win 65535 <mss 1460,sackOK,TS val 7 ecr 0,wscale 3>
         // Nothing is kept: nothing is sent again.
         +0   drop
         +0   gone
         10   < S 0:0(0) win 65535 <mss 1460,sackOK,TS val 10007 ecr 0,wscale 3>
         +0   > S. 0:0(0) ack 1 win 65535
         +0   gone
         +.1  < P. 1:101(100) ack 1 win 1000 <TS val 10107 ecr 10000>
         +0   accept
         +0   event Connected
         +0   event Readable
         +0   read 100
         // The SYN could not offer as much as there is room for.
         +0   > . 1:1(0) ack 101 win 32768
         // Selective acknowledgments and scaled windows were remembered.
         +0   < P. 201:301(100) ack 1 win 1000 <TS val 10207 ecr 10000>
         +0   > . 1:1(0) ack 101 win 32768",
    );
}

#[test]
fn a_made_up_cookie_is_refused() {
    play(
        plain(),
        "0    listen cookies
         +0   < . 1:1(0) ack 12345
         +0   > R 12345:12345(0)
         +0   < S 0:0(0) win 65535
         +0   > S. 0:0(0) ack 1
         +0   < . 1:1(0) ack 2
         +0   > R 2:2(0)
         +0   gone
         // A cookie is good for two minutes.
         +200 < . 1:1(0) ack 1
         +0   > R 1:1(0)",
    );
}

#[test]
fn a_connection_may_be_closed_before_it_is_established() {
    play(
        plain(),
        "0    connect
         +0   > S 0:0(0)
         +0   close
         +0   event Ended(Aborted)
         +0   state Closed",
    );
    // What is queued, and FIN, follow the handshake.
    play(
        plain(),
        "0    connect
         +0   > S 0:0(0)
         +0   send 10
         +0   finish
         +.1  < S. 0:0(0) ack 1 win 5000
         +0   > FP. 1:11(10) ack 1
         +0   state FinWait1",
    );
}

#[test]
fn a_network_that_refuses_a_syn_ends_the_connection_and_soft_errors_do_not() {
    play(
        plain(),
        "0    connect
         +0   > S 0:0(0)
         +0   unreachable soft 0
         +0   event Unreachable(Soft)
         +0   unreachable hard 1 // of nothing that was sent
         +0   state SynSent
         +0   unreachable hard 0
         +0   event Ended(NoRoute)",
    );
}

#[test]
fn defaults_are_those_that_the_standard_asks_for() {
    assert!(Config::default().connect_timeout >= Duration::from_secs(180));
    assert_eq!(Config::default().keep_alive, None);
    assert!(genie_tcp::KeepAlive::default().idle >= Duration::from_secs(7200));
}
