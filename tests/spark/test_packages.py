"""The boundaries inside `tidelog.spark` that its front pages promise."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import tidelog

SPARK = Path(tidelog.__file__).parent / "spark"
CROSSING = {"View", "ViewSource", "in_order", "plan_view", "ViewPlan", "Aggregate", "Join"}


def imports(folder: str) -> Iterator[tuple[str, str, str]]:
    """The modules of a package: from what each imports, and which name."""
    for path in sorted((SPARK / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield from ((path.name, node.module, name.name) for name in node.names)


def test_keeping_a_view_knows_its_plan_and_nothing_else_of_its_sql() -> None:
    taken = {name for _, module, name in imports("views/dataflow") if module.startswith("tidelog.spark.views.sql")}
    assert taken == CROSSING


def test_taking_sql_apart_needs_neither_spark_nor_a_server() -> None:
    allowed = ("tidelog.spark.views.sql", "tidelog.spark.views.naming")
    ours = {module for _, module, _ in imports("views/sql") if module.startswith("tidelog.spark")}
    assert {module for module in ours if not module.startswith(allowed)} == set()
    assert not [module for _, module, _ in imports("views/sql") if module.startswith("pyspark")]


def test_sorted_runs_know_neither_spark_nor_what_is_in_them() -> None:
    ours = {module for _, module, _ in imports("runs") if module.startswith("tidelog.spark")}
    allowed = ("tidelog.spark.runs.", "tidelog.spark.delta.", "tidelog.spark.cache")
    assert {module for module in ours if not module.startswith(allowed)} == set()
    assert not [module for _, module, _ in imports("runs") if module.startswith("pyspark")]


def test_packages_import_only_those_below_them() -> None:
    above = {"delta": {"source", "runs", "jobs", "lake", "views"}, "source": {"delta", "runs", "jobs", "lake", "views"}}
    above |= {"jobs": {"delta", "lake", "views"}, "lake": {"runs", "views"}, "views": {"lake"}}
    above["runs"] = {"source", "jobs", "lake", "views"}
    for package, others in above.items():
        found = {module.split(".")[2] for _, module, _ in imports(package) if module.startswith("tidelog.spark.")}
        assert not found & others, f"{package} imports {found & others}"
