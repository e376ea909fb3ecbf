"""How large classes and files may become without a reason."""

import ast
from pathlib import Path

import millpond
import millpond.testing

SOURCE = Path(__file__).parents[2] / "src" / "millpond"
METHODS_MAX = 20
LINES_MAX = 600
REASON = f"more than {METHODS_MAX}"
"""A class with more methods says in its docstring why, in a sentence with these words."""
PUBLIC = {*millpond.__all__, *millpond.testing.__all__}
"""Classes for users are as large as what users can do with them. Their docstrings are for users, too."""


def modules():
    return [path for path in sorted(SOURCE.rglob("*.py")) if "stubs" not in path.parts]


def test_a_class_with_many_methods_says_why():
    silent = [
        f"{path.relative_to(SOURCE)}:{node.name}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name not in PUBLIC
        if sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body) > METHODS_MAX
        if REASON not in " ".join((ast.get_docstring(node) or "").split())
    ]
    assert silent == []


def test_no_file_is_longer_than_a_reader_bears():
    assert [path.name for path in modules() if len(path.read_text().splitlines()) > LINES_MAX] == []
