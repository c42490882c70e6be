//! Losses, and how they are repaired.

use genie_tcp::Config;

use crate::handshake::plain;
use crate::script::play;

fn with_sack() -> Config {
    Config { sack: true, ..plain() }
}

const PLAIN: &str = "0    connect
         +0   > S 0:0(0)
         +.1  < S. 0:0(0) ack 1 win 50000 <mss 1000>
         +0   > . 1:1(0) ack 1\n";

const SACK: &str = "0    connect
         +0   > S 0:0(0)
         +.1  < S. 0:0(0) ack 1 win 50000 <mss 1000,sackOK>
         +0   > . 1:1(0) ack 1\n";

const TEN: &str = "+0   send 20000
         +0   > . 1:1001(1000) ack 1
         +0   > . 1001:2001(1000) ack 1
         +0   > . 2001:3001(1000) ack 1
         +0   > . 3001:4001(1000) ack 1
         +0   > . 4001:5001(1000) ack 1
         +0   > . 5001:6001(1000) ack 1
         +0   > . 6001:7001(1000) ack 1
         +0   > . 7001:8001(1000) ack 1
         +0   > . 8001:9001(1000) ack 1
         +0   > . 9001:10001(1000) ack 1\n";

#[test]
fn a_window_of_data_goes_out_and_grows_with_acknowledgments() {
    play(
        plain(),
        &format!(
            "{PLAIN}{TEN}
         +0   cwnd 10000
         +.1  < . 1:1(0) ack 2001
         +0   cwnd 11000
         +0   > . 10001:11001(1000) ack 1
         +0   > . 11001:12001(1000) ack 1
         +0   > . 12001:13001(1000) ack 1"
        ),
    );
}

#[test]
fn without_sack_a_lost_segment_is_sent_again_at_the_third_duplicate() {
    play(
        Config { algorithm: genie_tcp::Algorithm::Reno, ..plain() },
        &format!(
            "{PLAIN}{TEN}
         // Two new segments by limited transmit, and then the lost one.
         +.1  < . 1:1(0) ack 1 win 50000
         +0   > . 10001:11001(1000) ack 1
         +0   < . 1:1(0) ack 1 win 50000
         +0   > . 11001:12001(1000) ack 1
         +0   < . 1:1(0) ack 1 win 50000
         +0   > . 1:1001(1000) ack 1
         +0   cwnd 6000
         // Three more duplicates only fill up the halved window; the fourth makes room.
         +0   < . 1:1(0) ack 1 win 50000
         +0   < . 1:1(0) ack 1 win 50000
         +0   < . 1:1(0) ack 1 win 50000
         +0   < . 1:1(0) ack 1 win 50000
         +0   > . 12001:13001(1000) ack 1
         // A partial acknowledgment: the next one is lost, too.
         +.1  < . 1:1(0) ack 3001 win 50000
         +0   > . 3001:4001(1000) ack 1
         +0   > . 13001:14001(1000) ack 1
         +.1  < . 1:1(0) ack 12001 win 50000
         // Recovery ends: what is under way, and one segment more.
         +0   cwnd 3000
         +0   > . 14001:15001(1000) ack 1"
        ),
    );
}

#[test]
fn with_sack_only_what_is_missing_is_sent_again() {
    play(
        with_sack(),
        &format!(
            "{SACK}{TEN}
         +.1  < . 1:1(0) ack 1 win 50000 <sack 1001:2001>
         +0   > . 10001:11001(1000) ack 1
         +0   < . 1:1(0) ack 1 win 50000 <sack 1001:3001>
         +0   > . 11001:12001(1000) ack 1
         // A duplicate that tells nothing new is none.
         +0   < . 1:1(0) ack 1 win 50000 <sack 1001:3001>
         +0   < . 1:1(0) ack 1 win 50000 <sack 4001:5001 1001:3001>
         +0   > . 1:1001(1000) ack 1
         +0   cwnd 8400
         +0   < . 1:1(0) ack 1 win 50000 <sack 4001:7001 1001:3001>
         +0   > . 3001:4001(1000) ack 1
         +0   > . 12001:13001(1000) ack 1
         +.1  < . 1:1(0) ack 13001 win 50000
         +0   cwnd 8400
         +0   > . 13001:14001(1000) ack 1
         +0   > . 14001:15001(1000) ack 1
         +0   > . 15001:16001(1000) ack 1
         +0   > . 16001:17001(1000) ack 1
         +0   > . 17001:18001(1000) ack 1
         +0   > . 18001:19001(1000) ack 1
         +0   > P. 19001:20001(1000) ack 1"
        ),
    );
}

