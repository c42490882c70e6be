//! Conformance: what each semantics promises, on every kind of memory, protection and system buffer.
//!
//! How: a promise is a function over a [`Transport`], which tries each scheme that makes the promise. The macro makes a test
//! of it for every configuration, in the client's process and over channels. An emulated scheme must keep all promises of
//! the plain scheme.
//! Source: thesis §2.1 (the semantics), §3.3, §4, §7.4.

mod empty;
mod migrant;
mod outboard;
mod pins;
mod schemes;
mod strong_input;
mod strong_input_delivery;
mod strong_output;
mod strong_output_borrowed;
mod strong_output_reuse;
mod weak;
mod weak_borrowed;

crate::promise! {
    strong_output::stores_after_the_request_are_not_seen as output_hides_later_stores,
    strong_output::kernel_reads_after_the_request_are_not_seen as output_hides_later_kernel_reads,
    strong_output::a_buffer_dropped_meanwhile_is_still_read as output_outlives_its_buffer,
    strong_output::outputs_of_one_granule_differ as outputs_of_one_granule_keep_their_contents,
    strong_output::overlapping_outputs_are_independent as overlapping_outputs_keep_their_contents,
    strong_output::an_anticipated_reply_frees_the_buffer as anticipated_output_hides_later_stores,
    strong_output::a_failed_output_changes_nothing as failed_output_leaves_the_buffer,
    strong_output_borrowed::stores_after_a_timeout_are_not_seen as borrowed_output_hides_stores_after_a_timeout,
    strong_output_borrowed::a_buffer_dropped_after_a_timeout_is_still_read as borrowed_output_outlives_its_buffer,
    strong_output_borrowed::stores_after_an_anticipated_reply_are_not_seen as borrowed_output_may_be_anticipated,
    strong_output_borrowed::stores_beside_the_data_are_not_lost as borrowed_output_leaves_its_neighbours,
    strong_output_reuse::sharing_the_buffer_afterwards_is_not_seen as output_hides_a_later_share,
    strong_output_reuse::input_into_the_buffer_is_not_seen as output_hides_later_input,
    strong_output_reuse::input_after_input_is_not_seen as output_hides_input_through_reused_buffers,
    strong_output_reuse::a_migrant_passed_on_is_not_seen as output_hides_the_reuse_of_a_migrant_region,
    strong_output_reuse::a_migrant_dropped_is_not_seen as output_outlives_its_migrant_region,
    strong_input::a_buffer_is_untouched_until_the_reply_is_taken as input_comes_with_the_reply,
    strong_input::a_failed_input_changes_nothing as failed_input_leaves_the_buffer,
    strong_input::every_byte_arrives_and_no_other_changes as input_changes_its_bytes_and_no_others,
    strong_input::less_may_arrive_than_was_asked_for as input_may_be_shorter_than_asked,
    strong_input::neighbouring_elements_meet_in_one_granule as elements_may_meet_in_one_granule,
    strong_input_delivery::a_peek_takes_nothing as peeked_input_stays_pending,
    strong_input_delivery::data_can_be_redirected as redirected_input_leaves_the_buffer,
    strong_input_delivery::data_for_buffers_given_by_value_can_be_redirected as given_input_can_be_redirected,
    strong_input_delivery::a_redirection_to_more_buffers_than_there_are_inputs_is_refused as redirection_has_a_place_for_each,
    strong_input_delivery::a_redirection_that_is_too_short_changes_nothing as redirection_is_all_or_nothing,
    strong_input_delivery::a_pending_input_may_be_forgotten as forgotten_input_leaves_the_buffer,
    strong_input_delivery::data_beyond_the_servers_buffer_is_refused as input_shorter_than_said_is_refused,
    weak::a_failed_share_input_leaves_what_was_written as share_input_is_in_place,
    weak::input_is_seen_before_the_reply as weak_input_is_seen_early,
    weak::a_weakly_moved_region_stays_visible as weakly_moved_regions_stay_visible,
    weak::a_weakly_moved_region_comes_back as weakly_moved_regions_come_back,
    weak::borrowed_memory_is_copied_instead as borrowed_memory_is_not_shared,
    weak_borrowed::a_part_of_a_buffer_leaves_the_rest_alone as borrowed_share_leaves_its_neighbours,
    weak_borrowed::a_server_that_goes_on_after_a_timeout_stores_elsewhere as borrowed_share_ends_with_its_call,
    migrant::a_buffer_is_passed_on as migrants_are_passed_on,
    migrant::a_failed_output_gives_the_buffer_back as failed_output_gives_migrants_back,
    migrant::strong_output_takes_all_access as moved_regions_are_hidden,
    migrant::input_brings_a_buffer as migrant_input_brings_a_buffer,
    migrant::short_input_brings_a_short_buffer as migrant_input_may_be_short,
    migrant::no_other_data_comes_along as moved_input_is_completed_with_zeros,
    migrant::a_failed_input_brings_nothing as failed_migrant_input_brings_nothing,
    migrant::what_came_can_go as what_came_can_go,
    outboard::output_pending_hides_data_from_outboard_memory as output_hides_outboard_input,
    pins::output_is_read_until_it_is_let_go as pinned_output_hides_later_stores,
    pins::input_is_filled_until_it_is_let_go as pinned_input_comes_with_the_last_pin,
    pins::a_dropped_request_leaves_its_pins as pins_outlive_a_dropped_request,
    empty::no_bytes_pass_by_every_scheme as no_bytes_pass_by_every_scheme,
}

crate::promise_in_place! {
    weak::output_is_read_where_it_lies as weak_output_is_in_place,
    weak_borrowed::input_fills_the_borrowed_bytes as borrowed_share_input_is_in_place,
    weak_borrowed::output_is_read_where_it_is_borrowed as borrowed_share_output_is_in_place,
}

// The device driver of these is a part of the test; over channels, mechanism::channel has a device.
crate::promise_here! {
    outboard::data_comes_from_outboard_memory as outboard_input_arrives,
    outboard::no_more_than_said_comes_from_outboard_memory as outboard_input_may_be_short,
    outboard::a_failed_transfer_changes_nothing as failed_outboard_input_leaves_the_buffer,
    outboard::a_transfer_that_breaks_off_changes_nothing as broken_outboard_transfers_leave_the_buffer,
    outboard::of_several_inputs_none_is_delivered_when_one_breaks_off as outboard_inputs_are_delivered_together,
    outboard::a_device_that_may_fail_has_its_data_swapped as fallible_outboard_input_is_swapped,
    outboard::data_from_outboard_memory_can_be_redirected as outboard_input_can_be_redirected,
    outboard::data_from_outboard_memory_can_be_peeked_at as outboard_input_can_be_peeked_at,
}
