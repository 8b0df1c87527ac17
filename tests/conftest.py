"""Settings of all tests: failed assertions of the conformance suite show their values."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("oncegate.testing.conformance")
