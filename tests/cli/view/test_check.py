"""What `tidelog view check` refuses, before Spark is started."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.cli.view_hashes import Kept

VIEWS = """
[views.orders_by_state]
source = "prefix:order:"
sql = "select state, count(*) as n from source group by state"
key = ["state"]
"""


def test_a_lake_without_views_is_not_checked(kept: Kept, tmp_path: Path) -> None:
    outcome = kept.view("check", "--to", str(tmp_path))
    assert outcome.status == 2
    assert "there are no views in" in outcome.stderr
    outcome = kept.view("check", "nobody", "--to", str(tmp_path))
    assert outcome.status == 2
    assert "there is no view nobody" in outcome.stderr
    file = tmp_path / "views.toml"
    file.write_text(VIEWS)
    outcome = kept.view("check", "nobody", "--to", str(tmp_path), "--file", str(file))
    assert outcome.status == 2
    assert "has no view nobody" in outcome.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["views.toml"]


@pytest.mark.parametrize(
    ("target", "reason"), [("ftp://host/lake", "Unknown scheme: ftp"), ("s3://", "--to s3:// names no bucket")]
)
def test_a_lake_that_cannot_be_is_told(kept: Kept, target: str, reason: str) -> None:
    outcome = kept.view("check", "--to", target)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert reason in " ".join(outcome.stderr.split())


def test_a_table_that_does_not_say_what_it_is_is_not_checked(kept: Kept, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "views" / "v"), pa.table({"n": [1]}), name="tidelog view v")
    outcome = kept.view("check", "--to", str(tmp_path))
    assert outcome.status == 2
    assert "does not say which view it is" in " ".join(outcome.stderr.split())
