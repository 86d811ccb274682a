import gzip
import hashlib
import io
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from pathlib import Path

import pytest
from file_server import Files, serving

from bench.data import fetch as fetching
from bench.data.fetch import FetchError, fetch
from bench.data.sources import Part
from bench.data.unpack import UnpackError, unpack

CONTENT = bytes(range(256)) * 1000


@pytest.fixture
def server():
    with serving(Files({"/set.bin": CONTENT})) as files:
        yield files


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(fetching, "PAUSE", 0.0)


def sums(content: bytes) -> dict[str, str]:
    return {
        "md5": hashlib.md5(content).hexdigest(),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def part(server: Files, **changes) -> Part:
    made = {"url": f"{server.url}/set.bin", "file": "a/set.bin", "size": len(CONTENT)}
    return Part(**{**made, **sums(CONTENT), **changes})


def get(one: Part, data: Path) -> list[tuple[int, int | None]]:
    seen: list[tuple[int, int | None]] = []
    assert fetch(one, data, lambda done, total: seen.append((done, total)))
    return seen


def refusal(one: Part, data: Path) -> str:
    with pytest.raises(FetchError) as caught:
        get(one, data)
    line = str(caught.value)
    assert "\n" not in line
    return line


def everything(data: Path) -> set[str]:
    return {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()}


def test_a_whole_file(server, tmp_path):
    data = tmp_path / "new" / "data"
    seen = get(part(server), data)
    assert (data / "a" / "set.bin").read_bytes() == CONTENT
    assert everything(data) == {"a/set.bin", "a/set.bin.sha256"}
    note = (data / "a" / "set.bin.sha256").read_text()
    assert note == f"{sums(CONTENT)['sha256']}  set.bin\n"
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert server.asked == [None]


@pytest.mark.parametrize("lengths", [True, False])
@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_a_cut_connection_is_resumed(server, tmp_path, size, lengths):
    server.cuts = [100_000, 50_000]
    server.lengths = lengths
    if not lengths and size is None:
        # Nothing tells then that bytes are lacking, but for the checksum.
        assert "wrong checksum" in refusal(part(server, size=size), tmp_path)
        assert everything(tmp_path) == set()
        return
    get(part(server, size=size), tmp_path)
    assert (tmp_path / "a" / "set.bin").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-", "bytes=150000-"]


def test_a_cut_connection_without_ranges_starts_again(server, tmp_path):
    server.cuts = [100_000]
    server.ranges = False
    get(part(server), tmp_path)
    assert (tmp_path / "a" / "set.bin").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-"]


def test_a_later_call_goes_on(server, tmp_path):
    server.cuts = [100_000] + [0] * fetching.TRIES
    line = refusal(part(server), tmp_path)
    assert "cut" in line
    assert "100000 bytes are there: fetch again to go on" in line
    assert everything(tmp_path) == {"a/set.bin.part"}
    server.asked.clear()
    server.cuts.clear()
    get(part(server), tmp_path)
    assert server.asked == ["bytes=100000-"]
    assert (tmp_path / "a" / "set.bin").read_bytes() == CONTENT
    assert everything(tmp_path) == {"a/set.bin", "a/set.bin.sha256"}


@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_a_complete_part_is_only_checked(server, tmp_path, size):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "set.bin.part").write_bytes(CONTENT)
    get(part(server, size=size), tmp_path)
    assert (tmp_path / "a" / "set.bin").read_bytes() == CONTENT
    assert server.asked == ([] if size else [f"bytes={len(CONTENT)}-"])


@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_a_part_that_is_too_long_is_not_used(server, tmp_path, size):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "set.bin.part").write_bytes(CONTENT + b"more")
    get(part(server, size=size), tmp_path)
    assert (tmp_path / "a" / "set.bin").read_bytes() == CONTENT


def test_bytes_of_another_file_are_found_out(server, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "set.bin.part").write_bytes(b"x" * 1000)
    assert "wrong checksum: md5" in refusal(part(server), tmp_path)
    assert everything(tmp_path) == set()
    get(part(server), tmp_path)


