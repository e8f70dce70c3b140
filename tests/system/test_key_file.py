"""Reading the key of encrypted objects from its file."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tidelog.shipping.sealing_key import SealingKey
from tidelog.system.key_file import read_sealing_key

RAW = bytes(range(100, 132))


@pytest.mark.parametrize("content", [RAW, RAW.hex().encode() + b"\n"])
def test_a_key_is_read(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o640)
    assert read_sealing_key(str(path)).id == SealingKey(RAW).id
    assert caplog.text == ""


def test_a_key_that_all_may_read_is_used_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "key"
    path.write_bytes(RAW.hex().encode())
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert read_sealing_key(str(path)).id == SealingKey(RAW).id
    assert f"every user of this machine can read the key in {path}: chmod 600 {path}" in caplog.text
    assert RAW.hex() not in caplog.text


@pytest.mark.parametrize("content", [b"", b"hunter2-is-no-key", b"x" * 100_000])
def test_what_is_no_key_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{path}: a key is 32 bytes or 64 hexadecimal digits") as refused:
        read_sealing_key(str(path))
    assert "hunter2" not in str(refused.value)


def test_a_file_that_is_missing_or_a_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_sealing_key(str(tmp_path / "missing"))
    with pytest.raises(IsADirectoryError):
        read_sealing_key(str(tmp_path))
