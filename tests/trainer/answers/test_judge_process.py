"""The judge's own process: a time limit that ends anything, failures that are counted, no process left behind."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import psutil
import pytest

from regimescope.trainer.answers.judge_process import JudgeFailed, JudgeProcess

TOWER = "9^{9^{9}}x"
"math-verify computes it until memory or time ends."


def script(body: str) -> tuple[str, ...]:
    """A worker that speaks the protocol up to `body`, which has `line`, a question."""
    head = "import sys, time, json\nsys.stdin.readline(); print('{\"ready\": true}', flush=True)\n"
    return sys.executable, "-c", f"{head}for line in sys.stdin:\n    {body}"


def until(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def gone(pid: int | None) -> bool:
    try:
        return pid is not None and psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(scope="module")
def judge() -> Iterator[JudgeProcess]:
    judge = JudgeProcess(limit_s=30.0)
    yield judge
    judge.close()


def test_equal_and_readable(judge: JudgeProcess) -> None:
    assert judge.equal("(x+1)^2", "x^2+2x+1")
    assert not judge.equal("(x+1)^2", "x^2+2x")
    assert judge.readable(r"\sqrt{2}")
    assert not judge.readable(r"\frac{")


def test_one_worker_serves_all_threads(judge: JudgeProcess) -> None:
    judge.equal("x", "y")
    pid = judge.pid
    with ThreadPoolExecutor(8) as pool:
        equal = list(pool.map(lambda i: judge.equal("3x", f"{i % 5}x"), range(100)))
    assert equal == [i % 5 == 3 for i in range(100)]
    assert judge.pid == pid


def test_a_computation_without_end_is_ended_and_the_next_question_gets_an_answer() -> None:
    judge = JudgeProcess(limit_s=1.5)
    judge.equal("x", "y")
    pid = judge.pid
    in_thread: list[BaseException] = []

    def ask() -> None:
        try:
            judge.equal("x^2", TOWER)
        except TimeoutError as error:
            in_thread.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert len(in_thread) == 1
    assert gone(pid)
    judge.limit_s = 30.0
    assert judge.equal("x+1", "1+x")
    judge.close()


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (("/no/such/program",), "FileNotFoundError"),
        ((sys.executable, "-c", "pass"), "died"),
        ((sys.executable, "-c", "print('no json')"), "nonsense"),
        ((sys.executable, "-c", "import time; time.sleep(60)"), "start"),
        (script("sys.exit(3)"), "died"),
        (script("print('nonsense', flush=True)"), "nonsense"),
        (script("print('[' * 3000, flush=True)"), "nonsense"),
        (script("print('x' * 100_000, flush=True)"), "nonsense"),
        (script("print('[1]', flush=True)"), "nonsense"),
        (script("while True: sys.stdout.write('x' * 4096)"), "nonsense"),
        (script('print(\'{"id": 99, "equal": true}\', flush=True)'), "nonsense"),
        (script('print(\'{"id": 1, "equal": 1}\', flush=True)'), "nonsense"),
        (script('print(\'{"id": 1, "error": "ValueError"}\', flush=True)'), "ValueError"),
        (script("sys.stdout.buffer.write(bytes([255, 10])); sys.stdout.flush()"), "nonsense"),
    ],
)
def test_every_failure_has_a_kind(command: tuple[str, ...], kind: str) -> None:
    judge = JudgeProcess(command=command, start_s=2.0, limit_s=30.0)
    with pytest.raises(JudgeFailed) as caught:
        judge.equal("x", "y")
    assert caught.value.kind == kind
    judge.close()
    assert judge.pid is None


def test_a_worker_that_says_nothing_is_killed() -> None:
    judge = JudgeProcess(command=script("time.sleep(60)"), limit_s=0.2)
    with pytest.raises(TimeoutError):
        judge.equal("x", "y")
    assert judge.pid is None


def test_a_worker_that_was_killed_is_replaced(judge: JudgeProcess) -> None:
    judge.equal("x", "y")
    first = judge.pid
    assert first is not None
    psutil.Process(first).kill()
    psutil.Process(first).wait()
    assert judge.equal("x+y", "y+x")
    assert judge.pid != first


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is kept by Linux")
def test_memory_is_limited(judge: JudgeProcess) -> None:
    assert judge.equal("x", "x")
    assert judge.pid is not None
    assert psutil.Process(judge.pid).rlimit(psutil.RLIMIT_AS)[0] == 2 << 30


def test_no_worker_outlives_its_owner() -> None:
    judge = JudgeProcess(limit_s=30.0)
    judge.equal("x", "y")
    pid = judge.pid
    del judge
    assert until(lambda: gone(pid))


OWNER = """
import os, signal, sys
from regimescope.trainer.answers.judge_process import JudgeProcess
judge = JudgeProcess(limit_s=3.0)
judge.equal("x", "y")
print(judge.pid, flush=True)
if sys.argv[1] == "busy":
    judge.equal("x^2", "%s")
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("end", ["exit", "killed", "busy"])
def test_no_orphan_however_the_owner_ends(end: str) -> None:
    command = [sys.executable, "-c", OWNER.replace("%s", TOWER), end]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        if end == "busy":  # the owner dies while the worker computes: then its own alarm ends it
            worker = psutil.Process(pid)
            started = worker.cpu_times().user
            assert until(lambda: worker.cpu_times().user > started + 0.5)
            owner.send_signal(signal.SIGKILL)
        owner.wait()
        assert until(lambda: gone(pid))


def test_a_pickled_copy_starts_a_worker_of_its_own(judge: JudgeProcess) -> None:
    judge.equal("x", "y")
    copy = pickle.loads(pickle.dumps(judge))
    assert copy.limit_s == judge.limit_s
    assert copy.equal("x", "x")
    assert copy.pid != judge.pid
    copy.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_process_starts_a_worker_of_its_own(
    method: str, judge: JudgeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        sys.modules, "__main__", types.ModuleType("__main__")
    )  # spawn runs it again: AppTest leaves a page
    judge.equal("x", "y")
    ours = judge.pid
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads: what is tested here
        with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
            assert pool.submit(judge.equal, "x+1", "1+x").result(timeout=60)
    assert judge.pid == ours
    assert judge.equal("x", "x")  # the parent's is untouched


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_another_thread_asks_does_not_hang() -> None:
    judge = JudgeProcess(command=script('time.sleep(1); print(\'{"id": 1, "equal": true}\', flush=True)'))
    asking = threading.Thread(target=judge.equal, args=("x", "y"))
    asking.start()
    assert until(lambda: judge.pid is not None and judge._asked == 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            judge._command = script('print(\'{"id": 2, "equal": true}\', flush=True)')
            code = 0 if judge.equal("x", "y") else 2
            judge.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    asking.join()
    judge.close()