@pytest.mark.parametrize("kind", ["md5", "sha256"])
def test_a_wrong_checksum(server, tmp_path, kind):
    wrong = "0" * len(sums(b"")[kind])
    line = refusal(part(server, **{kind: wrong}), tmp_path)
    assert f"{kind} {sums(CONTENT)[kind]}, not {wrong}" in line
    assert "removed" in line
    assert everything(tmp_path) == set()


def test_without_a_published_checksum(server, tmp_path):
    """Nothing is resumed, since nothing would prove it, and the sum of before counts."""
    one = part(server, md5=None, sha256=None)
    assert one.checksum == "no published checksum"
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "set.bin.part").write_bytes(b"x" * 1000)
    get(one, tmp_path)
    assert server.asked == [None]
    assert (tmp_path / "a" / "set.bin").read_bytes() == CONTENT
    server.contents["/set.bin"] = CONTENT[::-1]
    (tmp_path / "a" / "set.bin").unlink()
    line = refusal(one, tmp_path)
    assert "set.bin.sha256 has another one from an earlier time" in line


@pytest.mark.parametrize("state", [403, 404, 410])
def test_states_that_stay(server, tmp_path, state):
    server.states["/set.bin"] = [state]
    assert f"/set.bin: HTTP {state}" in refusal(part(server), tmp_path)
    assert everything(tmp_path) == set()
    assert len(server.asked) == 1


def test_states_that_pass(server, tmp_path):
    server.states["/set.bin"] = [503, 429]
    get(part(server), tmp_path)
    assert len(server.asked) == 3


def test_a_state_that_does_not_pass(server, tmp_path):
    server.states["/set.bin"] = [503] * 100
    assert "HTTP 503" in refusal(part(server), tmp_path)
    assert len(server.asked) == fetching.TRIES


