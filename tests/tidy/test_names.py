"""One name has one meaning: classes and type aliases of the package are defined once."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
DEFINED_AGAIN = {
    "FetchRequest": "Kafka's message in `protocol`, and the public request of `Log.fetch`",
    "Topic": "the topic of the engine, and the public description that `Admin` returns",
    "Q": "a type variable: the request of a generic handler",
    "R": "a type variable: the response of a generic handler",
    "T": "a type variable without a meaning of its own",
}
"""Names that are defined more than once, and why. The first two are public or Kafka's, and cannot change."""
WHERE = {
    "spark/pipelines/replay.py": "the SQL condition of `pipeline replay --where`",
    "spark/kernels/batches.py": "numpy.where",
    "spark/kernels/compaction.py": "numpy.where",
    "spark/sink/columns.py": "numpy.where",
    "spark/sink/row_errors.py": "numpy.where",
    "spark/source/rows.py": "numpy.where",
}
"""Files that may have a variable or attribute of this name, which stood for a topic's partition once."""


def modules():
    return [path for path in sorted(SRC.rglob("*.py")) if "stubs" not in path.parts]


def defined(tree):
    """Every class, and every type alias or type variable of a module."""
    yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and re.fullmatch(r"_?[A-Z]([a-z]\w*)?", target.id):
                yield target.id


def test_a_class_name_is_defined_once():
    homes = defaultdict(list)
    for path in modules():
        for name in defined(ast.parse(path.read_text())):
            homes[name].append(str(path.relative_to(SRC)))
    again = {name: found for name, found in homes.items() if len(found) > 1}
    assert len(homes) > 900, "the package was read"
    assert {name: again[name] for name in again if name not in DEFINED_AGAIN} == {}
    assert set(DEFINED_AGAIN) <= set(again), "defined once now: remove it from the list"
    assert len(DEFINED_AGAIN) <= 10


def test_a_topics_partition_is_not_called_where():
    found = set()
    for path in modules():
        text = path.read_text()
        if not re.search(r"\bwheres?\b", text):
            continue  # reading tokens is slow
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        if any(token.type == tokenize.NAME and token.string in ("where", "wheres") for token in tokens):
            found.add(str(path.relative_to(SRC / "millpond")))
    assert found == set(WHERE)
