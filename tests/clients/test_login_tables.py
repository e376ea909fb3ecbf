"""docs/reference/authentication.md has the tables of what test_logins.py and test_own_logins.py test."""

from pathlib import Path

from tests.clients import test_logins, test_own_logins
from tests.clients.secured_clients import CLIENTS, MECHANISMS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "authentication.md"


def table(first, second, outcomes, rows, missing):
    head = [first, second, *outcomes]
    lines = [head, ["---"] * len(head)]
    for name, proof in rows:
        cells = [missing.get((name, proof, outcome)) for outcome in outcomes]
        lines.append([name, proof, *("yes" if each is None else f"no: {each}" for each in cells)])
    return (
        "".join(f"| {' | '.join(line)} |\n" for line in lines)
        .replace("| --- ", "|---")
        .replace("--- |", "---|")
    )


def kafka_table():
    rows = [(client.name, mechanism) for client in CLIENTS for mechanism in MECHANISMS]
    return table("client", "mechanism", test_logins.OUTCOMES, rows, test_logins.MISSING)


def own_table():
    rows = [(name, proof) for name in test_own_logins.INTERFACES for proof in test_own_logins.PROOFS]
    return table("client", "proof", test_own_logins.OUTCOMES, rows, test_own_logins.MISSING)


def test_the_page_has_the_combinations_that_are_tested():
    page = PAGE.read_text()
    assert kafka_table() in page
    assert own_table() in page
