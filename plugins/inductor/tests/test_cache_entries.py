"""The disk cache: what a stored entry survives, and what it does not."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest
from core_inductor.runtime.cache import KernelCache, default_folder, open_cache


def stored(cache, key, content=b"\x7fELF kernels", age_s=0.0):
    scratch = cache.scratch(key)
    built = scratch / "kernels.so"
    built.write_bytes(content)
    path = cache.store(key, built)
    when = time.time() - age_s
    os.utime(path, (when, when))
    return path


@pytest.fixture
def cache(tmp_path):
    return KernelCache(tmp_path / "kernels")


def test_an_entry_is_found_under_its_key_only(cache):
    path = stored(cache, "ab" * 20)
    assert cache.find("ab" * 20) == path
    assert cache.find("cd" * 20) is None
    assert path.read_bytes().startswith(b"\x7fELF kernels")


def test_folder_and_parts_are_closed_to_others(tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    for folder in (tmp_path / "new", tmp_path / "open"):
        KernelCache(folder)
        for path in (folder, folder / "scratch", folder / "locks"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "no trailer"])
def test_a_damaged_entry_is_a_miss_and_goes_away(cache, damage):
    path = stored(cache, "ab" * 20, bytes(range(256)))
    content = path.read_bytes()
    damaged = {
        "truncated": content[:-1],
        "flipped": b"\x01" + content[1:],
        "empty": b"",
        "no trailer": content[:256],
    }[damage]
    path.write_bytes(damaged)
    assert cache.find("ab" * 20) is None
    assert not path.exists()


def test_a_folder_of_another_user_is_refused_with_one_warning(tmp_path, monkeypatch):
    folder, lstat = tmp_path / "kernels", os.lstat
    folder.mkdir()

    def owned_by_another(path):
        status = lstat(path)
        return os.stat_result((*status[:4], status.st_uid + 1, *status[5:])) if path == folder else status

    monkeypatch.setattr(os, "lstat", owned_by_another)
    with pytest.warns(RuntimeWarning, match="belongs to user") as caught:
        cache = open_cache(folder)
    assert len(caught) == 1 and cache.temporary and cache.folder != folder


def test_a_link_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "kernels").symlink_to(tmp_path / "elsewhere")
    with pytest.warns(RuntimeWarning, match="a link"):
        assert open_cache(tmp_path / "kernels").temporary


def test_a_file_in_place_of_the_folder_leads_to_a_temporary_cache(tmp_path):
    (tmp_path / "kernels").write_text("")
    with pytest.warns(RuntimeWarning, match="not kept on disk"):
        assert open_cache(tmp_path / "kernels").temporary


def test_trimming_removes_the_least_recently_used_entries_first(tmp_path):
    cache = KernelCache(tmp_path / "kernels", limit_bytes=2500)
    for index in range(4):
        stored(cache, f"{index:02}" * 20, bytes(900), age_s=8000 - index * 1000)
    assert cache.find("00" * 20) is not None, "a hit makes the oldest entry the youngest"
    assert cache.trim() <= 2500
    kept = {key for key in range(4) if cache.path(f"{key:02}" * 20).exists()}
    assert kept == {0, 3}


def test_storing_many_entries_keeps_the_folder_within_its_limit(tmp_path):
    cache = KernelCache(tmp_path / "kernels", limit_bytes=20_000)
    for index in range(130):
        stored(cache, f"{index:040}", bytes(1000), age_s=1000 - index)
    total = sum(path.stat().st_size for path in cache.folder.glob("*.so"))
    assert total < 20_000 + 64 * 1100
    assert not cache.path(f"{0:040}").exists() and cache.path(f"{129:040}").exists()


def test_trimming_drops_scratch_of_dead_builds_and_keeps_that_of_live_ones(cache):
    dead, live = cache.scratch("ab" * 20), cache.scratch("cd" * 20)
    (dead / "kernels.so").write_bytes(b"half")
    old = time.time() - 2 * 3600
    os.utime(dead, (old, old))
    cache.trim()
    assert not dead.exists() and live.exists()


def test_a_second_hit_of_a_fresh_entry_writes_nothing(cache):
    path = stored(cache, "ab" * 20, age_s=60)
    before = path.stat().st_mtime_ns
    assert cache.find("ab" * 20) is not None
    assert path.stat().st_mtime_ns == before


def test_the_environment_names_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("CORE_CACHE_DIR", str(tmp_path))
    assert default_folder() == tmp_path / "inductor"
    monkeypatch.setenv("CORE_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_folder() == Path("/somewhere/core/inductor")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/nobody")
    assert default_folder() == Path("/home/nobody/.cache/core/inductor")
