"""Generated calls over the OpenAPI document, good and bad: no 5xx, no answer that is not described."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from oncegate.service.openapi import document
from tests.service.site import SECRET, Site
from tests.support.properties import tried

pytestmark = pytest.mark.slow

EXAMPLES = 8
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)


def _without_waits() -> dict[str, Any]:
    """The document, but for long polls: a generated `wait` of half a minute would be kept to."""
    described = copy.deepcopy(document())
    (wait,) = [
        one
        for one in described["paths"]["/wes/v1/dispatch/pending"]["get"]["parameters"]
        if one["name"] == "wait"
    ]
    wait["schema"]["maximum"] = 0
    return described


SCHEMA: Any = schemathesis.openapi.from_dict(_without_waits())
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations()]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.label)
@pytest.mark.hypothesis
def test_every_answer_is_described_and_none_is_a_fault(
    shared: Site, operation: Any, mode: GenerationMode
) -> None:
    token = SECRET if operation.path.startswith("/in/") else shared.token
    answered = []

    @tried(EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def play(case: Any) -> None:
        if "surface" in case.path_parameters:
            case.path_parameters["surface"] = "hooks"
        response = case.call(
            base_url=f"http://127.0.0.1:{shared.port}", headers={"authorization": f"Bearer {token}"}
        )
        answered.append(response.status_code)
        case.validate_response(response, checks=CHECKS)

    try:
        play()
    except Exception as error:  # an operation without input has no bad input
        if "Unsatisfiable" not in type(error).__name__ and "Negation" not in type(error).__name__:
            raise
    if mode is GenerationMode.POSITIVE:
        assert any(status < 500 for status in answered)