def test_a_refused_connection(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    one = Part(f"http://127.0.0.1:{port}/x", "x", None)
    line = refusal(one, tmp_path)
    assert "can't be reached: Connection refused: is there a network?" in line


def test_an_unknown_host(tmp_path):
    assert "can't be reached" in refusal(Part("http://no.such.host.invalid/x", "x", None), tmp_path)


def test_a_silent_server(server, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "TIMEOUT", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        one = Part(f"http://127.0.0.1:{port}/x", "x", None)
        assert "no answer" in refusal(one, tmp_path)


def test_another_size_than_published(server, tmp_path):
    line = refusal(part(server, size=len(CONTENT) + 1), tmp_path)
    assert "not the 256001 that were published" in line
    assert not (tmp_path / "a" / "set.bin").exists()


def test_a_full_disk_before_and_while_fetching(server, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        usage = type(shutil.disk_usage(tmp_path))(10_000, 9_000, 1_000)
        patch.setattr(fetching.shutil, "disk_usage", lambda path: usage)
        assert "the disk is too full" in refusal(part(server), tmp_path)
    full = Path("/dev/full")
    if full.exists():
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / "set.bin.part").symlink_to(full)
        assert "No space left on device" in refusal(part(server), tmp_path)
    assert not (tmp_path / "a" / "set.bin").exists()


def test_two_processes_do_not_mix(server, tmp_path):
    from filelock import FileLock

    with FileLock(tmp_path / ".fetch.lock"):
        assert "another process is fetching" in refusal(part(server), tmp_path)


def test_a_data_folder_that_is_a_file(server, tmp_path):
    (tmp_path / "data").touch()
    assert "data: File exists" in refusal(part(server), tmp_path / "data")


def interrupted(server: Files, data: Path, number: int) -> int:
    """Fetch in a process of its own and send it a signal once bytes are there."""
    one = part(server)
    code = (
        "from pathlib import Path; from bench.data.fetch import fetch;"
        "from bench.data.sources import Part;"
        f"fetch({one!r}, Path({str(data)!r}), lambda done, total: None)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    partial = data / "a" / "set.bin.part"
    deadline = time.monotonic() + 20
    while not (partial.exists() and partial.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    return process.wait(20)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_killed_while_fetching(tmp_path, number):
    # A body that never ends: part of it comes, then the server waits for the signal.
    with socket.create_server(("127.0.0.1", 0)) as slow:

        def answer() -> None:
            connection, _ = slow.accept()
            connection.recv(4096)
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(CONTENT)}\r\n\r\n".encode()
            connection.sendall(head + CONTENT[:70_000])
            connection.recv(1)
            connection.close()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        files = Files(url=f"http://127.0.0.1:{slow.getsockname()[1]}")
        assert interrupted(files, tmp_path, number) != 0
        thread.join(5)
    left = everything(tmp_path)
    assert "a/set.bin" not in left
    assert left - {".fetch.lock"} == {"a/set.bin.part"}
    with serving(Files({"/set.bin": CONTENT})) as server:
        get(part(server), tmp_path)
        assert server.asked[0] is not None
    assert (tmp_path / "a" / "set.bin").read_bytes() == CONTENT


# Archives


def tar_of(members: list[tuple[tarfile.TarInfo, bytes]], mode: str = "w") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return file.getvalue()


def plain(name: str, content: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), content


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info, b""


def zip_of(names: list[str]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for name in names:
            packed.writestr(name, name)
    return file.getvalue()


def archive_part(server: Files, name: str, content: bytes, **changes) -> Part:
    server.contents[f"/{name}"] = content
    made = {"url": f"{server.url}/{name}", "file": name, "size": None, "gives": ("set",)}
    return Part(**{**made, **sums(content), **changes})


GOOD = [plain("set/a/1.txt", b"one"), plain("set/2.txt", b"two"), plain("other/3.txt")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("set.tar", tar_of(GOOD)),
        ("set.tar.gz", tar_of(GOOD, "w:gz")),
        ("set.zip", zip_of(["set/a/1.txt", "set/2.txt", "other/3.txt"])),
    ],
)
def test_archives_are_unpacked_and_removed(server, tmp_path, name, content):
    get(archive_part(server, name, content), tmp_path)
    assert everything(tmp_path) == {"set/a/1.txt", "set/2.txt", f"{name}.sha256"}


def test_an_archive_below_a_folder_and_all_of_it(server, tmp_path):
    content = tar_of([plain("set/1.txt"), plain("2.txt")])
    get(archive_part(server, "b.tar", content, into="deep", gives=("deep/set",)), tmp_path)
    assert everything(tmp_path) == {"deep/set/1.txt", "b.tar.sha256"}
    get(archive_part(server, "c.tar", content, into="x/y", gives=("x/y",)), tmp_path)
    assert {"x/y/set/1.txt", "x/y/2.txt"} <= everything(tmp_path)


def test_an_archive_put_there_by_hand(tmp_path):
    content = tar_of(GOOD)
    (tmp_path / "set.tar").write_bytes(content)
    one = Part("http://no.such.host.invalid/x", "set.tar", None, **sums(content), gives=("set",))
    get(one, tmp_path)
    assert everything(tmp_path) == {"set.tar", "set.tar.sha256", "set/a/1.txt", "set/2.txt"}


def test_a_wrong_archive_put_there_by_hand_stays(tmp_path):
    (tmp_path / "set.tar").write_bytes(b"mine")
    one = Part("http://no.such.host.invalid/x", "set.tar", None, **sums(b""), gives=("set",))
    assert "remove it and fetch again" in refusal(one, tmp_path)
    assert (tmp_path / "set.tar").read_bytes() == b"mine"


def test_what_a_folder_lacks_is_added(server, tmp_path):
    (tmp_path / "set" / "a").mkdir(parents=True)
    (tmp_path / "set" / "2.txt").write_bytes(b"changed")
    get(archive_part(server, "set.tar", tar_of(GOOD)), tmp_path)
    assert (tmp_path / "set" / "a" / "1.txt").read_bytes() == b"one"
    assert (tmp_path / "set" / "2.txt").read_bytes() == b"changed"


def test_an_archive_without_what_it_should_hold(server, tmp_path):
    one = archive_part(server, "set.tar", tar_of(GOOD), gives=("set", "third"))
    assert "set.tar: holds no third" in refusal(one, tmp_path)
    assert not (tmp_path / "set").exists()
    assert everything(tmp_path) == {"set.tar", "set.tar.sha256"}


UNSAFE = {
    "up.tar": tar_of([plain("set/1.txt"), plain("../evil.txt")]),
    "up_inside.tar": tar_of([plain("set/1.txt"), plain("set/../../evil.txt")]),
    "absolute.tar": tar_of([plain("set/1.txt"), plain("/evil.txt")]),
    "link_out.tar": tar_of([link("set", ".."), plain("set/evil.txt")]),
    "link_absolute.tar": tar_of([link("set", "/tmp"), plain("set/evil.txt")]),
    "hard_link.tar": tar_of([link("set", "../../secret", tarfile.LNKTYPE)]),
    "device.tar": tar_of([link("set", "", tarfile.CHRTYPE)]),
    "up.zip": zip_of(["set/1.txt", "../evil.txt"]),
    "up_inside.zip": zip_of(["set/1.txt", "set/../../evil.txt"]),
    "absolute.zip": zip_of(["set/1.txt", "/evil.txt"]),
    "backslash.zip": zip_of(["set/1.txt", "..\\evil.txt"]),
    "drive.zip": zip_of(["set/1.txt", "C:/evil.txt"]),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_archives_are_refused(server, tmp_path, name):
    data = tmp_path / "deep" / "data"
    line = refusal(archive_part(server, name, UNSAFE[name]), data)
    assert f"{name}: unsafe, not unpacked" in line
    assert not list(tmp_path.rglob("evil*"))
    assert everything(tmp_path) == {f"deep/data/{name}", f"deep/data/{name}.sha256"}
    assert not (data / "set").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("set.tar", b"no archive"),
        ("set.tar", tar_of([plain("set/1.txt", bytes(5000))])[:2000]),
        ("set.tar.gz", tar_of(GOOD, "w:gz")[:60]),
        ("set.tar.gz", gzip.compress(b"no archive")),
        ("set.zip", zip_of(["set/1.txt"])[:-10]),
        ("set.zip", zip_of(["set/1.txt"]).replace(b"set/1.txtset/1.txt", b"set/1.txtset/2.txt")),
    ],
    # The bytes of some hold the time, which must not be part of a test's name.
    ids=["no tar", "cut tar", "cut gzip", "no tar in gzip", "cut zip", "zip of other names"],
)
def test_damaged_archives(server, tmp_path, name, content):
    line = refusal(archive_part(server, name, content), tmp_path)
    assert f"{name}: not a readable archive" in line
    assert not (tmp_path / "set").exists()


def test_a_full_disk_while_unpacking(tmp_path, monkeypatch):
    (tmp_path / "set.tar").write_bytes(tar_of(GOOD))

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "makefile", full)
    with pytest.raises(OSError, match="No space"):
        unpack(tmp_path / "set.tar", tmp_path, "", ("set",))
    assert everything(tmp_path) == {"set.tar"}


def test_what_an_earlier_time_left_half_unpacked_does_not_count(tmp_path):
    stale = tmp_path / ".set.tar.unpacking" / "set"
    stale.mkdir(parents=True)
    (stale / "stale.txt").touch()
    (tmp_path / "set.tar").write_bytes(tar_of(GOOD))
    unpack(tmp_path / "set.tar", tmp_path, "", ("set",))
    assert everything(tmp_path) == {"set.tar", "set/a/1.txt", "set/2.txt"}


def test_an_old_python_refuses(tmp_path, monkeypatch):
    monkeypatch.delattr(tarfile, "data_filter")
    (tmp_path / "set.tar").write_bytes(tar_of(GOOD))
    with pytest.raises(UnpackError, match=r"3\.11\.4"):
        unpack(tmp_path / "set.tar", tmp_path, "", ("set",))
