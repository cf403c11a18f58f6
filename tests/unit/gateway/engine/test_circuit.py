"""The circuit of a replica, as a table of stimuli and states."""

from gateway.engine.circuit import Circuit
from gateway.engine.errors import ConnectFailed, ReplicaClosed, ReplicaTimeout

UP = Circuit(healthy=True)


def test_a_replica_is_out_until_its_first_good_check() -> None:
    assert not Circuit().healthy
    assert Circuit().checked(True).healthy


def test_a_refused_connection_takes_it_out_at_once() -> None:
    after = UP.failed(ConnectFailed())
    assert (after.healthy, after.failures, after.last_error) == (False, 1, "replica_unreachable")


def test_other_failures_take_it_out_when_they_come_in_a_row() -> None:
    once = UP.failed(ReplicaClosed())
    assert (once.healthy, once.failures, once.last_error) == (True, 1, "replica_closed")
    twice = once.failed(ReplicaTimeout())
    assert twice.healthy
    assert not twice.failed(ReplicaClosed()).healthy


def test_a_success_in_between_starts_the_count_again() -> None:
    state = UP.failed(ReplicaClosed()).failed(ReplicaClosed()).succeeded()
    assert state == UP
    assert state.failed(ReplicaClosed()).healthy


def test_a_late_success_does_not_bring_it_back_but_a_good_check_does() -> None:
    out = UP.failed(ConnectFailed())
    assert not out.succeeded().healthy
    back = out.checked(True)
    assert back.healthy
    assert back.failures == 0


def test_a_good_check_does_not_hide_failing_calls() -> None:
    state = UP.failed(ReplicaClosed()).checked(True).failed(ReplicaClosed()).checked(True)
    assert state.failures == 2
    assert not state.failed(ReplicaClosed()).healthy


def test_a_late_check_counts_as_a_failure_only() -> None:
    late = UP.checked(False, "health_check: ReadTimeout", sure=False)
    assert (late.healthy, late.failures) == (True, 1)
    assert not late.checked(False, sure=False).checked(False, sure=False).healthy
    assert not Circuit().checked(False, sure=False).healthy


def test_a_bad_check_takes_it_out_and_says_why() -> None:
    after = UP.checked(False, "health_check: ConnectError")
    assert (after.healthy, after.last_error) == (False, "health_check: ConnectError")
