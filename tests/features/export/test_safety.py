"""Exports that are killed, interrupted, starved: every file whole, and the same end as undisturbed.

``ATTNVIZ_KILLS`` sets how many processes are killed (``make torture`` kills more).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.errors import AttnvizError, OutputError, UsageError
from attnviz.features.export import paths, plan, run
from attnviz.features.export.pictures import Job, Written, make
from attnviz.features.export.plan import Folder
from attnviz.models.controls import FreshConfig
from tests import forking
from tests.cli.calling import refused
from tests.features.export.test_export import manifest as lines_of

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("ATTNVIZ_KILLS", "32"))
OPTIONS = [
    *("-m", "fresh", "--d-model", "16", "--heads", "4", "--layers", "2", "--causal"),
    *("--normalize", "row", "--layout", "heads,overview", "--format", "png,npz", "--dpi", "60"),
]
MODEL = FreshConfig(d_model=16, heads=4, layers=2, causal=True)


LIMITED = """
import os, resource, signal, sys
from attnviz.cli import main
fsize, nofile, *arguments = sys.argv[1:]
if int(fsize):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(fsize), int(fsize)))
if int(nofile):
    limit = max(map(int, os.listdir("/proc/self/fd"))) + int(nofile)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
sys.exit(main(arguments))
"""


class Server:
    """Runs one command after the other, each in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"

    def start(self, *arguments: str, fsize: int = 0, nofile: int = 0) -> int:
        """Start a command, with a limit for the size of files or for those open beside others."""
        command = [sys.executable, "-c", LIMITED, str(fsize), str(nofile), *arguments]
        with self.log.open("w") as log:
            self.process = forking.Popen(command, stdout=log, stderr=log)
        return self.process.pid

    def wait(self) -> int:
        """The exit code (negative: the signal)."""
        return self.process.wait()

    def ended(self, seconds: float) -> bool:
        """Whether the process ends within some time; its id stays taken until :meth:`wait`."""
        end = time.monotonic() + seconds
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while os.waitid(os.P_PID, self.process.pid, how) is None:
            if time.monotonic() >= end:
                return False
            time.sleep(min(0.0005, seconds))
        return True

    def ended_or(self, journal: Path, size: float) -> None:
        """Wait until the process ends or the journal has grown."""
        while size_of(journal) < size and not self.ended(0.0005):
            pass

    def run(self, *arguments: str, **limits: int) -> tuple[int, str]:
        self.start(*arguments, **limits)
        code = self.wait()
        return code, self.log.read_text()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    return Server(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> str:
    words = "the keys to a cabinet are on that table because we lost them again today"
    chooser = random.Random(0)
    lines = [" ".join(chooser.choices(words.split(), k=chooser.randint(2, 9))) for _ in range(20)]
    path = tmp_path_factory.mktemp("in") / "s.txt"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def undisturbed(server: Server, sentences: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "maps"
    code, log = server.run("export", sentences, "-o", str(out), *OPTIONS, "--jobs", "1")
    assert code == 0, log
    return out


def contents(out: Path) -> dict[str, str]:
    """The hash of every file but the lock, which is empty."""
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def assert_whole(out: Path, expected: dict[str, str]) -> None:
    """Whatever has a final name is what an undisturbed run writes; a manifest is as it was."""
    for name, digest in contents(out).items():
        if not Path(name).name.startswith(".") and not name.startswith(".attnviz"):
            if name in ("manifest.jsonl", "index.html"):
                lines = (out / "manifest.jsonl").read_text().splitlines()
                assert all(json.loads(line)["sha256"] for line in lines)
            else:
                assert digest == expected[name], f"{name} is torn"


def test_the_undisturbed_run_is_proven_by_its_manifest(undisturbed: Path) -> None:
    found = contents(undisturbed)
    lines = lines_of(undisturbed)
    pictures = {line["file"]: line["sha256"] for line in lines}
    assert len(lines) == 20 * (8 + 1 + 1)
    assert {n: d for n, d in found.items() if n in pictures} == pictures
    assert set(found) - set(pictures) == {"manifest.jsonl", "index.html", ".attnviz/settings.json"}
    assert [line["number"] for line in lines] == sorted(line["number"] for line in lines)


@pytest.mark.parametrize(("jobs", "share"), [("1", 0.8), ("2", 0.2)])
def test_killed_at_random_moments(
    server: Server, sentences: str, undisturbed: Path, tmp_path: Path, jobs: str, share: float
) -> None:
    """kill -9 again and again; each run goes on, and the end equals the undisturbed run."""
    expected = contents(undisturbed)
    whole = (undisturbed / "manifest.jsonl").stat().st_size
    chooser = random.Random(os.environ.get("ATTNVIZ_SEED", "5"))
    arguments = ("export", sentences, *OPTIONS, "--jobs", jobs, "--out")
    hit, folder = 0, 0
    while hit < round(KILLS * share):
        out = tmp_path / f"maps{folder}"
        process = server.start(*arguments, str(out))
        journal = out / ".attnviz" / "journal.jsonl"
        kind = chooser.random()
        if kind < 0.15:  # early: loading, locking, proving
            server.ended(chooser.uniform(0, 0.2))
        elif kind < 0.3:  # late: the manifest and the index
            server.ended_or(journal, whole)
            server.ended(chooser.uniform(0, 0.01))
        else:  # among the pictures
            target = chooser.uniform(size_of(journal), whole)
            server.ended_or(journal, target)
            server.ended(chooser.uniform(0, 0.003))
        os.kill(process, signal.SIGKILL)  # at worst a zombie, until its exit code is read
        code = server.wait()
        assert code in (0, -signal.SIGKILL), server.log.read_text()
        hit += code != 0
        if out.exists():
            assert_whole(out, expected)
        if code == 0:
            assert contents(out) == expected
            folder += 1
    code, log = server.run(*arguments, str(tmp_path / f"maps{folder}"))
    assert code == 0, log
    assert contents(tmp_path / f"maps{folder}") == expected


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_ctrl_c_leaves_a_valid_folder_and_says_how_to_go_on(
    server: Server, sentences: str, undisturbed: Path, tmp_path: Path
) -> None:
    expected = contents(undisturbed)
    out = tmp_path / "maps"
    arguments = ("export", sentences, *OPTIONS, "--jobs", "1", "--out", str(out))
    process = server.start(*arguments)
    while len(list(out.glob("*/*.png"))) < 9:
        time.sleep(0.005)
    os.kill(process, signal.SIGINT)
    assert server.wait() == 130
    assert "the same command resumes" in server.log.read_text()
    done = lines_of(out)
    assert 9 <= len(done) < 200
    assert (out / "index.html").exists()
    assert not (out / ".attnviz" / "journal.jsonl").exists()
    assert_whole(out, expected)
    code, log = server.run(*arguments)
    assert code == 0
    assert f"{len(done):,} were there already" in log
    assert contents(out) == expected


def test_file_size_limit_stops_in_order(
    server: Server, sentences: str, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "maps"
    arguments = ("export", sentences, *OPTIONS, "--jobs", "1", "--out", str(out))
    code, log = server.run(*arguments, fsize=30_000)  # the journal outgrows it
    assert code == 1
    assert "resumes from there" in log
    assert "Traceback" not in log
    assert_whole(out, contents(undisturbed))
    assert server.run(*arguments)[0] == 0
    assert contents(out) == contents(undisturbed)


def test_disk_full(server: Server, sentences: str, undisturbed: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if not shutil.which("mount") or subprocess.call(mount, stderr=-3):
        pytest.skip("cannot mount a small disk here")
    try:
        out = disk / "maps"
        arguments = ("export", sentences, *OPTIONS, "--jobs", "2", "--out", str(out))
        code, log = server.run(*arguments)
        assert code == 1
        assert "No space left on device" in log
        assert "Traceback" not in log
        assert_whole(out, contents(undisturbed))
        grow = ["mount", "-o", "remount,size=16m", str(disk)]
        subprocess.run(grow, check=True)
        assert server.run(*arguments)[0] == 0
        assert contents(out) == contents(undisturbed)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_out_of_file_handles(server: Server, sentences: str, undisturbed: Path, tmp_path) -> None:
    out = tmp_path / "maps"
    arguments = ("export", sentences, *OPTIONS, "--out", str(out), "--jobs")
    for spare in (1, 3, 5, 6, 8):
        for jobs in ("1", "2"):
            code, log = server.run(*arguments, jobs, nofile=spare)
            assert code in (0, 1), log
            assert code == 0 or "Too many open files" in log, log
            assert "Traceback" not in log, log
    assert server.run(*arguments, "1")[0] == 0
    assert contents(out) == contents(undisturbed)


def test_a_folder_that_cannot_be_written(sentences: str, tmp_path: Path, capsys) -> None:
    places = [Path("/proc/attnviz-maps"), tmp_path / "file"]
    places[1].write_text("")
    if os.getuid():
        places.append(tmp_path / "closed")
        places[2].mkdir(mode=0o555)
    for place in places:
        assert main(["export", sentences, "-o", str(place), "--jobs", "1"]) == 1
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_folder_is_removed_meanwhile(sentences: str, tmp_path: Path) -> None:
    out = tmp_path / "maps"

    def remove(result: object) -> None:
        if result.pictures > 10 and out.exists():
            shutil.rmtree(out)

    with pytest.raises(OutputError, match="No such file"):
        av.export(sentences, out, model=MODEL, jobs=1, progress=remove)
    assert not out.exists()


def children() -> set[int]:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_is_killed(sentences: str, undisturbed: Path, tmp_path: Path) -> None:
    """A dead worker is replaced, and its job done again."""
    before = children()
    killed = []

    def kill(result: object) -> None:
        if not killed and result.pictures > 10:
            for pid in children() - before:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    plain = av.export(sentences, tmp_path / "a", model=MODEL, jobs=1)
    hurt = av.export(sentences, tmp_path / "b", model=MODEL, jobs=2, progress=kill)
    assert killed
    assert hurt.pictures == plain.pictures == 160
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert not children() - before, "workers left behind"


def deadly() -> Callable[[object], object]:
    """The set-up of a worker that no job survives."""
    return lambda job: os.kill(os.getpid(), signal.SIGKILL)


def test_a_job_that_always_kills_its_worker_is_an_error(
    sentences: str, tmp_path: Path, monkeypatch
) -> None:
    before = children()
    monkeypatch.setattr(run, "drawing", deadly)
    with pytest.raises(OutputError, match=r"cannot draw .*: 2 processes crashed .* by SIGKILL"):
        av.export(sentences, tmp_path / "maps", model=MODEL, jobs=2)
    assert not children() - before


def test_two_exports_into_one_folder(sentences: str, tmp_path: Path, capsys) -> None:
    first = Folder(tmp_path / "maps", force=False)
    arguments = ["export", sentences, "-o", str(tmp_path / "maps"), "--jobs", "1", "-q"]
    assert "another export is writing" in refused(capsys, *arguments)
    first.close()
    assert main(arguments) == 0


def test_changed_and_missing_files_are_made_again(sentences: str, tmp_path: Path) -> None:
    out = tmp_path / "maps"
    settings = {"layout": "heads,layers", "format": "png,safetensors"}
    execution = {"jobs": 1, "limit": 6}
    first = av.export(sentences, out, model=MODEL, **settings, **execution)
    expected = contents(out)
    pictures = sorted(out.glob("*/*.png"))
    pictures[3].write_bytes(b"\x89PNG broken")
    pictures[11].unlink()
    shutil.rmtree(pictures[-1].parent)
    manifest = out / "manifest.jsonl"
    lines = manifest.read_text().splitlines()
    lines[20] = '{"file": "../../escape.png", "torn'
    lines[21] = json.dumps({**json.loads(lines[21]), "file": "../../escape.png"})
    manifest.write_text("\n".join(lines) + "\n")
    again = av.export(sentences, out, model=MODEL, **settings, **execution)
    assert contents(out) == expected
    assert again.pictures == 2 + 2 + len([n for n in expected if n.startswith("0006")])
    assert again.pictures + again.kept == first.pictures


def test_other_settings_need_force(sentences: str, tmp_path: Path) -> None:
    out = tmp_path / "maps"
    execution = {"jobs": 1, "limit": 2}
    av.export(sentences, out, model=MODEL, **execution)
    before = contents(out)
    for other, model, says in (
        ({"select": "0.*"}, MODEL, "select was null"),
        ({"words": True}, MODEL, "style words was false"),
        ({}, FreshConfig(d_model=16, heads=4, layers=2, causal=True, bias=False), "bias"),
        ({}, FreshConfig(d_model=16, heads=4, layers=2, causal=True, seed=1), "seed"),
        ({}, "demo-gpt2", r'model was "fresh mha.*and is now "demo-gpt2"'),
    ):
        with pytest.raises(OutputError, match=says):
            av.export(sentences, out, model=model, **other, **execution)
        assert contents(out) == before
    force = {"jobs": 1, "limit": 2, "force": True}
    forced = av.export(sentences, out, model=MODEL, select="0.0", **force)
    assert forced.pictures == 2
    assert len(list(out.glob("*/*.png"))) == 2


def test_other_inputs_need_force(sentences: str, tmp_path: Path) -> None:
    out = tmp_path / "maps"
    one, other = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("a b c\nd e f\n")
    other.write_text("a b c\nx y z\nnew one\n")
    av.export(one, out, model=MODEL, jobs=1)
    with pytest.raises(UsageError, match='of "d e f" as input 2, which is now "x y z"'):
        av.export(other, out, model=MODEL, jobs=1)
    done = av.export(other, out, model=MODEL, jobs=1, force=True)
    assert (done.pictures, done.kept) == (16, 8)
    assert {path.parent.name for path in out.glob("*/*.png")} == {
        "0001-a-b-c", "0002-x-y-z", "0003-new-one"
    }  # fmt: skip


def test_a_folder_with_files_of_others_is_refused(sentences: str, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match="no export wrote"):
        av.export(sentences, tmp_path, model=MODEL, jobs=1)
    av.export(sentences, tmp_path, model=MODEL, jobs=1, limit=1, force=True)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_a_model_that_is_not_there_leaves_no_folder(sentences: str, tmp_path: Path) -> None:
    for out in (tmp_path / "maps", tmp_path):
        with pytest.raises(av.ModelError):
            av.export(sentences, out, model=str(tmp_path / "none"), jobs=1)
        assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------ found by reading


def test_with_force_only_the_inputs_of_now_stay(tmp_path: Path) -> None:
    source, out = tmp_path / "s.txt", tmp_path / "maps"
    source.write_text("a b\nc d\ne f\ng h\n")
    av.export(source, out, model=MODEL, jobs=1)
    source.write_bytes(b"a b\n\xff\xff\ne f\n")
    force = {"jobs": 1, "force": True}
    av.export(source, out, model=MODEL, jobs=1, force=True, limit=1)
    assert {line["text"] for line in lines_of(out)} == {"a b", "c d", "e f", "g h"}
    done = av.export(source, out, model=MODEL, **force)
    assert (len(done.bad), done.pictures) == (1, 0)
    texts = {line["text"] for line in lines_of(out)}
    assert texts == {"a b", "c d", "e f"}  # what cannot be read may be mended
    source.write_text("a b\nx y\n")
    av.export(source, out, model=MODEL, **force)
    assert {line["text"] for line in lines_of(out)} == {"a b", "x y"}
    assert {path.parent.name for path in out.glob("*/*.png")} == {"0001-a-b", "0002-x-y"}


def test_a_resume_does_not_run_the_model_again(sentences: str, tmp_path: Path) -> None:
    source = av.load(MODEL)
    calls = []
    forward = source.forward
    source.forward = lambda *given, **options: calls.append(1) or forward(*given, **options)
    av.export(sentences, tmp_path / "maps", model=source, jobs=1)
    assert calls
    before = len(calls)
    av.export(sentences, tmp_path / "maps", model=source, jobs=1)
    assert len(calls) == before


def test_pictures_that_are_not_chosen_any_more_go(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "s.txt").write_text("a b c\n")
    settings = {"select": "clearest:2"}

    def export() -> tuple[int, int]:
        done = av.export(tmp_path / "s.txt", tmp_path / "maps", model=MODEL, **settings, jobs=1)
        return done.pictures, done.kept

    monkeypatch.setattr(plan, "leading", lambda scores, role: scores.head)
    assert export() == (2, 0)
    (tmp_path / "maps" / "0001-a-b-c" / "L00H01.png").unlink()
    monkeypatch.setattr(plan, "leading", lambda scores, role: -scores.head.index)
    assert export() == (2, 0)
    assert export() == (0, 2)
    assert len(list((tmp_path / "maps").glob("*/*.png"))) == 2


def test_the_disk_is_waited_for(tmp_path: Path, monkeypatch) -> None:
    """For settings, manifest and gallery; pictures that are lost are drawn again."""
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")) or fsync(file))  # fmt: skip  # noqa: E501
    (tmp_path / "s.txt").write_text("a b c\n")
    out = tmp_path / "maps"
    av.export(tmp_path / "s.txt", out, model=MODEL, jobs=1)
    names = [name.removeprefix(str(out)) for name in synced]
    for part in (".settings.json.", ".manifest.jsonl.", ".index.html."):
        assert any(part in name for name in names), part
    assert not any(".png" in name for name in names)


def test_files_of_others_are_never_swept(sentences: str, tmp_path: Path) -> None:
    out = tmp_path / "maps"
    av.export(sentences, out, model=MODEL, jobs=1, limit=2)
    others = [out / ".download.part", out / "2024-photos" / ".film.mkv.part"]
    ours = [out / ".index.html.0123456789ab.part", next(out.glob("0001*")) / ".x.png.ba9876543210.part"]  # fmt: skip  # noqa: E501
    for path in (*others, *ours):
        path.parent.mkdir(exist_ok=True)
        path.write_text("unfinished")
    (out / ".attnviz" / "journal.jsonl").touch()  # as a killed export leaves it
    av.export(sentences, out, model=MODEL, jobs=1, limit=2)
    assert all(path.exists() for path in others)
    assert not any(path.exists() for path in ours)


def dying_once(flag: str) -> Callable[[Job], list[Written]]:
    """The set-up of a worker that is killed before its first file gets its name, but once only."""
    real = os.replace

    def replace(before: Path, after: Path) -> None:
        if not os.path.exists(flag):
            Path(flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        real(before, after)

    os.replace = replace
    return make


def test_a_worker_killed_in_the_middle_of_a_file_leaves_nothing(
    sentences: str, undisturbed: Path, tmp_path: Path, monkeypatch
) -> None:
    flag = tmp_path / "killed"
    plain = tmp_path / "plain"
    av.export(sentences, plain, model=MODEL, jobs=1)
    monkeypatch.setattr(run, "drawing", partial(dying_once, str(flag)))
    av.export(sentences, tmp_path / "maps", model=MODEL, jobs=2)
    assert flag.exists()
    assert contents(tmp_path / "maps") == contents(plain)


def test_a_process_that_cannot_be_started_is_an_error(
    sentences: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(sys, "executable", None)  # as in a program with Python inside
    with pytest.raises(AttnvizError, match="cannot start a worker process"):
        av.export(sentences, tmp_path / "maps", model=MODEL, jobs=2)


def test_ctrl_c_while_waiting_for_input(tmp_path: Path) -> None:
    """Nothing is torn by ending at once; the pictures that are there stay."""
    command = [sys.executable, "-m", "attnviz", "export", "-", "-m", "fresh", "-o", "maps"]
    code = "import signal, sys, runpy; signal.signal(signal.SIGINT, signal.default_int_handler); sys.argv[1:] = sys.argv[2:]; runpy.run_module('attnviz', run_name='__main__', alter_sys=True)"  # noqa: E501
    process = forking.Popen(
        [sys.executable, "-c", code, *command[2:]],
        cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    process.stdin.write("one two\n")
    process.stdin.flush()
    settings = tmp_path / "maps" / ".attnviz" / "settings.json"
    deadline = time.monotonic() + 60
    while not settings.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    try:
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert said.startswith("attnviz: interrupted; 0 new files in maps")
    assert len(said.splitlines()) == 1


def test_lost_settings_are_named(sentences: str, tmp_path: Path) -> None:
    out, execution = tmp_path / "maps", {"jobs": 1, "limit": 1}
    av.export(sentences, out, model=MODEL, **execution)
    (out / ".attnviz" / "settings.json").write_text("[]")
    with pytest.raises(OutputError, match=r"settings.json is lost"):
        av.export(sentences, out, model=MODEL, **execution)
    shutil.rmtree(out / ".attnviz")
    with pytest.raises(OutputError, match=r"settings.json is lost"):
        av.export(sentences, out, model=MODEL, **execution)


def test_a_page_of_ones_own_is_not_lost_unwarned(sentences: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(OutputError, match=r"its index.html would be replaced"):
        av.export(sentences, tmp_path, model=MODEL, jobs=1)
    assert not (tmp_path / ".attnviz").exists()


def test_numbers_beyond_any_count(sentences: str, tmp_path: Path) -> None:
    most = int("9" * 20)
    with pytest.raises(av.UsageError, match=r"limit takes a whole number .*more than 64 bits"):
        av.export(sentences, tmp_path / "maps", model=MODEL, jobs=1, limit=most)
    most = 2**63 - 1
    found = av.export(sentences, tmp_path / "maps", model=MODEL, jobs=1, select="0.0", limit=most)
    assert found.inputs == 20


def test_a_lock_that_the_file_system_refuses(tmp_path: Path, monkeypatch) -> None:
    def refuse(file: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(paths, "_lock", refuse)
    with pytest.raises(OutputError, match=r"cannot lock .*No locks available"):
        paths.Lock(tmp_path / "lock", tmp_path)


def test_a_lock_that_was_removed_meanwhile_is_not_held(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "lock"
    monkeypatch.setattr(paths, "_lock", lambda file: path.unlink())
    with pytest.raises(OutputError, match="another export"):
        paths.Lock(path, tmp_path)


def test_a_folder_that_cannot_be_changed(sentences: str, tmp_path: Path, monkeypatch) -> None:
    out, execution = tmp_path / "maps", {"jobs": 1, "limit": 1}
    av.export(sentences, out, model=MODEL, **execution)

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OutputError, match=r"cannot change .*Permission denied"):
        av.export(sentences, out, model=MODEL, select="0.0", force=True, **execution)


def test_a_killed_start_needs_no_force(sentences: str, tmp_path: Path) -> None:
    (tmp_path / ".attnviz").mkdir()
    (tmp_path / ".attnviz" / "lock").touch()
    done = av.export(sentences, tmp_path, model=MODEL, jobs=1, limit=1)
    assert done.pictures == 8


def test_an_unreadable_file_takes_nothing_away(tmp_path: Path) -> None:
    source, out = tmp_path / "s.txt", tmp_path / "maps"
    source.write_text("a b\n")
    av.export(source, out, model=MODEL, jobs=1)
    source.write_text("a b\n", encoding="utf-16")
    done = av.export(source, out, model=MODEL, jobs=1, force=True)
    assert (len(done.bad), len(lines_of(out))) == (1, 8)


def test_the_folder_is_moved_meanwhile(sentences: str, tmp_path: Path) -> None:
    out = tmp_path / "maps"

    def move(result: object) -> None:
        if result.pictures > 10 and out.exists():
            out.rename(tmp_path / "moved")

    with pytest.raises(OutputError, match="No such file") as caught:
        av.export(sentences, out, model=MODEL, jobs=1, progress=move)
    assert "goes on" not in str(caught.value)
    assert not out.exists()
    av.export(sentences, tmp_path / "moved", model=MODEL, jobs=1)
    plain = tmp_path / "plain"
    av.export(sentences, plain, model=MODEL, jobs=1)
    assert contents(tmp_path / "moved") == contents(plain)


# ------------------------------------------------------------------ a folder somebody prepared


def prepared(sentences: str, folder: Path) -> tuple[Path, Path]:
    """An export of one sentence, and beside it a folder with a file that is not ours."""
    out, elsewhere = folder / "maps", folder / "elsewhere"
    av.export(sentences, out, model=MODEL, jobs=1, limit=1)
    elsewhere.mkdir()
    (elsewhere / "mine").write_text("mine\n")
    return out, elsewhere


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "name", [".attnviz/journal.jsonl", ".attnviz/settings.json", ".attnviz/lock", "manifest.jsonl"]
)
@pytest.mark.parametrize("how", ["symlink_to", "mkfifo", "hardlink_to"])
def test_a_link_in_place_of_a_file_of_ours(
    sentences: str, tmp_path: Path, name: str, how: str, force: bool
) -> None:
    out, elsewhere = prepared(sentences, tmp_path)
    mine = elsewhere / "mine"
    (out / name).unlink(missing_ok=True)
    if how == "mkfifo":
        os.mkfifo(out / name)
    else:
        getattr(out / name, how)(mine)
    execution = {"jobs": 1, "limit": 1, "force": force}
    if how == "hardlink_to" and name != ".attnviz/journal.jsonl":  # these are never changed
        with contextlib.suppress(OutputError):
            av.export(sentences, out, model=MODEL, **execution)
    else:
        what = {"symlink_to": "is a link", "mkfifo": "is not a regular file"}.get(
            how, "another name"
        )
        with pytest.raises(OutputError, match=rf"{name} (is|has) .*; remove it") as caught:
            av.export(sentences, out, model=MODEL, **execution)
        assert what in caught.value.message
    assert mine.read_text() == "mine\n"
    assert [path.name for path in elsewhere.iterdir()] == ["mine"]


@pytest.mark.parametrize("force", [False, True])
def test_a_linked_private_folder(sentences: str, tmp_path: Path, force: bool) -> None:
    out, elsewhere = prepared(sentences, tmp_path)
    shutil.rmtree(out / ".attnviz")
    (out / ".attnviz").symlink_to(elsewhere)
    with pytest.raises(OutputError, match=r"\.attnviz is a link"):
        av.export(sentences, out, model=MODEL, jobs=1, limit=1, force=force)
    assert [path.name for path in elsewhere.iterdir()] == ["mine"]


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("known", [False, True])
def test_a_linked_picture_folder(sentences: str, tmp_path: Path, jobs: int, known: bool) -> None:
    """Nothing is written there, and nothing removed, whether the manifest knows it or not."""
    out, elsewhere = prepared(sentences, tmp_path)
    folder = next(out.glob("0001*"))
    others = [path.name for path in folder.iterdir()]
    for name in others:
        (elsewhere / name).write_bytes((folder / name).read_bytes())
    unfinished = elsewhere / ".x.png.0123456789ab.part"
    unfinished.touch()
    (out / ".attnviz" / "journal.jsonl").touch()  # so that a killed export's files are swept
    shutil.rmtree(folder)
    folder.symlink_to(elsewhere)
    if not known:
        (out / "manifest.jsonl").write_text("")
    before = contents(elsewhere)
    for settings in ({}, {"select": "0.0"}):
        for force in (False, True):
            execution = {"jobs": jobs, "limit": 1, "force": force}
            if settings != {} and not force:
                continue
            with pytest.raises(OutputError, match=r"0001\S* is a link"):
                av.export(sentences, out, model=MODEL, **settings, **execution)
            assert contents(elsewhere) == before


def test_a_link_in_place_of_a_picture_is_replaced(sentences: str, tmp_path: Path) -> None:
    out, elsewhere = prepared(sentences, tmp_path)
    picture, pipe, index = next(out.glob("*/L00H00.png")), next(out.glob("*/L00H01.png")), out / "index.html"  # fmt: skip  # noqa: E501
    expected = contents(out)
    for path in (picture, pipe, index):
        path.unlink()
    os.mkfifo(pipe)
    for path in (picture, index):
        path.symlink_to(elsewhere / "mine")
    av.export(sentences, out, model=MODEL, jobs=1, limit=1)
    assert contents(out) == expected
    assert not picture.is_symlink()
    assert (elsewhere / "mine").read_text() == "mine\n"


@pytest.mark.parametrize(
    "change",
    [
        {"file": "../elsewhere/mine.png"}, {"file": "0001/../../elsewhere/mine.png"},
        {"file": "/etc/mine.png"}, {"file": "0001/" + "a" * 300 + ".png"}, {"id": {"a": 1}},
        {"id": ...}, {"layer": "7"}, {"index": 1e3}, {"number": True}, {"together": "8"},
        {"digest": None}, {"layout": []}, {"heads": 7}, {"text": None}, {"roles": 5},
        {"heads": {"0.0": [3]}}, {"number": float("inf")}, {"model": {}}, "[" * 100_000,
    ],
)  # fmt: skip
def test_damaged_and_hostile_lines_are_none(
    sentences: str, tmp_path: Path, change: dict | str
) -> None:
    out, _ = prepared(sentences, tmp_path)
    expected = contents(out)
    lines = (out / "manifest.jsonl").read_text().splitlines()
    if isinstance(change, str):
        lines[0] = change
    else:
        line = {**json.loads(lines[0]), **change}
        lines[0] = json.dumps({key: value for key, value in line.items() if value is not ...})
    for settings, force in (({}, False), ({"select": "0.0"}, True), ({}, True)):
        (out / "manifest.jsonl").write_text("\n".join(lines) + "\n")
        execution = {"jobs": 1, "limit": 1, "force": force}
        av.export(sentences, out, model=MODEL, **settings, **execution)
    assert contents(out) == expected


def test_a_line_without_end(sentences: str, tmp_path: Path) -> None:
    out, _ = prepared(sentences, tmp_path)
    os.truncate(out / "manifest.jsonl", 65 << 20)
    with pytest.raises(OutputError, match=r"manifest\.jsonl has a line of 64 MiB"):
        av.export(sentences, out, model=MODEL, jobs=1, limit=1)
