"""What every Spark session imports must be quick and must not need what may not be installed."""

import subprocess
import sys

HEAVY = ("numba", "pyarrow", "deltalake", "pyiceberg", "fastavro", "grpc", "uvloop")


def modules_after(statement):
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_finding_the_data_source_loads_nothing_of_ours():
    loaded = modules_after("import pyspark_millpond")
    assert not any(name.split(".")[0] == "millpond" for name in loaded)
    assert not loaded & {*HEAVY} - modules_after("import pyspark.sql.datasource")


def test_the_package_itself_is_cheap():
    loaded = modules_after("import millpond.spark")
    assert not loaded & {*HEAVY, "pyspark", "numpy"}


def test_its_names_are_there():
    import millpond.spark

    for name in millpond.spark.__all__:
        assert callable(getattr(millpond.spark, name))
