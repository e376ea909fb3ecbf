"""No call of a service assumes the access of its client."""

import inspect

from millpond import service


def test_every_access_of_a_call_is_required():
    parts = [getattr(service, name) for name in service.__all__]
    calls = [
        (part, name, call.parameters["access"])
        for part in parts
        if inspect.isclass(part)
        for name, method in inspect.getmembers(part, inspect.isfunction)
        if "access" in (call := inspect.signature(method)).parameters
    ]
    assert len(calls) > 20
    for part, name, access in calls:
        assert access.default is inspect.Parameter.empty, f"{part.__name__}.{name}"
