"""`examples/cdc`: PostgreSQL → Debezium → Millpond → Delta by Spark, as its README says to run it."""

import subprocess
import sys
from decimal import Decimal
from pathlib import Path

from peers.home import ROOT
from tests.peers.support import available, said, shows

from peers import connect, postgres

EXAMPLE = ROOT / "examples" / "cdc" / "cdc.py"
SECONDS_MAX = 300
ROWS, EVENTS = 1_200, 1_900


def wanted() -> dict[int, tuple[str, Decimal, str | None]]:
    """1,400 rows were inserted, those from 500 to 799 updated, and the first 200 deleted."""
    table = {}
    for number in range(201, 1_401):
        amount = Decimal(number) * Decimal("1.25") + (1 if 500 <= number < 800 else 0)
        table[number] = (f"customer {number % 7}", amount, None if number % 3 == 0 else f"note {number}")
    return table


@shows("Debezium (PostgreSQL)", "feeds a Delta table by Spark, which is equal to PostgreSQL's (examples/cdc)")
def test_cdc(java, tmp_path: Path, counted):
    from deltalake import DeltaTable

    available(connect.jars)
    available(connect.debezium)
    available(postgres.programs)
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path / "demo")],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        cwd=tmp_path,
        check=False,
    )
    lines = said(done).splitlines()
    assert f"{EVENTS:,} events" in lines[-3]
    assert lines[-2:] == [f"PostgreSQL has {ROWS:,} rows; the Delta table is equal", "stopped"]
    rows = DeltaTable(str(tmp_path / "demo" / "orders")).to_pyarrow_table().to_pylist()
    assert len(rows) == ROWS
    assert {row["id"]: (row["customer"], row["amount"], row["note"]) for row in rows} == wanted()
    counted(f"{EVENTS:,} events, {ROWS:,} rows in both tables")
