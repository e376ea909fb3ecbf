"""For Schemathesis: no request may take long, so what would wait is told not to."""

import schemathesis

FOLLOWS = (None, True, 1, "true", "True", "1")
WAIT_MS_MAX = 10


@schemathesis.hook
def before_call(context, case, kwargs):
    query = case.query if isinstance(case.query, dict) else {}
    if case.operation.path.endswith("/stream") and query.get("follow") in FOLLOWS:
        case.query = query | {"follow": "false"}
    wait_ms = str(query.get("wait_ms", ""))
    if wait_ms.isdigit() and int(wait_ms) > WAIT_MS_MAX:
        case.query = query | {"wait_ms": str(WAIT_MS_MAX)}
    if case.operation.path.endswith("/pull") and isinstance(case.body, dict):
        wait_ms = case.body.get("wait_ms")
        if isinstance(wait_ms, int | float) and wait_ms > WAIT_MS_MAX:
            case.body = case.body | {"wait_ms": WAIT_MS_MAX}
