"""A replica's circuit: events and the states that follow."""

from weft_gateway.engine.circuit import Circuit
from weft_gateway.engine.errors import ConnectFailed, ReplicaClosed, ReplicaFault, ReplicaTimeout

UP = Circuit(healthy=True, alive=True)


def failing(state: Circuit, times: int) -> Circuit:
    for _ in range(times):
        state = state.failed(ReplicaFault())
    return state


def checks_until_back(state: Circuit) -> int:
    checks = 0
    while not state.healthy:
        state, checks = state.checked(True), checks + 1
    return checks


def test_replica_is_unhealthy_until_its_first_good_check() -> None:
    assert not Circuit().healthy
    assert Circuit().checked(True).healthy


def test_refused_connection_opens_the_circuit() -> None:
    after = UP.failed(ConnectFailed())
    assert (after.healthy, after.failures, after.last_error) == (False, 1, "replica_unreachable")


def test_other_failures_in_a_row_open_the_circuit() -> None:
    once = UP.failed(ReplicaClosed())
    assert (once.healthy, once.failures, once.last_error) == (True, 1, "replica_closed")
    twice = once.failed(ReplicaTimeout())
    assert twice.healthy
    assert not twice.failed(ReplicaClosed()).healthy


def test_success_resets_the_failure_count() -> None:
    state = UP.failed(ReplicaClosed()).failed(ReplicaClosed()).succeeded()
    assert state == UP
    assert state.failed(ReplicaClosed()).healthy


def test_only_a_good_check_closes_an_open_circuit() -> None:
    out = UP.failed(ConnectFailed())
    assert not out.succeeded().healthy
    back = out.checked(True)
    assert back.healthy
    assert back.failures == 0


def test_good_check_does_not_reset_failures_of_calls() -> None:
    state = UP.failed(ReplicaClosed()).checked(True).failed(ReplicaClosed()).checked(True)
    assert state.failures == 2
    assert not state.failed(ReplicaClosed()).healthy


def test_late_check_counts_as_one_failure() -> None:
    late = UP.checked(False, "health_check: ReadTimeout", sure=False)
    assert (late.healthy, late.failures) == (True, 1)
    assert not late.checked(False, sure=False).checked(False, sure=False).healthy
    assert not Circuit().checked(False, sure=False).healthy


def test_bad_check_opens_the_circuit_with_its_reason() -> None:
    after = UP.checked(False, "health_check: ConnectError")
    assert (after.healthy, after.last_error) == (False, "health_check: ConnectError")


def test_replica_that_fails_only_calls_is_unhealthy_but_alive() -> None:
    assert failing(UP, 2).healthy
    out = failing(UP, 3)
    assert (out.healthy, out.alive, out.last_error) == (False, True, "replica_5xx")
    assert not UP.failed(ConnectFailed()).alive
    assert not out.failed(ConnectFailed()).alive
    assert not out.checked(False).alive
    assert not failing(UP, 2).checked(False, sure=False).alive
    assert not Circuit().alive


def test_one_failure_reopens_the_circuit_before_any_success() -> None:
    back = failing(UP, 3).checked(True)
    assert back.healthy
    again = back.failed(ReplicaFault())
    assert not again.healthy
    healed = back.succeeded()
    assert healed == UP
    assert failing(healed, 2).healthy


def test_recovery_takes_longer_each_time_up_to_a_limit() -> None:
    state, waits = failing(UP, 3), []
    for _ in range(7):
        waits.append(checks_until_back(state))
        while not state.healthy:
            state = state.checked(True)
        state = state.failed(ReplicaFault())
    assert waits == [1, 2, 4, 8, 16, 16, 16]


def test_failures_of_an_open_circuit_do_not_delay_recovery() -> None:
    out = failing(UP, 3)
    assert checks_until_back(failing(out, 5)) == 1


def test_restarted_process_has_a_clean_record() -> None:
    out = failing(failing(UP, 3).checked(True), 1)
    assert checks_until_back(out) == 2
    for gone in (out.checked(False), out.failed(ConnectFailed())):
        back = gone.checked(True)
        assert (back.healthy, back.failures) == (True, 0)
        assert failing(back, 2).healthy
        assert checks_until_back(failing(back, 3)) == 1


def failing_of(state: Circuit, tenant: str, times: int) -> Circuit:
    for _ in range(times):
        state = state.failed(ReplicaFault(), tenant)
    return state


def test_failures_of_one_tenant_do_not_open_the_circuit_for_others() -> None:
    served = UP.succeeded("a").succeeded("b").succeeded("c")
    assert failing_of(served, "a", 11).healthy
    assert not failing_of(failing_of(served, "a", 2), "b", 1).healthy
    # Twelve failures in a row open the circuit even if they are all of one tenant.
    assert not failing_of(served, "a", 12).healthy


def test_failures_of_the_only_served_tenant_open_the_circuit() -> None:
    assert not failing_of(UP.succeeded("a"), "a", 3).healthy
    assert not failing_of(UP, "a", 3).healthy
