//! The promises, in one list.
//!
//! How: a promise is a function over a [`Scene`](crate::Scene), which tries each scheme that makes the promise, and panics where it is
//! broken. An emulated scheme must keep all promises of the plain scheme.

mod backings;
mod empty;
mod migrant;
mod outboard;
mod pins;
mod progress;
mod schemes;
mod stored;
mod strong_input;
mod strong_input_delivery;
mod strong_output;
mod strong_output_borrowed;
mod strong_output_reuse;
mod transfers;
mod weak;
mod weak_borrowed;

use crate::Promise;

/// Calls a macro with all promises, so that it can make a test of each: `each_promise! { some_macro }` expands to
/// `some_macro! { carried { NAME: MODULE::FUNCTION, SOURCE, [NEEDS]; ... } in_place { ... } here { ... } stored { ... } }`.
///
/// Those *carried* are kept by whatever carries requests to a server, those *in place* where the server works in its client's
/// memory, those *here* concern a device of the client's own process, and those *stored* a server that keeps bytes. A test of one promise is
/// `subject.hold(test_name, promise(stringify!(NAME)), setup)`.
#[macro_export]
macro_rules! each_promise {
    ($($callback:tt)+) => { $($callback)+! {
        carried {
            output_hides_later_stores: strong_output::stores_after_the_request_are_not_seen, "§2.1.2, §4.2", [Holder];
            output_hides_later_kernel_reads: strong_output::kernel_reads_after_the_request_are_not_seen, "§2.1.2, §4.2", [Holder];
            output_outlives_its_buffer: strong_output::a_buffer_dropped_meanwhile_is_still_read, "§3.2.2", [Holder];
            outputs_of_one_granule_keep_their_contents: strong_output::outputs_of_one_granule_differ, "§4.2", [Holder];
            overlapping_outputs_keep_their_contents: strong_output::overlapping_outputs_are_independent, "§4.2", [Holder];
            anticipated_output_hides_later_stores: strong_output::an_anticipated_reply_frees_the_buffer, "§1.1.2, §4.3", [Holder];
            failed_output_leaves_the_buffer: strong_output::a_failed_output_changes_nothing, "§2.1.2, §7.4.1", [Holder];
            borrowed_output_hides_stores_after_a_timeout: strong_output_borrowed::stores_after_a_timeout_are_not_seen, "§2.1.2, §3.1.2", [Holder];
            borrowed_output_outlives_its_buffer: strong_output_borrowed::a_buffer_dropped_after_a_timeout_is_still_read, "§3.1.2, §3.2.2", [Holder];
            borrowed_output_may_be_anticipated: strong_output_borrowed::stores_after_an_anticipated_reply_are_not_seen, "§1.1.2, §4.3", [Holder];
            borrowed_output_leaves_its_neighbours: strong_output_borrowed::stores_beside_the_data_are_not_lost, "§4.2", [Holder];
            output_hides_a_later_share: strong_output_reuse::sharing_the_buffer_afterwards_is_not_seen, "§3.2, §4.2", [Holder];
            output_hides_later_input: strong_output_reuse::input_into_the_buffer_is_not_seen, "§4.1, §4.2", [Holder, Memory];
            output_hides_input_through_reused_buffers: strong_output_reuse::input_after_input_is_not_seen, "§3.2.2, §4.1", [Holder, Memory];
            output_hides_the_reuse_of_a_migrant_region: strong_output_reuse::a_migrant_passed_on_is_not_seen, "§3.3, §4.2", [Holder, Memory];
            output_outlives_its_migrant_region: strong_output_reuse::a_migrant_dropped_is_not_seen, "§3.2.2, §3.3", [Holder, Memory];
            input_comes_with_the_reply: strong_input::a_buffer_is_untouched_until_the_reply_is_taken, "§2.1.2", [Holder];
            failed_input_leaves_the_buffer: strong_input::a_failed_input_changes_nothing, "§2.1.2, §3.1.2", [Holder];
            input_changes_its_bytes_and_no_others: strong_input::every_byte_arrives_and_no_other_changes, "§2.1.2, §4.1", [Holder];
            input_may_be_shorter_than_asked: strong_input::less_may_arrive_than_was_asked_for, "§4.1, §7.2", [Holder];
            input_without_a_length_is_refused: strong_input::a_success_without_a_length_is_a_failure, "none: silence", [Holder];
            elements_may_meet_in_one_granule: strong_input::neighbouring_elements_meet_in_one_granule, "§4.1, §7.1", [Holder];
            peeked_input_stays_pending: strong_input_delivery::a_peek_takes_nothing, "§7.1", [Holder];
            redirected_input_leaves_the_buffer: strong_input_delivery::data_can_be_redirected, "§7.1", [Holder];
            given_input_can_be_redirected: strong_input_delivery::data_for_buffers_given_by_value_can_be_redirected, "§7.1", [Holder];
            redirection_has_a_place_for_each: strong_input_delivery::a_redirection_to_more_buffers_than_there_are_inputs_is_refused, "§7.1", [Holder];
            redirection_is_all_or_nothing: strong_input_delivery::a_redirection_that_is_too_short_changes_nothing, "§2.1.2, §7.1", [Holder];
            forgotten_input_leaves_the_buffer: strong_input_delivery::a_pending_input_may_be_forgotten, "§2.1.2, §3.1.2", [Holder];
            input_shorter_than_said_is_refused: strong_input_delivery::data_beyond_the_servers_buffer_is_refused, "§7.2", [Holder];
            share_input_is_in_place: weak::a_failed_share_input_leaves_what_was_written, "§2.1.2, §3.2", [Holder];
            weak_input_is_seen_early: weak::input_is_seen_before_the_reply, "§2.1.2, §3.2", [Holder, Customized];
            weakly_moved_regions_stay_visible: weak::a_weakly_moved_region_stays_visible, "§3.3.1", [Holder];
            weakly_moved_regions_come_back: weak::a_weakly_moved_region_comes_back, "§3.3.1", [Holder];
            borrowed_memory_is_not_shared: weak::borrowed_memory_is_copied_instead, "none: Rust's borrows", [Holder];
            borrowed_share_leaves_its_neighbours: weak_borrowed::a_part_of_a_buffer_leaves_the_rest_alone, "none: Rust's borrows", [Holder];
            borrowed_share_ends_with_its_call: weak_borrowed::a_server_that_goes_on_after_a_timeout_stores_elsewhere, "§3.1.2", [Holder];
            migrants_are_passed_on: migrant::a_buffer_is_passed_on, "§2.1.1, §3.3", [Holder];
            failed_output_gives_migrants_back: migrant::a_failed_output_gives_the_buffer_back, "§3.3, §7.4.1", [Holder];
            moved_regions_are_hidden: migrant::strong_output_takes_all_access, "§3.3.2", [Holder];
            migrant_input_brings_a_buffer: migrant::input_brings_a_buffer, "§2.1.1, §7.4.2", [Holder];
            migrant_input_may_be_short: migrant::short_input_brings_a_short_buffer, "§7.2, §7.4.2", [Holder];
            moved_input_is_completed_with_zeros: migrant::no_other_data_comes_along, "§2.2, §7.4.2", [Holder];
            failed_migrant_input_brings_nothing: migrant::a_failed_input_brings_nothing, "§3.3, §7.4.2", [Holder];
            what_came_can_go: migrant::what_came_can_go, "§2.1.1, §3.3", [Memory];
            output_hides_outboard_input: outboard::output_pending_hides_data_from_outboard_memory, "§4.2, §7.4.4", [Holder];
            pinned_output_hides_later_stores: pins::output_is_read_until_it_is_let_go, "§3.2", [Holder];
            pinned_input_comes_with_the_last_pin: pins::input_is_filled_until_it_is_let_go, "§3.2", [Holder];
            pins_outlive_a_dropped_request: pins::a_dropped_request_leaves_its_pins, "§3.1.2, §3.2", [Holder];
            replies_wait_for_transfers: transfers::a_reply_waits_for_the_transfer, "§6.6, §7.4.4", [Holder];
            failed_transfers_fail_requests: transfers::a_failed_transfer_fails_the_request, "§2.1.2, §6.7, §6.8", [Holder];
            transfers_outlast_giving_up: transfers::a_device_goes_on_after_the_client_has_given_up, "§3.1.2, §6.6", [Holder];
            progress_is_told_before_the_reply: progress::how_far_it_has_come_is_told_before_the_reply, "§6.5", [Holder];
            what_has_come_outlasts_giving_up: progress::a_request_that_is_given_up_succeeds_with_what_has_come, "§6.5", [Holder];
            failures_say_how_far_it_had_come: progress::a_failure_says_how_far_it_had_come, "§3.1.2, §6.5", [Holder];
            objects_hold_the_data_that_they_are_said_to: backings::objects_hold_the_data_that_they_are_said_to, "§1.1.1", [Holder];
            registrars_know_where_outputs_are: backings::registrars_know_where_outputs_are, "§1.1.1", [Holder];
            objects_hold_pinned_data_after_the_reply: backings::objects_hold_pinned_data_after_the_reply, "§1.1.1, §3.2.2", [Holder];
            no_bytes_pass_by_every_scheme: empty::no_bytes_pass_by_every_scheme, "§7.1", [Holder];
        }
        in_place {
            weak_output_is_in_place: weak::output_is_read_where_it_lies, "§3.2", [Holder, InPlace, Frames];
            borrowed_share_input_is_in_place: weak_borrowed::input_fills_the_borrowed_bytes, "§3.2", [Holder, InPlace];
            borrowed_share_output_is_in_place: weak_borrowed::output_is_read_where_it_is_borrowed, "§3.2", [Holder, InPlace];
        }
        here {
            outboard_input_arrives: outboard::data_comes_from_outboard_memory, "§7.4.4", [Device];
            outboard_input_may_be_short: outboard::no_more_than_said_comes_from_outboard_memory, "§7.4.4", [Device];
            failed_outboard_input_leaves_the_buffer: outboard::a_failed_transfer_changes_nothing, "§2.1.2, §7.4.4", [Device];
            broken_outboard_transfers_leave_the_buffer: outboard::a_transfer_that_breaks_off_changes_nothing, "§2.1.2, §7.4.4", [Device];
            outboard_inputs_are_delivered_together: outboard::of_several_inputs_none_is_delivered_when_one_breaks_off, "§2.1.2, §7.4.4", [Device];
            fallible_outboard_input_is_swapped: outboard::a_device_that_may_fail_has_its_data_swapped, "§7.4.4", [Device];
            outboard_input_can_be_redirected: outboard::data_from_outboard_memory_can_be_redirected, "§7.1, §7.4.4", [Device];
            outboard_input_can_be_peeked_at: outboard::data_from_outboard_memory_can_be_peeked_at, "§7.1, §7.4.4", [Device];
            outboard_transfers_are_delivered_together: outboard::the_last_of_several_transfers_ends_the_request, "§2.1.2, §6.6", [Device];
            wrong_sums_spoil_by_weak_integrity_alone: outboard::wrong_sums_spoil_buffers_by_weak_integrity_alone, "§2.1.2, §6.7, §6.8", [Device];
        }
        stored {
            what_is_put_comes_back: stored::what_is_put_comes_back, "§1.1.2, §2.1", [Store];
            what_is_got_is_all_there_is: stored::all_of_it_comes_and_no_more, "§1.1.2, §2.1.2", [Store];
            long_data_comes_back: stored::long_data_comes_back, "§1.1.2, §2.1", [Store];
            the_length_said_is_that_of_the_data: stored::the_length_that_is_said_is_that_of_the_data, "§7.2", [Store];
            output_is_read_before_the_reply: stored::output_is_read_before_the_reply, "§2.1.2, §7.2", [Store];
            output_is_that_of_the_request: stored::output_is_that_of_the_request, "§2.1.2", [Store];
            nothing_is_stored_after_the_reply: stored::nothing_is_stored_after_the_reply, "§2.1.2, §7.2", [Store];
            refused_requests_change_nothing: stored::a_refused_request_changes_nothing, "§2.1.2", [Store];
            elements_are_one_buffer: stored::elements_are_one_buffer, "§7.1", [Store];
            no_bytes_can_be_kept: stored::no_bytes_can_be_kept, "§7.1", [Store];
            requests_of_threads_are_apart: stored::requests_of_threads_are_apart, "§1.1.2", [Store];
            an_abort_ends_one_request: stored::an_abort_ends_one_request, "§3.1.2", [Store];
        }
    } };
}

macro_rules! list {
    ($($group:ident { $($name:ident: $module:ident::$promise:ident, $source:literal, [$($need:ident),*];)* })*) => {
        /// All promises.
        pub static PROMISES: &[Promise] = &[$($(Promise {
            name: stringify!($name),
            source: $source,
            needs: &[$(crate::Need::$need),*],
            holds: $module::$promise,
        },)*)*];
    };
}

each_promise! { list }

/// The promise of this name.
///
/// # Panics
/// There is none.
pub fn promise(name: &str) -> &'static Promise {
    let found = PROMISES.iter().find(|promise| promise.name == name);
    found.unwrap_or_else(|| panic!("there is no promise named {name}; PROMISES has all of them"))
}
