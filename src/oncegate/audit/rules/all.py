"""Every rule in one order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from oncegate.audit.rules.acknowledging import early_acknowledgements
from oncegate.audit.rules.endings import silent_drops, swallowed_failures
from oncegate.audit.rules.keys import fresh_keys, keys_not_passed, retried_calls, transport_keys
from oncegate.audit.rules.own import effects_outside, in_functions, templates
from oncegate.audit.rules.reservations import check_then_act, time_windows, unreserved_calls
from oncegate.audit.rules.times import naive_times
from oncegate.audit.rules.transactions import effects_in_transactions, separate_transactions
from oncegate.audit.rules.view import Draft, View

HANDLER_RULES: Final[tuple[Callable[[View], Iterator[Draft]], ...]] = (
    unreserved_calls, transport_keys, time_windows, separate_transactions, check_then_act, silent_drops, early_acknowledgements,
    swallowed_failures, keys_not_passed, retried_calls, naive_times, fresh_keys, effects_in_transactions, effects_outside, templates,
    in_functions,
)  # fmt: skip