#[test]
fn a_timeout_leaves_one_segment_and_repeats_in_twice_the_time() {
    play(
        plain(),
        &format!(
            "{PLAIN}{TEN}
         +.3  > . 1:1001(1000) ack 1
         +0   cwnd 1000
         +.6  > . 1:1001(1000) ack 1
         +1.2 > . 1:1001(1000) ack 1
         +.1  < . 1:1(0) ack 1001
         +0   cwnd 2000
         +0   > . 1001:2001(1000) ack 1
         +0   > . 2001:3001(1000) ack 1
         // The peer had the rest: nothing of it is sent again.
         +.1  < . 1:1(0) ack 10001
         +0   cwnd 3000
         +0   > . 10001:11001(1000) ack 1
         +0   > . 11001:12001(1000) ack 1
         +0   > . 12001:13001(1000) ack 1
         // No sample was taken of what was sent twice: the timeout is still long (Karn).
         +2.4 > . 10001:11001(1000) ack 1"
        ),
    );
}

#[test]
fn what_fast_retransmit_has_sent_again_is_not_timed() {
    play(
        plain(),
        &format!(
            "{PLAIN}
         +0   send 5000
         +0   > . 1:1001(1000) ack 1
         +0   > . 1001:2001(1000) ack 1
         +0   > . 2001:3001(1000) ack 1
         +0   > . 3001:4001(1000) ack 1
         +0   > P. 4001:5001(1000) ack 1
         +.1  < . 1:1(0) ack 1 win 50000
         +0   < . 1:1(0) ack 1 win 50000
         +0   < . 1:1(0) ack 1 win 50000
         +0   > . 1:1001(1000) ack 1
         +.15 < . 1:1(0) ack 5001 win 50000
         +0   send 1000
         +0   > P. 5001:6001(1000) ack 1
         // As after the first sample; one of 250 ms would have made it longer.
         +.3  > P. 5001:6001(1000) ack 1"
        ),
    );
}

#[test]
fn timestamps_tell_the_round_trip_time_of_what_was_sent_twice() {
    play(
        Config { timestamps: true, ..plain() },
        "0    connect
         +0   > S 0:0(0) <mss 1000,TS val 0 ecr 0>
         +.1  < S. 0:0(0) ack 1 win 50000 <mss 1000,TS val 5 ecr 0>
         +0   > . 1:1(0) ack 1 <TS val 100 ecr 5>
         +0   send 500
         +0   > P. 1:501(500) ack 1 <TS val 100 ecr 5>
         +.3  > P. 1:501(500) ack 1 <TS val 400 ecr 5>
         +.1  < . 1:1(0) ack 501 <TS val 6 ecr 400>
         +0   send 500
         +0   > P. 501:1001(500) ack 1 <TS val 500 ecr 6>
         +.25 > P. 501:1001(500) ack 1",
    );
}

#[test]
fn segments_with_old_timestamps_or_none_are_dropped() {
    play(
        Config { timestamps: true, ..plain() },
        "0    connect
         +0   > S 0:0(0)
         +.1  < S. 0:0(0) ack 1 win 50000 <mss 1000,TS val 500 ecr 0>
         +0   > . 1:1(0) ack 1
         +0   < P. 1:11(10) ack 1 <TS val 499 ecr 100>
         +0   > . 1:1(0) ack 1 <TS val 100 ecr 500>
         +0   readable 0
         +0   < P. 1:11(10) ack 1
         +0   readable 0
         +0   < P. 1:11(10) ack 1 <TS val 501 ecr 100>
         +0   readable 10
         +.04 > . 1:1(0) ack 11 <TS val 140 ecr 501>
         // A reset needs none (RFC 7323 §3.2).
         +0   < R 11:11(0)
         +0   state Closed",
    );
}

#[test]
fn what_is_missing_is_told_by_sack_the_latest_first() {
    play(
        with_sack(),
        &format!(
            "{SACK}
         +0   < . 1001:2001(1000) ack 1
         +0   > . 1:1(0) ack 1 <sack 1001:2001>
         +0   < . 3001:4001(1000) ack 1
         +0   > . 1:1(0) ack 1 <sack 3001:4001 1001:2001>
         +0   < . 2001:3001(1000) ack 1
         +0   > . 1:1(0) ack 1 <sack 1001:4001>
         // Data goes along with them.
         +0   send 10
         +0   > P. 1:11(10) ack 1 <sack 1001:4001>
         +0   < . 1:1001(1000) ack 11
         +0   > . 11:11(0) ack 4001 <>"
        ),
    );
}

#[test]
fn d_sack_does_no_harm() {
    play(
        with_sack(),
        &format!(
            "{SACK}{TEN}
         +.1  < . 1:1(0) ack 10001 win 50000 <sack 1:1001>
         +0   drop
         +0   < . 1:1(0) ack 10001 win 50000 <sack 1:1001>
         +0   < . 1:1(0) ack 10001 win 50000 <sack 1:1001>
         +0   < . 1:1(0) ack 10001 win 50000 <sack 1:1001>"
        ),
    );
}

#[test]
fn after_an_idle_time_the_window_is_the_initial_one() {
    play(
        plain(),
        &format!(
            "{PLAIN}{TEN}
         +.1  < . 1:1(0) ack 10001
         +0   drop
         +.1  < . 1:1(0) ack 20001
         +0   cwnd 12000
         +10  send 1
         +0   > P. 20001:20002(1) ack 1
         +0   cwnd 10000"
        ),
    );
}
