"""The attacks that a secured broker must withstand, and the tests that carry them out. `test_attacks.py` checks that
every named test exists."""

_WIRE = "tests/hostile/security/test_attacks.py"
_SCRAM = "tests/unit/security/test_scram.py"
_SASL = "tests/unit/frontends/kafka/test_sasl.py"
_JWT = "tests/unit/security/test_jwt.py"
_SESSIONS = "tests/unit/security/test_sessions.py"
_OIDC = "tests/unit/frontends/web/test_oidc.py"
_LISTENER = "tests/unit/security/test_listener.py"
_TLS = "tests/unit/security/test_tls.py"

ATTACKS = {
    "a final message is replayed": (
        f"{_WIRE}::test_a_recorded_login_is_of_no_use_again",
        f"{_SASL}::test_a_final_message_is_of_no_use_on_another_connection",
        f"{_SCRAM}::test_a_replayed_login_fails",
    ),
    "a final message is truncated": (
        f"{_WIRE}::test_a_truncated_final_message_is_refused",
        f"{_SCRAM}::test_every_truncated_last_message_fails",
    ),
    "a nonce is used again": (
        f"{_WIRE}::test_a_recorded_login_is_of_no_use_again",
        f"{_SCRAM}::test_the_whole_nonce_is_compared",
    ),
    "the mechanism is switched": (
        f"{_WIRE}::test_the_mechanism_cannot_be_switched",
        f"{_SASL}::test_a_session_is_renewed_with_the_same_mechanism_only",
        "tests/unit/security/test_authenticator.py::test_a_client_cannot_switch_the_mechanism",
    ),
    "PLAIN without TLS": (
        f"{_SASL}::test_plain_needs_a_connection_that_others_cannot_read",
        "tests/unit/security/test_gate.py::test_credentials_are_refused_where_others_can_read_them",
    ),
    "timing of unknown users": (
        "tests/faults/security/test_timing.py::test_known_and_unknown_users_take_the_same_time",
        "tests/unit/security/test_plain.py::test_every_user_costs_the_same",
        "tests/unit/security/test_decoys.py::test_a_decoy_is_like_the_only_kind_of_credential",
    ),
    "10,000 slow handshakes": (
        "tests/faults/security/test_slow_handshakes.py::test_ten_thousand_slow_handshakes_delay_no_other_client",
        f"{_LISTENER}::test_handshakes_of_one_address_are_limited",
        f"{_SASL}::test_a_login_that_takes_too_long_is_ended_by_the_sweep",
    ),
    "TLS 1.1": (
        f"{_LISTENER}::test_old_versions_are_refused",
        "tests/unit/frontends/test_tls.py::test_grpc_refuses_old_versions",
    ),
    "renegotiation": (f"{_WIRE}::test_a_client_cannot_renegotiate",),
    "early data": (f"{_WIRE}::test_early_data_is_not_accepted",),
    "TLS on a plain port": (f"{_WIRE}::test_tls_on_a_plain_port_is_closed_and_others_are_served",),
    "plain on a TLS port": (
        f"{_LISTENER}::test_a_plain_client_is_closed_quietly",
        "tests/hostile/kafka/test_tls.py::test_garbled_handshakes_end_quietly",
    ),
    "swapped certificates": (
        f"{_WIRE}::test_a_certificate_of_another_host_is_refused_by_clients",
        f"{_TLS}::test_a_bad_file_is_refused_at_the_start",
        f"{_TLS}::test_a_bad_new_file_keeps_the_current_certificate",
    ),
    "expired certificates": (
        f"{_WIRE}::test_an_expired_client_certificate_is_refused",
        f"{_TLS}::test_a_bad_file_is_refused_at_the_start",
        "tests/unit/frontends/kafka/test_certificates.py::test_access_ends_with_the_certificate",
    ),
    "JWT: none, HS256, foreign kid, jku": (
        f"{_WIRE}::test_a_forged_jwt_is_refused_by_every_interface",
        f"{_JWT}::test_a_token_without_a_signature_fails",
        f"{_JWT}::test_a_public_key_is_no_secret_of_hs256",
        f"{_JWT}::test_a_foreign_key_id_fails",
        f"{_JWT}::test_other_members_of_the_header_are_ignored",
    ),
    "an ended session on many connections": (
        f"{_SESSIONS}::test_an_ended_id_that_many_connections_repeat_is_read_once",
        f"{_SESSIONS}::test_a_refresh_does_not_wait_for_the_sessions_that_requests_load",
    ),
    "the callback of another login": (
        f"{_OIDC}::test_a_callback_that_is_not_of_this_browsers_login_is_refused",
    ),
    "the email address of another user": (
        f"{_JWT}::test_an_email_address_names_the_user_only_if_the_issuer_has_verified_it",
        f"{_OIDC}::test_the_claim_of_the_settings_names_the_user",
    ),
    "an identity provider that hangs": (
        "tests/unit/security/test_https_client.py::"
        "test_a_server_that_sends_a_little_now_and_then_does_not_hold_a_request",
        "tests/unit/security/test_provider_threads.py::"
        "test_requests_that_hang_hold_no_other_threads_and_do_not_delay_a_stop",
    ),
    "20 million tags before the login": (f"{_WIRE}::test_twenty_million_tags_before_the_login_are_not_read",),
    "oversized frames before the login": (
        f"{_SASL}::test_a_large_frame_is_refused_by_its_length_before_the_login",
        f"{_WIRE}::test_twenty_million_tags_before_the_login_are_not_read",
    ),
    "a flood before the login": (
        "tests/unit/frontends/kafka/test_throttling.py::test_what_comes_before_the_login_counts_for_no_quota",
        "tests/unit/security/test_addresses.py::"
        "test_a_connection_that_would_wait_too_long_is_refused_and_does_not_count",
    ),
    "wrong passwords from one address": (
        "tests/unit/security/test_plain.py::test_one_address_does_not_fill_the_queue",
    ),
    "new client ids against a quota": (
        "tests/unit/security/test_quotas.py::test_new_names_do_not_end_the_delay_of_another_client",
        "tests/unit/security/test_quotas.py::test_clients_without_room_share_a_bucket_by_user",
        "tests/unit/security/test_quotas.py::test_a_client_id_that_no_quota_can_name_counts_as_none",
    ),
    "new topics against a quota": (
        "tests/unit/log/test_topic_quotas.py::test_a_new_topic_is_full_if_a_full_prefix_covers_it",
    ),
    "a silent audit topic": (
        "tests/unit/service/test_audit_topic.py::test_no_quota_of_topics_silences_it",
        "tests/unit/service/test_audit_topic.py::test_batches_and_values_are_cut_by_their_encoded_size",
        "tests/unit/service/test_audit_topic.py::"
        "test_an_event_that_is_refused_is_dropped_and_the_others_are_written",
    ),
    "revocation during a stream and a waiting fetch": (
        "tests/unit/frontends/rpc/test_revocation.py::test_a_sweep_ends_a_stream_that_waits",
        "tests/unit/frontends/web/test_authentication.py::test_a_sweep_ends_a_stream_and_says_why",
        "tests/unit/frontends/web/test_authentication.py::"
        "test_a_request_that_waits_returns_nothing_when_the_rights_have_ended",
        "tests/unit/frontends/kafka/test_authorization_details.py::"
        "test_a_fetch_that_waits_returns_nothing_of_a_topic_whose_right_has_ended",
        f"{_SASL}::test_the_sweep_closes_a_connection_whose_user_is_gone",
    ),
    "re-authentication as another principal": (
        f"{_SASL}::test_a_session_is_renewed_for_the_same_principal_only",
    ),
    "a principal kept after its expiry": (f"{_SASL}::test_an_expired_session_is_closed_by_the_sweep",),
    "secrets in logs and responses": (
        "tests/hostile/security/test_secrets.py::test_no_secret_is_shown_anywhere",
    ),
}
